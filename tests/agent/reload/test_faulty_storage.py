"""Reloads from a real file system that misbehaves: every fault is named by its shard, and the others finish."""

from __future__ import annotations

import errno
import json
import os
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from muster_agent.cli.ceiling_memory import Efficiency
from muster_agent.cli.output import human_bytes
from muster_agent.cli.reload_text import render
from muster_agent.formats.root import RootUnreadable
from muster_agent.jobs import watched
from muster_agent.jobs.control import Cancelled, JobControl
from muster_agent.jobs.reload import prepare, reload
from muster_agent.jobs.seal import seal
from muster_agent.protocol.results import ReloadReport
from muster_agent.protocol.wire import ReloadParams
from muster_agent.reload import reader

from tests.agent.cancelling import PROMISED_SECONDS, seconds_to_stop
from tests.agent.checkpoint_factory import write_checkpoint
from tests.agent.nobody import let_others_in, muster_as_nobody
from tests.servers import faulty_mount
from tests.servers.faulty_mount import FaultyMount

_UNAVAILABLE = faulty_mount.why_unavailable()
pytestmark = pytest.mark.skipif(_UNAVAILABLE is not None, reason=str(_UNAVAILABLE))

RANK_BYTES = 9_000_000
SHARDS = [f"rank-{rank:05d}-of-00004.safetensors" for rank in range(4)]
BAD = SHARDS[1]
CHUNK = 4 << 20


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_checkpoint(tmp_path_factory.mktemp("original") / "run", 10, rank_bytes=RANK_BYTES)
    assert seal(str(folder)).manifest is not None
    return folder


@pytest.fixture
def mount(original: Path, tmp_path: Path) -> Iterator[FaultyMount]:
    shutil.copytree(original, tmp_path / "folder")
    with FaultyMount(tmp_path / "folder", tmp_path / "mount") as mounted:
        yield mounted


def reload_with(mount: FaultyMount, fault: dict[str, Any], **options: Any) -> ReloadReport:
    """The report of a reload whose second shard has the fault. What the others hold was read in full in any case."""
    mount.faults({BAD: fault})
    report = reload(str(mount.path), **options)
    others = sum((mount.folder / name).stat().st_size for name in SHARDS if name != BAD)
    assert report.bytes >= others
    assert {found.path for found in report.findings} <= {BAD}
    return report


def test_without_a_fault_it_is_an_ordinary_checkpoint(mount: FaultyMount) -> None:
    report = reload_with(mount, {})
    assert (report.verified, report.effective, report.evidence["file_system"]) == (True, "host_direct", "fuse")


@pytest.mark.parametrize(("code", "words"), [(errno.EIO, "Input/output error"), (errno.ESTALE, "Stale file handle")])
def test_an_error_amid_a_shard_is_unknown_and_never_damage(mount: FaultyMount, code: int, words: str) -> None:
    report = reload_with(mount, {"read_errno": code, "from_byte": CHUNK})
    (found,) = report.findings
    assert (report.verified, found.code, found.path) == (None, "listing_failed", BAD)
    assert words in found.detail and found.cure


def test_a_shard_that_may_not_be_opened_is_its_own_finding(mount: FaultyMount) -> None:
    report = reload_with(mount, {"open_errno": errno.EACCES})
    assert [(found.code, found.path) for found in report.findings] == [("permission_denied", BAD)]
    assert report.verified is None


def test_a_shard_that_shrinks_while_it_is_read_says_where_it_ended(mount: FaultyMount) -> None:
    report = reload_with(mount, {"truncate_to": 2 * CHUNK - 1000, "from_byte": CHUNK + 1})
    assert [found.code for found in report.findings] == ["shard_truncated"]
    assert str(2 * CHUNK - 1000) in report.findings[0].detail


def test_a_shard_that_grows_while_it_is_read_is_not_called_sound_for_good(mount: FaultyMount) -> None:
    mount.faults({BAD: {"grow_by": 5000, "from_byte": CHUNK + 1}})
    body = prepare(ReloadParams(path=str(mount.path), shards=())).run()
    mount.faults({})
    after = reload(str(mount.path))
    assert [(found.code, found.path) for found in after.findings] == [("shard_oversized", BAD)]
    assert after.verified is not True
    assert body.report.bytes >= 3 * RANK_BYTES, "what was sealed of it was read"


def test_a_shard_that_vanishes_while_it_is_read_is_missing_or_was_read_before(mount: FaultyMount) -> None:
    report = reload_with(mount, {"unlink": True, "from_byte": CHUNK + 1})
    assert report.verified is not True
    assert {found.code for found in report.findings} <= {"shard_missing", "listing_failed"} and report.findings


