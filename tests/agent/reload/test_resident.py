"""Reloads that keep the bytes: the tensors in memory are those on disk, and there must be room for them."""

from __future__ import annotations

import ctypes
import gc
import itertools
import mmap
import re
import struct
from pathlib import Path

import pytest
from muster_agent.formats.detect import read_checkpoint
from muster_agent.jobs.reload import NotCold, PreparedReload, prepare
from muster_agent.jobs.seal import seal
from muster_agent.protocol.wire import ReloadParams
from muster_agent.reload import arena
from muster_agent.reload.arena import Arena
from muster_agent.reload.memory import NoRoom, available_bytes, may_have_huge_pages
from muster_agent.reload.plan import Extent

from tests.agent.checkpoint_factory import write_checkpoint
from tests.agent.reload.held import sized

DATA = Path(__file__).resolve().parents[2] / "data"


def _prepared(path: Path, **wanted: object) -> PreparedReload:
    return prepare(ReloadParams(path=str(path), shards=(), resident=True, **wanted))  # type: ignore[arg-type]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_checkpoint(tmp_path / "run", 10, world_size=3, rank_bytes=5_000_001)


def test_every_tensor_is_a_view_of_the_bytes_that_lie_on_disk(folder: Path) -> None:
    prepared = _prepared(folder)
    report = prepared.run().report
    shard_map = read_checkpoint(folder)
    assert prepared.resident is not None and shard_map.tensors
    for tensor in shard_map.tensors:
        with open(folder / tensor.shard, "rb") as file:
            file.seek(tensor.offset_bytes)
            expected = file.read(tensor.length_bytes)
        (view,) = [one for one in prepared.resident.tensors[tensor.name] if one.shard == tensor.shard]
        assert (bytes(view.data), view.dtype, view.shape) == (expected, tensor.dtype, tensor.shape)
    assert report.evidence["resident_bytes"] == sum(shard.size_bytes or 0 for shard in shard_map.shards)
    prepared.close()


def test_materializing_is_a_phase_of_its_own_and_all_of_them_add_up(folder: Path) -> None:
    assert seal(str(folder)).manifest is not None
    prepared = _prepared(folder)
    report = prepared.run().report
    prepared.close()
    assert list(report.phases) == ["resolve", "allocate", "read", "verify", "materialize"]
    assert sum(report.phases.values()) == pytest.approx(report.seconds, rel=0.01)
    assert report.verified is True
    assert report.peak_rss_bytes >= report.evidence["resident_bytes"] * 0.9


def test_tensors_inside_the_records_of_dcp_files_are_views_too() -> None:
    sample = DATA / "dcp" / "w2" / "step-10"
    prepared = _prepared(sample, evict=False)
    prepared.run()
    shard_map = read_checkpoint(sample)
    assert prepared.resident is not None
    floats = [one for one in shard_map.tensors if one.dtype == "float32" and one.length_bytes == 4 * _count(one.shape)]
    assert floats
    for tensor in floats:
        data = (sample / tensor.shard).read_bytes()[tensor.offset_bytes :][: tensor.length_bytes]
        (view,) = [one for one in prepared.resident.tensors[tensor.name] if bytes(one.data) == data][:1]
        assert len(struct.unpack(f"<{_count(view.shape)}f", view.data)) == _count(view.shape)
    prepared.close()


def _count(shape: tuple[int, ...]) -> int:
    count = 1
    for size in shape:
        count *= size
    return count


def test_the_tensors_of_a_shard_that_could_not_be_read_are_left_out(folder: Path) -> None:
    prepared = _prepared(folder)
    gone = sorted(folder.glob("*.safetensors"))[1]
    gone.unlink()
    report = prepared.run().report
    assert prepared.resident is not None
    assert {view.shard for views in prepared.resident.tensors.values() for view in views}.isdisjoint({gone.name})
    assert [found.code for found in report.findings] == ["shard_missing"]
    prepared.close()


def test_what_does_not_fit_is_refused_before_anything_is_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arena, "available_bytes", lambda: 300 << 20)
    monkeypatch.setattr(arena, "_SPARE_BYTES", 299 << 20)
    with pytest.raises(NoRoom, match=r"0\.0 GiB are available here"):
        _prepared(folder).run()


