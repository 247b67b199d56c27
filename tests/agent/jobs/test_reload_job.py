"""Reloads of real files: what they report, and what they say when the files are not what they were."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import msgspec
import pytest
from muster_agent.formats.detect import files_of, read_checkpoint
from muster_agent.formats.fingerprint import fingerprint
from muster_agent.jobs import reload_facts, transports
from muster_agent.jobs.checkpoint_place import CheckpointNotFound, PosixPlace, place_at
from muster_agent.jobs.reload import prepare, reload
from muster_agent.jobs.seal import seal
from muster_agent.jobs.selection import ShardsNotFound, select
from muster_agent.probes.filesystem import FileSystem, read_file_system
from muster_agent.probes.gds import GdsProbe
from muster_agent.protocol.wire import ReloadParams

from tests.agent.cancelling import PROMISED_SECONDS, seconds_to_stop
from tests.agent.checkpoint_factory import write_checkpoint
from tests.agent.formats.damage import copy_sample

RANK_BYTES = 9_000_000
SHARDS = [f"rank-{rank:05d}-of-00004.safetensors" for rank in range(4)]


@pytest.fixture
def sealed(tmp_path: Path) -> Path:
    folder = write_checkpoint(tmp_path / "run", 10, rank_bytes=RANK_BYTES)
    assert seal(str(folder)).manifest is not None
    return folder


def opens_per_shard(run: Path, shards: int, monkeypatch: pytest.MonkeyPatch) -> float:
    folder = write_checkpoint(run, shards, world_size=shards, rank_bytes=600)
    assert seal(str(folder)).manifest is not None
    opened, real = [], os.open
    with monkeypatch.context() as patched:
        patched.setattr(os, "open", lambda path, *more, **named: opened.append(path) or real(path, *more, **named))
        assert reload(str(folder)).verified is True
    return len(opened) / shards


def test_what_a_small_shard_costs_does_not_grow_with_their_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Evicted, measured, looked into (twice, each after it was brought near) and read: seven times opened."""
    few, many = (opens_per_shard(tmp_path / str(shards), shards, monkeypatch) for shards in (40, 400))
    assert many <= few <= 9


def test_a_sealed_reload_does_not_look_into_every_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its digests tell more than the records' heads, and a restart opens the metadata alone to find its shards."""
    folder = copy_sample("dcp/w2/step-10", tmp_path)
    assert seal(str(folder)).manifest is not None
    looks: list[bool] = []
    real = PosixPlace.read
    monkeypatch.setattr(
        PosixPlace,
        "read",
        lambda place, *, with_tensors=True: looks.append(with_tensors) or real(place, with_tensors=with_tensors),
    )
    assert reload(str(folder)).verified is True
    assert looks == [False, False]
    looks.clear()
    (folder / ".muster-manifest.json").unlink()
    assert reload(str(folder)).verified is None
    assert looks == [True, False], "without a seal the format's own signs of damage are looked for, before the clock"


def total_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir() if not path.name.startswith("."))


def flip(shard: Path, position: int, *, keep_time: bool = True) -> None:
    before = shard.stat()
    data = bytearray(shard.read_bytes())
    data[position] ^= 1
    shard.write_bytes(data)
    if keep_time:
        os.utime(shard, ns=(before.st_atime_ns, before.st_mtime_ns))


def has_evictable_cache(folder: Path) -> bool:
    file_system = read_file_system(str(folder))
    return file_system.uses_page_cache and file_system.name != "tmpfs"


def test_a_sound_checkpoint_is_read_whole_and_verified(sealed: Path) -> None:
    report = reload(str(sealed))
    assert (report.verified, report.findings) == (True, ())
    assert report.bytes == total_bytes(sealed)
    assert report.bytes_per_second == pytest.approx(report.bytes / report.seconds)
    assert report.requested == "auto" and report.effective in ("host_direct", "host_buffered")
    assert report.reason and report.cpu_seconds > 0
    assert report.evidence["direct_bytes"] + report.evidence["buffered_bytes"] == report.bytes


