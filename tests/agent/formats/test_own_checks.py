from __future__ import annotations

import hashlib
import random
from pathlib import Path

import pytest
from muster_agent.formats.detect import absolute_path, read_checkpoint
from muster_agent.formats.folder import POSIX, look
from muster_agent.formats.ocdbt_sums import recorded_sums as ocdbt_sums
from muster_agent.formats.own_checks import (
    RecordedSum,
    SumChecker,
    check_file,
    crc_findings,
    recorded_sums,
    zip_sums,
)
from muster_agent.formats.torch_archive import load, tensor_ranges

from tests.agent.formats.damage import DATA, copy_sample
from tests.agent.torch_factory import Tensor, torch_legacy, torch_zip

STATE = {"model": {"w": Tensor("0", (64, 64)), "b": Tensor("1", (64,))}, "step": 7}


def placed(place: Path, data: bytes) -> list[str]:
    (place / "x.pt").write_bytes(data)
    return [found.detail for found in crc_findings(look(str(place), str(place)), "x.pt")]


@pytest.mark.parametrize("name", ["zip.pt", "custom-class.pt", "torchscript.pt", "legacy.pt"])
def test_real_files_agree_with_their_own_sums(name: str) -> None:
    assert crc_findings(look(str(DATA / "torch"), str(DATA)), name) == []


@pytest.mark.parametrize("sample", ["dcp/w2/step-10", "dcp/w4-file-per-tensor/step-30", "dcp/torchtitan/step-15"])
def test_every_record_of_real_dcp_files_has_a_sum_that_agrees(sample: str) -> None:
    for path in sorted((DATA / sample).glob("*.distcp")):
        with POSIX.open(str(path)) as opened:
            sums = zip_sums(opened)
            assert sum(one.what.endswith("/data.pkl'") for one in sums) == path.read_bytes().count(b"PK\x05\x06")
            assert check_file(opened, path.name, sums) == []


def test_a_changed_tensor_is_named_with_its_bytes(tmp_path: Path) -> None:
    data = bytearray(torch_zip(STATE))
    (tmp_path / "x.pt").write_bytes(data)
    folder = look(str(tmp_path), str(tmp_path))
    bias = next(tensor for tensor in tensor_ranges(load(folder, "x.pt"), "x.pt") if tensor.name == "model.b")
    data[bias.offset_bytes + 9] ^= 0x10
    (tmp_path / "x.pt").write_bytes(data)
    assert load(folder, "x.pt").findings == ()
    (found,) = crc_findings(folder, "x.pt")
    assert (found.code, found.begin_byte, found.end_byte) == (
        "digest_mismatch",
        bias.offset_bytes,
        bias.offset_bytes + bias.length_bytes,
    )
    assert "archive/data/1" in found.detail


def test_a_zeroed_member_is_found(tmp_path: Path) -> None:
    data = torch_zip(STATE)
    begin = data.index(b"archive/data/0") + 100
    assert len(placed(tmp_path, data[:begin] + bytes(8000) + data[begin + 8000 :])) == 1


def test_sums_that_were_not_recorded_find_nothing(tmp_path: Path) -> None:
    data = bytearray(torch_zip(STATE, with_crc=False))
    data[2000] ^= 1
    assert placed(tmp_path, bytes(data)) == []


def test_files_without_sums_find_nothing(tmp_path: Path) -> None:
    assert placed(tmp_path, torch_legacy(STATE)) == []
    assert placed(tmp_path, b"") == []
    assert placed(tmp_path, b"text" * 100) == []


def test_sums_are_compared_whatever_the_pieces_are() -> None:
    data = random.Random(3).randbytes(10_000)
    sums = [
        RecordedSum(begin, end, "sha256", hashlib.sha256(data[begin:end]).hexdigest(), f"{begin}")
        for begin, end in [(0, 10_000), (5, 6), (100, 5000), (4000, 4100), (9_999, 10_000)]
    ]
    wrong = RecordedSum(7, 9, "sha256", "0" * 64, "wrong")
    for size in (1, 7, 1000, 10_000):
        checker = SumChecker("x", [wrong, *sums])
        for at in range(0, len(data), size):
            checker.update(memoryview(data)[at : at + size])
        assert [found.begin_byte for found in checker.findings] == [7]
        assert checker.checked_bytes == 10_000 + 1 + 4900 + 100 + 1 + 2


# -- OCDBT -------------------------------------------------------------------------------------------------------------
def sums_of(place: Path) -> dict[str, list[RecordedSum]]:
    shard_map = read_checkpoint(place)
    return recorded_sums(shard_map, lambda path: POSIX.open(absolute_path(shard_map, path)))


def differences(place: Path) -> list[tuple[str, str]]:
    found = []
    for path, sums in sums_of(place).items():
        with POSIX.open(str(place / path)) as opened:
            found += [(one.code, one.path) for one in check_file(opened, path, sums)]
    return found


@pytest.mark.parametrize("sample", ["manager-ocdbt/300", "manager-padded/ckpt_00000007", "standalone/final"])
def test_the_sums_of_real_ocdbt_trees_agree(sample: str, tmp_path: Path) -> None:
    place = copy_sample(f"orbax/{sample}", tmp_path)
    sums = [one for listed in sums_of(place).values() for one in listed if one.algorithm == "crc32c"]
    assert {one.what.split(" at ")[0] for one in sums} == {"the manifest", "the tree node"}
    assert differences(place) == []


def test_every_flipped_byte_of_an_ocdbt_tree_differs_from_its_sum(tmp_path: Path) -> None:
    place = copy_sample("orbax/standalone/final", tmp_path)
    sums = sums_of(place)
    for path, listed in sums.items():
        sound = (place / path).read_bytes()
        for one in listed:
            for at in (one.begin + 12, (one.begin + one.end) // 2, one.end - 1):
                (place / path).write_bytes(sound[:at] + bytes([sound[at] ^ 1]) + sound[at + 1 :])
                with POSIX.open(str(place / path)) as opened:
                    assert [found.code for found in check_file(opened, path, listed)] == ["digest_mismatch"]
        (place / path).write_bytes(sound)


def test_the_trees_of_single_processes_are_not_held_against_a_seal(tmp_path: Path) -> None:
    place = copy_sample("orbax/standalone/final", tmp_path)
    assert any(path.name == "manifest.ocdbt" for path in place.glob("ocdbt.process_*/*"))
    of_processes = {path for path, listed in sums_of(place).items() if listed and path.endswith("/manifest.ocdbt")}
    assert of_processes == set()


def test_a_damaged_ocdbt_manifest_names_no_further_sums(tmp_path: Path) -> None:
    place = copy_sample("orbax/standalone/final", tmp_path)
    shard_map = read_checkpoint(place)
    (place / "manifest.ocdbt").write_bytes(bytes(40))
    opened = ocdbt_sums(shard_map, lambda path: POSIX.open(str(place / path)))
    assert set(opened) <= {"manifest.ocdbt"}