def test_this_machine_says_how_much_memory_is_left() -> None:
    known = available_bytes()
    assert known is not None and known > 1 << 20


def test_each_shard_begins_where_a_direct_read_may_end_up() -> None:
    made = Arena(sized(1, 4096, 0, 5000))
    places = [made.place(Extent(number, 0, size)) for number, size in ((0, 1), (1, 4096), (3, 5000))]
    assert [len(place) for place in places] == [4096, 4096, 8192]
    places[0][:] = b"a" * 4096
    places[1][:] = b"b" * 4096
    assert (bytes(made.shard(0)), bytes(made.shard(1)), bytes(made.shard(2))) == (b"a", b"b" * 4096, b"")
    del places
    gc.collect()
    made.close()


def test_a_read_that_must_be_cold_is_refused_where_bytes_are_cached_or_nobody_knows(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for shard in folder.iterdir():
        shard.read_bytes()
    prepared = prepare(ReloadParams(path=str(folder), shards=(), evict=False, cold_required=True))
    with pytest.raises(NotCold, match="would not be a cold read"):
        prepared.run()
    monkeypatch.setattr("muster_agent.jobs.reload.cached_ratio", lambda _paths: None)
    with pytest.raises(NotCold):
        prepared.run()
    monkeypatch.setattr("muster_agent.jobs.reload.cached_ratio", lambda _paths: 0.0)
    assert prepared.run().report.cache_state == "cold"


def test_the_memory_comes_back_when_nobody_holds_a_view(folder: Path) -> None:
    prepared = _prepared(folder)
    prepared.run()
    assert prepared._kept is not None
    before_bytes = _mapped_bytes()
    prepared.close()
    assert prepared._kept._mapping.closed
    assert (
        before_bytes - _mapped_bytes() > prepared._kept.total_bytes // 2
    )  # the rest of the process may grow meanwhile


def _mapped_bytes() -> int:
    pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[0]
    return int(pages) * mmap.PAGESIZE


def _flags_of(made: Arena) -> list[str]:
    """What the kernel holds of the arena's memory: `hg` where it shall have huge pages, `nh` where it shall not."""
    begin = ctypes.addressof(ctypes.c_char.from_buffer(made._mapping)) + made._start
    inside, flags = False, list[str]()
    for line in Path("/proc/self/smaps").read_text(encoding="ascii", errors="replace").splitlines():
        if (span := re.match(r"([0-9a-f]+)-([0-9a-f]+) ", line)) is not None:
            inside = int(span[1], 16) <= begin < int(span[2], 16)
        elif inside and line.startswith("VmFlags:"):
            flags = line.split()[1:]
    return flags


@pytest.mark.parametrize(("seconds", "expected"), [(0.0001, "hg"), (0.01, "nh")])
def test_where_huge_pages_are_dear_the_rest_of_the_arena_is_small_ones(
    monkeypatch: pytest.MonkeyPatch, seconds: float, expected: str
) -> None:
    ticks = itertools.count()
    monkeypatch.setattr(arena.time, "thread_time", lambda: next(ticks) * seconds)
    made, block = Arena(sized(64 << 20)), 4 << 20
    for number in range(9):
        made.place(Extent(0, number * block, block))
    assert expected in _flags_of(made)
    assert made.huge_pages is (expected == "hg" and may_have_huge_pages())
    gc.collect()
    made.close()


def test_a_share_takes_memory_for_its_own_bytes_alone_and_shows_only_whole_tensors(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "run", 10, world_size=1, rank_bytes=24 << 20)
    whole = read_checkpoint(folder)
    seen: set[str] = set()
    for rank in range(3):
        prepared = _prepared(folder, share=(rank, 3))
        report = prepared.run().report
        assert prepared._kept is not None and prepared.resident is not None
        assert prepared._kept.total_bytes <= report.bytes + (4 << 20)
        assert report.evidence["resident_bytes"] == report.bytes
        assert report.evidence.get("cut_tensors", 0) <= 2
        for tensor in whole.tensors:
            for view in prepared.resident.tensors.get(tensor.name, []):
                data = (folder / tensor.shard).read_bytes()[tensor.offset_bytes :][: tensor.length_bytes]
                assert bytes(view.data) == data
                seen.add(tensor.name)
        prepared.close()
    assert seen and len(seen) < len(whole.tensors), "the borders of the shares cut some tensors here"