def test_the_phases_add_up_to_the_wall_time_and_the_rest_is_absent(sealed: Path) -> None:
    report = reload(str(sealed))
    assert list(report.phases) == ["resolve", "allocate", "read", "verify"]
    assert sum(report.phases.values()) == pytest.approx(report.seconds, rel=0.01)
    assert all(seconds >= 0 for seconds in report.phases.values())
    assert report.busy["read"] > 0 and report.busy["verify"] > 0


def test_the_cache_is_evicted_and_the_share_is_measured_before_the_first_read(sealed: Path) -> None:
    if not has_evictable_cache(sealed):
        pytest.skip("the folder for temporary files has no page cache that can be evicted")
    for shard in SHARDS:
        (sealed / shard).read_bytes()
    warm = reload(str(sealed), evict=False)
    assert (warm.cache_state, warm.cached_ratio_before, warm.effective) == ("warm", 1.0, "host_buffered")
    cold = reload(str(sealed))
    assert (cold.cache_state, cold.cached_ratio_before) == ("cold", 0.0)


def test_a_cache_that_cannot_be_asked_is_unknown(sealed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from muster_agent.probes import page_cache

    monkeypatch.setattr(page_cache, "read_file_system", lambda _path: FileSystem("fuse", False, True))
    report = reload(str(sealed))
    assert (report.cache_state, report.cached_ratio_before) == ("unknown", None)
    assert report.verified is True


def test_a_server_behind_the_mount_is_never_called_cold(sealed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reload_facts, "read_file_system", lambda _path: FileSystem("nfs", True, True))
    assert reload(str(sealed)).evidence["server_cache"] == "unknown"


def test_without_a_manifest_nothing_is_claimed_and_nothing_is_hashed(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "run", 10)
    report = reload(str(folder))
    assert report.verified is None and report.findings == ()
    assert "verify" not in report.phases and "verify" not in report.busy
    assert sum(report.phases.values()) == pytest.approx(report.seconds, rel=0.01)


def test_a_manifest_that_is_damaged_is_a_finding_and_the_reload_goes_on(sealed: Path) -> None:
    (sealed / ".muster-manifest.json").write_bytes(b"{}")
    report = reload(str(sealed))
    assert report.verified is None and report.bytes == total_bytes(sealed)
    assert [found.code for found in report.findings] == ["metadata_unreadable"]


def test_damage_is_named_to_the_end(sealed: Path) -> None:
    flip(sealed / SHARDS[0], 5_000)
    os.truncate(sealed / SHARDS[1], 1_000_000)
    (sealed / SHARDS[2]).unlink()
    with open(sealed / SHARDS[3], "ab") as file:
        file.write(b"more")
    report = reload(str(sealed))
    assert report.verified is False
    found = {f.path: f for f in report.findings}
    assert {path: f.code for path, f in found.items()} == {
        SHARDS[0]: "digest_mismatch",
        SHARDS[1]: "shard_truncated",
        SHARDS[2]: "shard_missing",
        SHARDS[3]: "shard_oversized",
    }
    assert (found[SHARDS[0]].begin_byte, found[SHARDS[0]].tensor) == (0, "model.layer0.weight")


def test_other_bytes_in_a_file_that_was_written_again_are_no_damage(sealed: Path) -> None:
    flip(sealed / SHARDS[0], 5_000, keep_time=False)
    report = reload(str(sealed))
    assert report.verified is None
    (found,) = report.findings
    assert (found.code, found.severity, found.path) == ("changed_since_sealing", "warning", SHARDS[0])
    assert "seal again" in found.cure


def test_a_rank_tells_a_cut_file_from_a_new_save_by_files_that_it_does_not_read(sealed: Path) -> None:
    os.truncate(sealed / SHARDS[1], 1_000_000)
    assert reload(str(sealed), shards=[SHARDS[1]]).verified is False
    for name in SHARDS:
        os.utime(sealed / name)
    report = reload(str(sealed), shards=[SHARDS[1]])
    assert report.verified is None and [found.code for found in report.findings] == ["changed_since_sealing"]


def test_a_rank_reads_only_its_own_shards(sealed: Path) -> None:
    flip(sealed / SHARDS[0], 5_000)
    body = prepare(ReloadParams(path=str(sealed), shards=(SHARDS[2],))).run()
    assert body.report.verified is True
    assert body.report.bytes == (sealed / SHARDS[2]).stat().st_size
    status = (sealed / SHARDS[2]).stat()
    assert body.fingerprint == fingerprint([(SHARDS[2], status.st_size, status.st_mtime_ns)])
    by_rank = prepare(ReloadParams(path=str(sealed), shards=(), ranks=(1, 2))).run()
    assert by_rank.report.verified is True
    common = (sealed / "checkpoint.json").stat().st_size
    assert by_rank.report.bytes == common + sum((sealed / SHARDS[rank]).stat().st_size for rank in (1, 2))


def test_a_rank_reads_the_model_that_no_rank_owns_too(tmp_path: Path) -> None:
    folder = copy_sample("huggingface/trainer-ddp2", tmp_path) / "checkpoint-9"
    wanted = select(place_at(str(folder), None), (), (1,)).shards
    assert {"model.safetensors", "optimizer.pt", "rng_state_1.pth"} <= set(wanted)
    assert "rng_state_0.pth" not in wanted


def test_the_fingerprint_of_a_whole_reload_is_that_of_the_checkpoint(sealed: Path) -> None:
    body = prepare(ReloadParams(path=str(sealed), shards=())).run()
    assert body.fingerprint == fingerprint(files_of(read_checkpoint(str(sealed))))


def test_a_rank_that_is_not_there_says_which_are(sealed: Path) -> None:
    with pytest.raises(ShardsNotFound, match="it has ranks 0 to 3"):
        prepare(ReloadParams(path=str(sealed), shards=(), ranks=(9,)))


def test_a_shard_beyond_the_seal_leaves_the_verdict_open(sealed: Path) -> None:
    (sealed / "extra.bin").write_bytes(b"x" * 5000)
    report = reload(str(sealed), shards=[SHARDS[0], "extra.bin"])
    assert report.verified is None
    assert report.bytes == (sealed / SHARDS[0]).stat().st_size + 5000


@pytest.mark.parametrize("name", ["../outside", "/etc/passwd"])
def test_a_shard_outside_the_checkpoint_is_not_read(sealed: Path, name: str) -> None:
    (sealed.parent / "outside").write_bytes(b"secret")
    report = reload(str(sealed), shards=[name])
    assert report.bytes == 0 and report.verified is not True
    assert report.findings[0].code == "path_unsafe"


def test_preparing_does_not_start_the_clock_and_running_does(sealed: Path) -> None:
    ready = prepare(ReloadParams(path=str(sealed), shards=tuple(SHARDS)))
    time.sleep(0.3)
    before = time.time()
    body = ready.run()
    assert body.started_unix_seconds >= before
    assert body.report.seconds <= time.time() - before


def test_the_rate_cap_is_honoured(sealed: Path) -> None:
    size = total_bytes(sealed)
    report = reload(str(sealed), max_bytes_per_second=size * 2)
    assert report.verified is True
    assert report.seconds >= 0.49
    assert report.bytes_per_second <= size * 2 * 1.02


def test_cancelling_stops_the_reload_and_its_threads(sealed: Path) -> None:
    prepared = prepare(ReloadParams(path=str(sealed), shards=(), max_bytes_per_second=1_000_000))
    assert seconds_to_stop(prepared.run) <= PROMISED_SECONDS
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("muster-read")]


