"""A hole alone proves nothing: real zeros may have been spared. Check sums, and what the zeros would be, decide."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest
from muster_agent.formats.base import Severity, ShardMap, Status
from muster_agent.formats.detect import read_checkpoint
from muster_agent.formats.posix_file import PosixFile

from tests.agent.dcp_factory import Piece, write_dcp
from tests.agent.formats.damage import age
from tests.agent.torch_factory import Tensor, torch_zip, zip_of

MIB = 1 << 20


def punched(path: Path, data: bytes, begin: int, end: int) -> None:
    """The file with bytes [begin, end) never written."""
    with path.open("wb") as file:
        file.write(data[:begin])
        file.seek(end)
        file.write(data[end:])
        file.truncate(len(data))
    with PosixFile(str(path)) as opened:
        if opened.hole() is None:
            pytest.skip("this file system keeps no holes")
    age(path.parent)


def findings(shard_map: ShardMap) -> list[tuple[str, Severity]]:
    return [(one.code, one.severity) for one in shard_map.findings if one.code in ("sparse_hole", "digest_mismatch")]


def safetensors(sizes: dict[str, int]) -> tuple[bytes, dict[str, int]]:
    """A file of tensors of so many bytes without a zero among them, and where each begins."""
    header, begins, at = {}, {}, 0
    for name, size in sizes.items():
        header[name] = {"dtype": "U8", "shape": [size], "data_offsets": [at, at + size]}
        begins[name] = at
        at += size
    text = json.dumps(header).encode().ljust(4088)
    return struct.pack("<Q", len(text)) + text + b"w" * at, {name: 4096 + at for name, at in begins.items()}


# -- zips of torch.save, which carry sums ------------------------------------------------------------------------------
def test_a_hole_over_bytes_that_were_no_zeros_is_damage_by_the_files_own_sums(tmp_path: Path) -> None:
    data = torch_zip({"model": {"w": Tensor("0", (MIB,))}, "optimizer": {"m": Tensor("1", (8,))}})
    punched(tmp_path / "step-5.pt", data, MIB, 2 * MIB)
    shard_map = read_checkpoint(tmp_path / "step-5.pt")
    assert shard_map.status is Status.CORRUPT
    assert ("digest_mismatch", Severity.DAMAGE) in findings(shard_map)


def test_real_zeros_that_a_copy_spared_are_no_finding(tmp_path: Path) -> None:
    state = {"model": {"w": Tensor("0", (64,))}, "optimizer": {"m": Tensor("1", (MIB,))}}
    members = zip_of_zeros(state)
    at = members.index(bytes(MIB)) // 4096 * 4096 + 4096
    punched(tmp_path / "step-5.pt", members, at, at + MIB)
    shard_map = read_checkpoint(tmp_path / "step-5.pt")
    assert (shard_map.status, findings(shard_map)) == (Status.COMPLETE, [])


def zip_of_zeros(state: dict[str, object]) -> bytes:
    from tests.agent.torch_factory import members_of

    return zip_of((name, bytes(len(data)) if name.endswith("data/1") else data) for name, data in members_of(state))


def test_where_no_sums_were_recorded_a_hole_stays_a_warning(tmp_path: Path) -> None:
    data = torch_zip({"model": {"w": Tensor("0", (MIB,))}, "optimizer": {"m": Tensor("1", (8,))}}, with_crc=False)
    punched(tmp_path / "step-5.pt", data, MIB, 2 * MIB)
    shard_map = read_checkpoint(tmp_path / "step-5.pt")
    assert (shard_map.status, findings(shard_map)) == (Status.COMPLETE, [("sparse_hole", Severity.WARNING)])


def test_a_hole_inside_a_record_of_dcp_is_damage_by_its_own_sum(tmp_path: Path) -> None:
    place = tmp_path / "step-10"
    write_dcp(place, {"__0_0.distcp": [Piece("model.w", (0,), (MIB,), (MIB,)), Piece("model.b", (0,), (8,), (8,))]})
    punched(place / "__0_0.distcp", (place / "__0_0.distcp").read_bytes(), MIB, 2 * MIB)
    shard_map = read_checkpoint(place)
    assert shard_map.status is Status.CORRUPT
    assert ("digest_mismatch", Severity.DAMAGE) in findings(shard_map)


# -- safetensors, which carry none -------------------------------------------------------------------------------------
def test_a_hole_over_most_of_the_weights_is_damage_that_names_them(tmp_path: Path) -> None:
    data, begins = safetensors({"model.a": MIB, "model.b": 2 * MIB})
    punched(tmp_path / "step-5.safetensors", data, begins["model.b"], len(data))
    shard_map = read_checkpoint(tmp_path / "step-5.safetensors")
    assert (shard_map.status, findings(shard_map)) == (Status.CORRUPT, [("sparse_hole", Severity.DAMAGE)])
    assert any("tensor 'model.b'; that is 2097152 of the 3145728 bytes" in one.detail for one in shard_map.findings)


@pytest.mark.parametrize("zeros", ["optimizer.exp_avg.a", "model.embed"])
def test_a_hole_over_what_may_be_zeros_is_a_warning_that_names_it(tmp_path: Path, zeros: str) -> None:
    data, begins = safetensors({"model.a": 2 * MIB, zeros: MIB})
    punched(tmp_path / "step-5.safetensors", data, begins[zeros], len(data))
    shard_map = read_checkpoint(tmp_path / "step-5.safetensors")
    assert (shard_map.status, findings(shard_map)) == (Status.COMPLETE, [("sparse_hole", Severity.WARNING)])
    assert any(repr(zeros) in one.detail for one in shard_map.findings)
