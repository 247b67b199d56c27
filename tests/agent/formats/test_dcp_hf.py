from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from muster_agent.formats.base import Severity, Status
from muster_agent.formats.detect import read_checkpoint

from tests.agent.formats.damage import DATA, damage, files_under, swap

Sample = Callable[[str], Path]


def codes(path: Path) -> set[str]:
    return {found.code for found in read_checkpoint(path, grace_seconds=0).findings}


@pytest.mark.parametrize(("name", "world_size"), [("w2-sharded", 2), ("w4-sharded", 4)])
def test_rank_shards_are_complete(sample: Sample, name: str, world_size: int) -> None:
    found = read_checkpoint(sample(f"dcp/hf/{name}/step-70"), grace_seconds=0)
    assert (found.format, found.status, found.step) == ("dcp_hf", Status.COMPLETE, 70)
    assert found.world_size == world_size


@pytest.mark.parametrize("name", ["w2-consolidated", "w4-consolidated"])
def test_a_consolidated_folder_is_an_indexed_one(sample: Sample, name: str) -> None:
    found = read_checkpoint(sample(f"dcp/hf/{name}/step-80"), grace_seconds=0)
    assert (found.format, found.status) == ("safetensors", Status.COMPLETE)
    assert "size_total_mismatch" not in {one.code for one in found.findings}


def test_one_ranks_part_in_the_place_of_the_consolidated_file_is_damage(
    sample: Callable[[str], Path],
) -> None:
    folder = sample("dcp/hf/w2-consolidated/step-80")
    name = "model-00001-of-00002.safetensors"
    swap(folder / name, folder / "sharded" / f"shard-00001-{name}")
    found = read_checkpoint(folder, grace_seconds=0)
    assert found.status is Status.CORRUPT
    assert [one.path for one in found.findings if one.severity is Severity.DAMAGE] == [name]


def test_a_consolidated_folder_that_lost_its_index_is_uncommitted_and_not_a_riddle(
    sample: Callable[[str], Path],
) -> None:
    folder = sample("dcp/hf/w2-consolidated/step-80")
    (folder / "model.safetensors.index.json").unlink()
    found = read_checkpoint(folder, grace_seconds=0)
    assert (found.status, found.resumable) == (Status.UNCOMMITTED, False)
    assert "format_unknown" not in {one.code for one in found.findings}


def test_a_middle_part_that_is_gone_is_seen_as_a_hole(sample: Sample) -> None:
    folder = sample("dcp/hf/w4-sharded/step-70")
    (folder / "shard-00002-model-00001-of-00002.safetensors").unlink()
    assert read_checkpoint(folder, grace_seconds=0).status is Status.INCOMPLETE
    assert codes(folder) == {"shard_missing"}


def test_a_file_number_without_any_shard_is_missing(sample: Sample) -> None:
    folder = sample("dcp/hf/w2-sharded/step-70")
    for rank in (1, 2):
        (folder / f"shard-{rank:05d}-model-00002-of-00002.safetensors").unlink()
    assert codes(folder) == {"shard_missing"}


def test_a_header_without_offsets_is_not_understood(sample: Sample) -> None:
    folder = sample("dcp/hf/w2-sharded/step-70")
    path = folder / "shard-00001-model-00001-of-00002.safetensors"
    path.write_bytes(path.read_bytes().replace(b"saved_offsets", b"other_offsets"))
    assert codes(folder) == {"metadata_unreadable"}


@pytest.mark.parametrize("kind", ["truncate", "empty", "delete", "extend"])
@pytest.mark.parametrize("file", files_under(DATA / "dcp/hf/w4-sharded"))
def test_damage_to_any_shard_is_found_and_named(sample: Sample, file: str, kind: str) -> None:
    folder = sample("dcp/hf/w4-sharded")
    damage(folder / file, kind)
    found = read_checkpoint((folder / file).parent, grace_seconds=0)
    name = Path(file).name
    named = {one.path for one in found.findings if one.severity is not Severity.NOTE}
    assert name in named or (kind == "delete" and found.status is Status.INCOMPLETE), found.findings
    if kind != "delete":
        assert found.status is Status.CORRUPT
