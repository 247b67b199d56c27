"""How fast this node reads a place for a given time, by a measuring program or by the built-in reader."""

from __future__ import annotations

import resource
import shutil
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from muster_agent.jobs.ceiling import Setting, read_with_own
from muster_agent.jobs.ceiling_sources import Files, largest_files
from muster_agent.jobs.control import JobControl
from muster_agent.probes import elbencho, fio, gdsio
from muster_agent.probes.page_cache import cached_ratio, evict
from muster_agent.probes.program import Output, ProgramFailed, run_program
from muster_agent.protocol.measuring import BandwidthParams
from muster_agent.protocol.phases import Phase
from muster_agent.protocol.results import Backend, ReloadReport
from muster_agent.protocol.wire import ReloadBody
from muster_agent.reload.backends import cache_state

BLOCK_BYTES = 4 << 20
MIB = 1 << 20
RUNNERS = ("auto", "gdsio", "elbencho", "fio", "builtin")
_OVERTIME_SECONDS = 60.0
_MOST_FILES = 64


class RunnerUnavailable(Exception):
    """The program that was asked for is not here, or gave nothing; the message says which and what to do."""


class Measured(NamedTuple):
    """`path_taken` is the effective backend as far as the program lets one know."""

    read_bytes: int
    seconds: float
    path_taken: Backend
    method: str
    note: str = ""


class PreparedBandwidth:
    """The files are chosen and evicted; `run` starts the clock."""

    def __init__(self, params: BandwidthParams, runner: str, files: Sequence[tuple[str, int]]) -> None:
        self.params, self.runner, self.files = params, runner, files
        if params.evict:
            evict(path for path, _size in files)

    def run(self, control: JobControl) -> ReloadBody:
        """Read for `params.seconds`. Raises Cancelled, RunnerUnavailable."""
        cached = cached_ratio([path for path, _size in self.files])
        started, cpu = time.time(), _cpu_seconds()
        found = _READ[self.runner](self.params, self.files, control)
        cpu_seconds = _cpu_seconds() - cpu
        report = ReloadReport(
            bytes=found.read_bytes,
            seconds=found.seconds,
            bytes_per_second=found.read_bytes / found.seconds,
            requested=self.params.runner,
            effective=found.path_taken.value,
            evidence={"runner": self.runner, "method": found.method, "files": len(self.files)},
            reason=found.note,
            cache_state=cache_state(cached).value,
            cached_ratio_before=cached,
            phases={Phase.READ.value: found.seconds},
            busy={},
            cpu_seconds=cpu_seconds,
            cpu_by_phase={Phase.READ.value: cpu_seconds},
            peak_rss_bytes=0,
            verified=None,
        )
        return ReloadBody(report=report, started_unix_seconds=started, fingerprint="")


def prepare(params: BandwidthParams) -> PreparedBandwidth:
    """Choose program and files. Raises RunnerUnavailable, NothingToRead, OSError."""
    runner = _runner(params)
    files = largest_files(params.root)
    part, parts = params.part
    own = files[part::parts] if len(files) >= 2 * parts else files
    return PreparedBandwidth(params, runner, own[:_MOST_FILES])


def _runner(params: BandwidthParams) -> str:
    if params.runner not in RUNNERS:
        raise RunnerUnavailable(f"{params.runner} is no runner; use one of {', '.join(RUNNERS)}")
    if params.runner == "auto":
        wanted = ("gdsio", "elbencho", "fio") if params.gpu is not None else ("elbencho", "fio")
        return next((name for name in wanted if shutil.which(name)), "builtin")
    if params.runner != "builtin" and shutil.which(params.runner) is None:
        raise RunnerUnavailable(f"{params.runner} is not installed on this node; install it, or choose auto")
    return params.runner


def _with_gdsio(params: BandwidthParams, files: Sequence[tuple[str, int]], control: JobControl) -> Measured:
    path, size_bytes = files[0]
    argv = gdsio.command(
        path, size_bytes, gpu=params.gpu or 0, block_bytes=BLOCK_BYTES, threads=params.depth, seconds=params.seconds
    )
    said = _run(argv, params, control).stdout
    note = f"gdsio calls its way {gdsio.transfer_of(said)}; cuFile may have fallen back without a word"
    return _measured(gdsio.parse_gdsio(said), Backend.UNKNOWN, "gdsio", params, note)


def _with_elbencho(params: BandwidthParams, files: Sequence[tuple[str, int]], control: JobControl) -> Measured:
    with tempfile.TemporaryDirectory(prefix="muster-elbencho-") as scratch:
        table = Path(scratch) / "result.csv"
        argv = elbencho.command(
            [path for path, _size in files],
            min(size for _path, size in files) // BLOCK_BYTES * BLOCK_BYTES or BLOCK_BYTES,
            result_file=str(table),
            block_bytes=BLOCK_BYTES,
            threads=params.depth,
            seconds=params.seconds,
        )
        said = _run(argv, params, control)
        text = table.read_text(errors="replace") if table.is_file() else said.stderr
    return _measured(elbencho.parse_elbencho(text), Backend.HOST_DIRECT, "elbencho", params)


def _with_fio(params: BandwidthParams, files: Sequence[tuple[str, int]], control: JobControl) -> Measured:
    paths = [path for path, _size in files]
    argv = fio.command(
        paths, engine="io_uring", block_bytes=BLOCK_BYTES, depth=params.depth, seconds=params.seconds, loop=True
    )
    said = _run(argv, params, control)
    return _measured(fio.parse_fio(said.stdout, said.stderr), Backend.HOST_DIRECT, "fio io_uring", params)


def _with_own(params: BandwidthParams, files: Sequence[tuple[str, int]], control: JobControl) -> Measured:
    done = read_with_own(Setting("muster", BLOCK_BYTES, params.depth), Files(files), params.seconds, control)
    if done.bytes_per_second is None:
        raise RunnerUnavailable(done.reason)
    taken = Backend.HOST_DIRECT if done.path_taken == "direct" else Backend.HOST_BUFFERED
    return Measured(done.read_bytes, done.seconds, taken, _method("muster", params))


_READ = {"gdsio": _with_gdsio, "elbencho": _with_elbencho, "fio": _with_fio, "builtin": _with_own}


def _run(argv: Sequence[str], params: BandwidthParams, control: JobControl) -> Output:
    try:
        return run_program(argv, seconds=params.seconds * 2 + _OVERTIME_SECONDS, check=control.check)
    except ProgramFailed as error:
        raise RunnerUnavailable(str(error)) from error


def _measured(rate: fio.FioRate | str, taken: Backend, name: str, params: BandwidthParams, note: str = "") -> Measured:
    if isinstance(rate, str):
        raise RunnerUnavailable(rate)
    return Measured(rate.read_bytes, rate.seconds, taken, _method(name, params), note)


def _method(name: str, params: BandwidthParams) -> str:
    return f"{name} {BLOCK_BYTES // MIB} MiB x {params.depth}"


def _cpu_seconds() -> float:
    """Of this process and of the children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)
