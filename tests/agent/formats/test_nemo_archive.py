"""`.nemo` files: whole tars, cut ones, and any bytes."""

from __future__ import annotations

import gzip
import io
import tarfile
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from muster_agent.formats.base import ShardMap, Status
from muster_agent.formats.detect import read_checkpoint

from tests.agent.formats.damage import age
from tests.agent.formats.fuzz import examples


def archive(weights: bytes = b"w" * 3000, kind: int = tarfile.GNU_FORMAT) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=kind) as tar:
        for name, data in (("./model_config.yaml", b"a: 1\n"), ("./model_weights.ckpt", weights)):
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
        folder = tarfile.TarInfo("./artifacts")
        folder.type = tarfile.DIRTYPE
        tar.addfile(folder)
    return out.getvalue()


def judge(place: Path, data: bytes) -> ShardMap:
    path = place / "model.nemo"
    path.write_bytes(data)
    age(place)
    return read_checkpoint(path, grace_seconds=0)


def codes(shard_map: ShardMap) -> set[str]:
    return {found.code for found in shard_map.findings}


@pytest.mark.parametrize("kind", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT, tarfile.USTAR_FORMAT])
def test_a_finished_model_is_complete_and_no_resume_point(tmp_path: Path, kind: int) -> None:
    found = judge(tmp_path, archive(kind=kind))
    assert (found.format, found.status, found.resumable) == ("nemo", Status.COMPLETE, False)
    assert codes(found) == {"optimizer_missing"}


@pytest.mark.parametrize("cut", [1, 511, 512, 700, 1024, 1600, 4000])
def test_a_cut_archive_is_corrupt(tmp_path: Path, cut: int) -> None:
    found = judge(tmp_path, archive()[:cut])
    assert (found.status, codes(found)) == (Status.CORRUPT, {"shard_truncated"})


def test_an_empty_one_and_foreign_bytes_are_corrupt(tmp_path: Path) -> None:
    assert codes(judge(tmp_path, b"")) == {"shard_empty"}
    assert codes(judge(tmp_path, b"x" * 2000)) == {"metadata_unreadable"}
    assert codes(judge(tmp_path, bytes(2048))) == {"metadata_unreadable"}


def test_nothing_is_concluded_about_a_compressed_one(tmp_path: Path) -> None:
    assert judge(tmp_path, gzip.compress(archive())).status is Status.UNKNOWN


@settings(max_examples=examples(200), deadline=5_000)
@given(st.lists(st.tuples(st.integers(0, 1500), st.integers(0, 255)), min_size=1, max_size=4))
def test_an_archive_with_flipped_bytes_is_judged(changes: list[tuple[int, int]]) -> None:
    data = bytearray(archive())
    for place, byte in changes:
        data[place] = byte
    with tempfile.TemporaryDirectory() as place:
        found = judge(Path(place), bytes(data))
    assert not any("reader failed" in one.detail for one in found.findings)