def test_short_counts_are_read_on_until_the_end(mount: FaultyMount) -> None:
    report = reload_with(mount, {"short": 300_000})
    assert (report.verified, report.findings) == (True, ())


def test_a_mount_that_refuses_direct_reads_is_read_through_the_cache_and_says_so(mount: FaultyMount) -> None:
    mount.fault(any_file={"refuse_direct": True})
    report = reload(str(mount.path))
    assert (report.verified, report.effective) == (True, "host_buffered")
    assert "refuses O_DIRECT" in report.reason
    assert report.evidence["direct_bytes"] == 0


def test_a_read_that_hangs_ends_with_the_block_limit_and_the_others_finish(
    mount: FaultyMount, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "BLOCK_SECONDS", 0.5)
    report = reload_with(mount, {"hang": True, "from_byte": CHUNK})
    assert report.verified is None
    assert [(found.code, found.path) for found in report.findings] == [("listing_failed", BAD)]
    assert "did not answer" in report.findings[0].detail


def test_cancelling_while_the_storage_hangs_takes_no_more_than_a_second(mount: FaultyMount) -> None:
    mount.fault(any_file={"hang": True, "from_byte": CHUNK})
    prepared = prepare(ReloadParams(path=str(mount.path), shards=()))
    assert seconds_to_stop(prepared.run, cancel_after_seconds=0.5) <= PROMISED_SECONDS


def test_other_bytes_name_the_shard_the_range_and_the_tensors(mount: FaultyMount) -> None:
    shard = mount.folder / BAD
    before = shard.stat()
    data = bytearray(shard.read_bytes())
    data[CHUNK + 77] ^= 1
    shard.write_bytes(data)
    os.utime(shard, ns=(before.st_atime_ns, before.st_mtime_ns))
    report = reload_with(mount, {})
    (found,) = report.findings
    assert (report.verified, found.code, found.path) == (False, "digest_mismatch", BAD)
    assert (found.begin_byte, found.end_byte) == (CHUNK, 2 * CHUNK) and "tensor" in found.detail


def test_the_report_says_what_was_not_read(mount: FaultyMount) -> None:
    report = reload_with(mount, {"read_errno": errno.EIO, "from_byte": CHUNK})
    size = (mount.folder / BAD).stat().st_size
    (one,) = report.evidence["unread"]["not_read"]
    lacking_bytes = report.evidence["unread"]["planned_bytes"] - report.bytes
    assert one == {"path": BAD, "bytes": size, "read_bytes": size - lacking_bytes}
    shown = render(report, str(mount.path), Efficiency(ceiling=None, ratio=None))
    assert f"unread   {human_bytes(report.bytes)} of " in shown and f"not read: {BAD} (" in shown


def test_a_look_at_metadata_that_hangs_can_be_left_at_once_and_is_given_up(
    mount: FaultyMount, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every rank file's header is looked into before anything is read."""
    mount.faults({BAD: {"hang": True}})
    control = JobControl()
    threading.Timer(0.5, control.cancel).start()
    began = time.monotonic()
    with pytest.raises(Cancelled):
        seal(str(mount.path), control=control, write_beside=False)
    assert time.monotonic() - began < 5
    monkeypatch.setattr(watched, "METADATA_SECONDS", 0.3)
    with pytest.raises(RootUnreadable, match="did not answer while its metadata was read"):
        reload(str(mount.path))


@pytest.mark.parametrize("command", ["reload", "verify"])
def test_a_user_who_may_not_read_a_shard_gets_that_as_a_finding_and_the_others_read(
    tmp_path: Path, command: str
) -> None:
    folder = write_checkpoint(tmp_path / "run", 10, rank_bytes=600_000)
    assert seal(str(folder)).manifest is not None
    (folder / BAD).chmod(0o600)
    let_others_in(folder)
    done = muster_as_nobody(command, folder, "--json", "--no-write")
    told = json.loads(done.stdout)
    assert done.returncode == 1 and told["verified"] is None
    assert [(one["code"], one["path"]) for one in told["findings"]] == [("permission_denied", BAD)]
    read_bytes = told["bytes"] if command == "reload" else told["checked_bytes"]
    sizes = {path.name: path.stat().st_size for path in folder.iterdir() if not path.name.startswith(".")}
    assert read_bytes == sum(sizes.values()) - sizes[BAD]
    assert "Run as a user who may read it" in done.stderr
