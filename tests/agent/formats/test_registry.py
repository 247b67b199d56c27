"""Families: several checkpoints in one folder, and one checkpoint over several folders."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest
from muster_agent.formats import registry
from muster_agent.formats.base import Role
from muster_agent.formats.checkpoint import absolute_path, read_checkpoint
from muster_agent.formats.draft import Draft
from muster_agent.formats.folder import Folder
from muster_agent.formats.names import beside, family_folder
from muster_agent.formats.reader import Family, FamilyFormat
from muster_agent.formats.safetensors import add_shard, read_shard
from muster_agent.formats.walk import inventory
from muster_agent.storage.posix import locate

_NAME = re.compile(r"ba(\d+)-rank(\d+)\.safetensors")


def _families(folder: Folder) -> list[Family]:
    steps = sorted({int(match.group(1)) for match in map(_NAME.fullmatch, folder.files) if match})
    return [Family(f"ba{step}-rank{{rank}}.safetensors", step, _files(folder, step)) for step in steps]


def _files(folder: Folder, step: int) -> frozenset[str]:
    return frozenset(name for name in folder.files if name.startswith(f"ba{step}-"))


def _read(folder: Folder, family: Family, with_tensors: bool) -> Draft:
    draft = Draft("toy")
    for name in sorted(family.files):
        add_shard(draft, read_shard(folder, name, with_tensors=with_tensors), with_tensors=with_tensors)
    return draft


def _file(path: Path) -> None:
    header = json.dumps({"optimizer.w": {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]}}).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + b"abcd")
    os.utime(path, (1_700_000_000, 1_700_000_000))


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(registry, "FAMILY_FORMATS", (FamilyFormat("toy", _families, _read),))
    folder = tmp_path / "run"
    folder.mkdir()
    for step in (10, 20):
        for rank in (0, 1):
            _file(folder / f"ba{step}-rank{rank}.safetensors")
    return folder


def test_each_step_of_files_that_share_a_folder_is_a_checkpoint_of_its_own(run: Path) -> None:
    found = inventory(run).checkpoints
    assert [(one.step, one.path, one.run, len(one.shards)) for one in found] == [
        (20, f"{run}/ba20-rank{{rank}}.safetensors", "run", 2),
        (10, f"{run}/ba10-rank{{rank}}.safetensors", "run", 2),
    ]
    assert {shard.role for one in found for shard in one.shards} == {Role.OPTIMIZER}


def test_such_a_checkpoint_is_read_again_by_its_path(run: Path) -> None:
    path = f"{run}/ba10-rank{{rank}}.safetensors"
    shard_map = read_checkpoint(path)
    assert shard_map.step == 10
    shard = shard_map.shards[1].path
    assert absolute_path(shard_map, shard) == locate(path, shard) == f"{run}/ba10-rank1.safetensors"
    assert beside(path, ".muster.json") == f"{path}.muster.json"


def test_a_path_that_names_no_family_there_could_not_be_read(run: Path) -> None:
    shard_map = read_checkpoint(f"{run}/ba30-rank{{rank}}.safetensors")
    assert [found.code for found in shard_map.findings] == ["listing_failed"]


def test_a_family_over_several_folders_lies_in_the_one_above_them() -> None:
    path = "/local/job/{rank}/iter_0000020_{rank}_local.pt"
    assert family_folder(path) == "/local/job"
    assert beside(path, ".muster.json") == "/local/job/iter_0000020_{rank}_local.pt.muster.json"
    assert family_folder("/local/job/step-20") is None


def test_a_file_whose_own_name_has_braces_is_itself(tmp_path: Path) -> None:
    _file(tmp_path / "w{1}.safetensors")
    shard_map = read_checkpoint(tmp_path / "w{1}.safetensors")
    assert [shard.path for shard in shard_map.shards] == ["w{1}.safetensors"]
    assert absolute_path(shard_map, "w{1}.safetensors") == f"{tmp_path}/w{{1}}.safetensors"
