"""Damage inside data files of the right size whose records begin as they should."""

from __future__ import annotations

from pathlib import Path

import pytest
from muster_agent.formats.base import Finding, Severity, Status
from muster_agent.formats.dcp_metadata import parse_plan
from muster_agent.formats.dcp_values import Stored
from muster_agent.formats.detect import read_checkpoint
from muster_agent.formats.own_checks import zip_sums
from muster_agent.formats.posix_file import PosixFile
from muster_agent.formats.walk import inventory
from muster_agent.jobs.own_sums import check_own_sums
from muster_agent.jobs.seal import seal

from tests.agent.formats.damage import age, copy_sample

SAVES = (
    "dcp/torchtitan/step-5",
    "dcp/w2/step-10",
    "megatron/torch_dist/iter_0000100",
    "huggingface/accelerate-fsdp2/checkpoint-12",
)


def records_of(metadata: Path) -> list[Stored]:
    """In the order of the files and of their bytes."""
    return sorted(parse_plan(metadata.read_bytes()).records, key=lambda one: (one.file, one.offset))


def zero(path: Path, begin: int, end: int, root: Path) -> None:
    data = bytearray(path.read_bytes())
    data[begin:end] = bytes(end - begin)
    path.write_bytes(data)
    age(root)


def damaged(findings: tuple[Finding, ...]) -> set[str]:
    return {found.path for found in findings if found.severity is Severity.DAMAGE}


@pytest.mark.parametrize("name", SAVES)
@pytest.mark.parametrize("lost_bytes", [12, 22, 100, 600])
def test_a_lost_end_of_a_data_file_shows_in_a_scan(name: str, lost_bytes: int, tmp_path: Path) -> None:
    folder = copy_sample(name, tmp_path)
    for metadata in sorted(folder.rglob(".metadata")):
        last = records_of(metadata)[-1]
        path = metadata.parent / last.file
        zero(path, path.stat().st_size - lost_bytes, path.stat().st_size, folder)
        (found,) = inventory(tmp_path).checkpoints
        assert found.status is Status.CORRUPT
        assert str(path.relative_to(folder)) in damaged(found.findings)
        assert all(one.end_byte == path.stat().st_size for one in found.findings if one.path == path.name)


@pytest.mark.parametrize("name", SAVES)
def test_a_lost_end_of_any_record_is_never_sealed(name: str, tmp_path: Path) -> None:
    folder = copy_sample(name, tmp_path)
    metadata = sorted(folder.rglob(".metadata"))[0]
    records = [one for one in records_of(metadata) if one.length]
    middle = records[len(records) // 3]
    path = metadata.parent / middle.file
    zero(path, middle.offset + middle.length - 60, middle.offset + middle.length, folder)
    sealed = seal(str(folder))
    assert sealed.manifest is None
    place = [(one.begin_byte, one.end_byte) for one in sealed.findings if one.path == str(path.relative_to(folder))]
    assert (middle.offset, middle.offset + middle.length) in place


def test_a_check_without_a_seal_names_a_record_that_lost_its_end(tmp_path: Path) -> None:
    folder = copy_sample("dcp/torchtitan/step-5", tmp_path)
    path = folder / "__1_0.distcp"
    sound = check_own_sums(str(folder))
    zero(path, path.stat().st_size - 100, path.stat().st_size, folder)
    own = check_own_sums(str(folder))
    assert damaged(own.findings) == {path.name}
    assert sound.checked_bytes - 2000 < own.checked_bytes < sound.checked_bytes


def test_a_directory_that_says_otherwise_than_its_record_is_damage(tmp_path: Path) -> None:
    folder = copy_sample("dcp/w2/step-10", tmp_path)
    record = records_of(folder / ".metadata")[0]
    end = record.offset + record.length
    zero(folder / record.file, end - 200, end - 100, folder)
    assert read_checkpoint(folder).status is Status.CORRUPT


def test_the_sums_before_a_broken_record_are_still_compared(tmp_path: Path) -> None:
    folder = copy_sample("dcp/w2/step-10", tmp_path)
    records = [one for one in records_of(folder / ".metadata") if one.file == "__0_0.distcp"]
    path = folder / "__0_0.distcp"
    with PosixFile(str(path)) as opened:
        sound = {one.begin for one in zip_sums(opened)}
    broken = records[-2]
    begin, end = broken.offset, broken.offset + broken.length
    zero(path, end - 60, end, folder)
    with PosixFile(str(path)) as opened:
        assert {one.begin for one in zip_sums(opened)} == {at for at in sound if not begin <= at < end}


def test_a_hole_over_the_end_of_a_record_in_the_middle_shows_in_a_scan(tmp_path: Path) -> None:
    folder = copy_sample("dcp/torchtitan/step-5", tmp_path)
    path = folder / "__1_0.distcp"
    data = path.read_bytes()
    with path.open("wb") as file:
        file.write(data[:4096])
        file.seek(12288)
        file.write(data[12288:])
    with PosixFile(str(path)) as opened:
        if opened.hole() is None:
            pytest.skip("this file system keeps no holes")
    age(folder)
    (found,) = inventory(tmp_path).checkpoints
    assert found.status is Status.CORRUPT
    assert {"sparse_hole", "metadata_unreadable"} <= {one.code for one in found.findings}
