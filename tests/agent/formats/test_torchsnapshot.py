from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from muster_agent.formats.base import Role, Severity, ShardMap, Status
from muster_agent.formats.detect import inventory, read_checkpoint

from tests.agent.formats.damage import DATA, KINDS, age, copy_sample, damage, files_under, swap
from tests.agent.formats.fuzz import examples
from tests.agent.formats.test_any_bytes import assert_judged, judged

MARKER = ".snapshot_metadata"
DOCUMENT = json.loads((DATA / "torchsnapshot" / "step-3" / MARKER).read_text())
FILES = files_under(DATA / "torchsnapshot" / "step-3")


@pytest.fixture
def snapshot(tmp_path: Path) -> Path:
    return copy_sample("torchsnapshot/step-3", tmp_path)


def changed(place: Path, change: Callable[[dict[str, Any]], object]) -> ShardMap:
    document = json.loads(json.dumps(DOCUMENT))
    change(document["manifest"])
    (place / MARKER).write_text(json.dumps(document))
    age(place)
    return read_checkpoint(place)


def damaged(shard_map: ShardMap) -> set[tuple[str, str]]:
    return {(found.code, found.path) for found in shard_map.findings if found.severity is Severity.DAMAGE}


def test_a_real_snapshot_is_whole(snapshot: Path) -> None:
    (shard_map,) = inventory(snapshot.parent).checkpoints
    assert (shard_map.format, shard_map.step, shard_map.status) == ("torchsnapshot", 3, Status.COMPLETE)
    assert (shard_map.resumable, shard_map.world_size) == (True, 1)
    assert {shard.path for shard in shard_map.shards} == set(FILES)


def test_its_tensors_are_placed(snapshot: Path) -> None:
    tensors = {tensor.name: tensor for tensor in read_checkpoint(snapshot).tensors}
    bias = tensors["model/bias"]
    assert (bias.offset_bytes, bias.length_bytes, bias.dtype, bias.shape) == (128, 16, "float32", (4,))
    assert tensors["optim/state/0/sum"].role is Role.OPTIMIZER


def test_without_its_marker_it_was_never_committed(snapshot: Path) -> None:
    (snapshot / MARKER).unlink()
    age(snapshot)
    shard_map = read_checkpoint(snapshot)
    assert (shard_map.format, shard_map.status) == ("torchsnapshot", Status.INCOMPLETE)
    assert {code for code, _ in damaged(shard_map)} == {"metadata_missing"}


@pytest.mark.parametrize("kind", ["truncate", "empty", "delete", "extend"])
@pytest.mark.parametrize("name", FILES)
def test_damage_to_any_file_is_found(snapshot: Path, name: str, kind: str) -> None:
    done = damage(snapshot / name, kind, seed=2)
    age(snapshot)
    shard_map = read_checkpoint(snapshot)
    assert shard_map.status in (Status.CORRUPT, Status.INCOMPLETE), done
    assert kind not in KINDS or name == MARKER or {path for _, path in damaged(shard_map)} == {name}


def test_swapped_files_are_found(snapshot: Path) -> None:
    batched = next(name for name in FILES if name.startswith("batched/"))
    swap(snapshot / batched, snapshot / next(name for name in FILES if name.endswith("/fused")))
    assert read_checkpoint(snapshot).status is Status.CORRUPT


def test_a_name_that_leads_out_is_not_followed(snapshot: Path) -> None:
    shard_map = changed(snapshot, lambda manifest: manifest["0/model/bias"].update(location="../../outside"))
    assert ("path_unsafe", MARKER) in damaged(shard_map)


def test_a_range_that_does_not_fit_its_tensor_is_damage(snapshot: Path) -> None:
    shard_map = changed(snapshot, lambda manifest: manifest["0/model/bias"].update(byte_range=[128, 140]))
    assert shard_map.status is Status.CORRUPT


def test_sharded_and_chunked_entries_are_followed(snapshot: Path) -> None:
    tensor = {"type": "Tensor", "location": "sharded/x", "serializer": "buffer_protocol", "dtype": "torch.float32"}
    part = {"offsets": [0, 0], "sizes": [2, 2], "tensor": {**tensor, "shape": [2, 2], "byte_range": None}}
    (snapshot / "sharded").mkdir()
    (snapshot / "sharded" / "x").write_bytes(bytes(15))
    shard_map = changed(
        snapshot, lambda manifest: manifest.update({"0/e": {"type": "ShardedTensor", "shards": [part]}})
    )
    assert damaged(shard_map) == {("shard_truncated", "sharded/x")}


def test_the_yaml_of_older_versions_is_told_as_not_read(snapshot: Path) -> None:
    (snapshot / MARKER).write_text("manifest:\n  0/model:\n    type: dict\nversion: 0.0.3\nworld_size: 1\n")
    age(snapshot)
    shard_map = read_checkpoint(snapshot)
    assert (shard_map.status, damaged(shard_map)) == (Status.UNKNOWN, set())


@settings(max_examples=examples(300), deadline=5_000)
@given(
    st.recursive(
        st.none() | st.integers() | st.text(max_size=8),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["location", "shards", "tensor", "shape", "byte_range", "type", "dtype", "x"]),
                inner,
                max_size=4,
            )
        ),
        max_leaves=12,
    )
)
def test_any_entry_in_the_manifest(value: Any) -> None:
    for manifest in ({"0/model/w": value}, value):
        text = json.dumps({"version": "0.1.0", "world_size": 1, "manifest": manifest}).encode()
        assert_judged(judged(**{MARKER: text}))
