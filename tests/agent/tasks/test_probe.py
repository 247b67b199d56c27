"""What a node says of itself when it is to take over."""

from __future__ import annotations

from pathlib import Path

from muster_agent import __version__
from muster_agent.jobs.control import JobControl
from muster_agent.probes.gpu_count import read_gpu_count
from muster_agent.protocol.probe import ProbeBody, ProbeParams
from muster_agent.tasks.context import TaskContext
from muster_agent.tasks.limits import Limits
from muster_agent.tasks.probe import prepare
from muster_agent.tasks.roots import Roots

from tests.agent.tasks.test_disrupt import Reported


def probe(*roots: str) -> ProbeBody:
    context = TaskContext(
        roots=Roots(roots),
        copy_roots=Roots([]),
        limits=Limits(),
        control=JobControl(),
        reporter=Reported(),
        clock_offset_seconds=lambda: 0.0,
        hook_directory=None,
    )
    body = prepare(ProbeParams(), context)()
    assert isinstance(body, ProbeBody)
    return body


def test_each_root_says_what_lies_there_now_and_how_much_is_free(tmp_path: Path) -> None:
    body = probe(str(tmp_path), "s3://bucket/ckpt")
    disk, bucket = body.mounts
    assert (disk.root, disk.problem) == (str(tmp_path), "")
    assert disk.file_system not in ("", "unknown")
    assert disk.total_bytes is not None
    assert disk.free_bytes is not None
    assert 0 < disk.free_bytes <= disk.total_bytes
    assert (bucket.file_system, bucket.free_bytes) == ("s3", None)
    assert body.agent_version == __version__


def test_a_root_that_is_gone_is_a_problem_and_no_crash(tmp_path: Path) -> None:
    gone = tmp_path / "nvme"
    gone.mkdir()
    roots = str(gone)
    gone.rmdir()
    [mount] = probe(roots).mounts
    assert mount.problem == f"{gone} cannot be listed: No such file or directory"


def test_gpus_are_counted_without_loading_cuda(tmp_path: Path) -> None:
    for bus in ("0000:07:00.0", "0000:0a:00.0"):
        (tmp_path / bus).mkdir()
    assert read_gpu_count(tmp_path) == 2
    assert read_gpu_count(tmp_path / "no-driver") == 0
    (tmp_path / "file").touch()
    assert read_gpu_count(tmp_path / "file") is None