@pytest.mark.parametrize("with_manifest", [True, False])
@pytest.mark.parametrize("change", ["vanish", "shrink"])
def test_a_file_that_changes_under_the_reader_is_a_finding(
    sealed: Path, monkeypatch: pytest.MonkeyPatch, change: str, with_manifest: bool
) -> None:
    if not with_manifest:
        (sealed / ".muster-manifest.json").unlink()
    real = transports.PosixShard

    def open_late(location: str, *, direct: bool) -> object:
        if location.endswith(SHARDS[1]):
            (os.unlink if change == "vanish" else lambda path: os.truncate(path, 4_500_000))(location)
        return real(location, direct=direct)

    monkeypatch.setattr(transports, "PosixShard", open_late)
    report = reload(str(sealed))
    assert report.verified is (False if with_manifest else None)
    expected = "shard_missing" if change == "vanish" else "shard_truncated"
    assert (expected, SHARDS[1]) in [(found.code, found.path) for found in report.findings]


def test_a_storage_error_is_unknown_and_not_damage(sealed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from muster_agent.storage.posix import PosixShard

    def fail(self: PosixShard, *_arguments: object) -> int:
        raise OSError(116, "Stale file handle")

    monkeypatch.setattr(PosixShard, "read_into", fail)
    report = reload(str(sealed))
    assert report.verified is None and report.bytes == 0
    assert {found.code for found in report.findings} == {"listing_failed"}


def test_gds_that_is_not_there_is_reported_with_its_reason(sealed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    probe = GdsProbe(usable=False, reason="cuFile did not open within 20 s")
    monkeypatch.setattr(reload_facts, "read_gds", lambda _path, _index: probe)
    report = reload(str(sealed), backend="gds")
    assert report.requested == "gds" and report.effective in ("host_direct", "host_buffered")
    assert "did not open within 20 s" in report.reason
    assert report.evidence["gds"]["reason"] == probe.reason
    assert report.verified is True


def test_a_usable_probe_whose_driver_then_fails_falls_back(sealed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if os.path.exists("/dev/nvidiactl"):
        pytest.skip("this machine has an NVIDIA driver")
    monkeypatch.setattr(reload_facts, "read_gds", lambda _path, _index: GdsProbe(usable=True, reason="ok"))
    report = reload(str(sealed), backend="gds")
    assert report.effective in ("host_direct", "host_buffered") and "cuFile did not open" in report.reason
    assert report.verified is True


@pytest.mark.parametrize("backend", ["host", "host_direct", "host_buffered"])
def test_each_host_backend_reads_the_same_bytes(sealed: Path, backend: str) -> None:
    report = reload(str(sealed), backend=backend)
    assert report.verified is True
    if backend != "host":
        assert report.effective == backend or "refuses" in report.reason


def test_an_unknown_backend_is_refused_before_anything_is_read(sealed: Path) -> None:
    with pytest.raises(ValueError, match="host_direct"):
        reload(str(sealed), backend="warp")


def test_a_manifest_from_outside_is_checked_before_it_is_believed(sealed: Path) -> None:
    manifest = seal(str(sealed)).manifest
    assert manifest is not None
    report = reload(str(sealed), manifest=msgspec.structs.replace(manifest, root_xxh3_128="0" * 32))
    assert report.verified is None
    assert "root digest" in report.findings[0].detail


def test_nothing_at_the_path_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(CheckpointNotFound):
        reload(str(tmp_path / "gone"))


def test_the_extra_memory_is_the_ring_and_not_the_checkpoint(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "run", 10, rank_bytes=60_000_000)
    assert seal(str(folder)).manifest is not None
    report = reload(str(folder))
    assert report.bytes > 200_000_000
    assert report.peak_rss_bytes < 128 * 1024 * 1024


def test_without_a_seal_the_damage_that_the_metadata_shows_is_reported(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "run", 10)
    os.truncate(folder / SHARDS[1], 1_000)
    (folder / SHARDS[2]).unlink()
    report = reload(str(folder))
    assert report.verified is None
    assert ("shard_truncated", SHARDS[1]) in [(f.code, f.path) for f in report.findings]
    assert [f.path for f in report.findings if f.code == "shard_missing"] == [SHARDS[2]]


def test_a_folder_that_is_no_checkpoint_is_refused_with_what_was_seen(tmp_path: Path) -> None:
    with pytest.raises(ShardsNotFound, match="can be read as a checkpoint"):
        reload(str(tmp_path))
