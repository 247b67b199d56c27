"""Our reload with verification against the machine's own limits and against other libraries: one table of ratios.

    make bench [PEERS=1]
    python -m tests.bench.bench_reload [--directory DIR] [--gigabytes 2] [--rounds 5]

Same bytes, same run, interleaved in a shuffled order; reloads and other libraries run in fresh processes. Every cold
read is preceded by an eviction that is checked. Only ratios within a round mean anything on a shared machine; the
table gives their medians. Nobody fails by time alone: the exit code speaks of the bytes only.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from muster_agent.cli.finding_text import ProgressBar
from muster_agent.jobs.control import JobControl
from muster_agent.jobs.reload import reload
from muster_agent.jobs.seal import seal
from muster_agent.probes.page_cache import cached_ratio, evict

from tests.agent.checkpoint_factory import write_checkpoint
from tests.bench import limits, peers

OURS, KEPT, WARM, SEALED = "cold reload+verify", "cold reload+verify, kept", "warm reload+verify", "cold seal"
LOOP, WARM_LOOP, MEMCPY = "cold pread loop", "warm pread loop", "memcpy"
WARM_FLOOR, PROGRESS = "warm preadv+hash, kept buffers, nothing else", "cold reload that draws its progress"
_MUSTER = "import sys; from muster_agent.cli import main; sys.exit(main())"


class Taken(NamedTuple):
    """One contender in one round; `cpu_seconds` and `rss_bytes` None where they were not measured."""

    bytes_per_second: float
    cpu_seconds_per_gigabyte: float | None = None
    rss_bytes: int | None = None


Round = dict[str, Taken]


class Goal(NamedTuple):
    """One line of the table: `figure` gives a round's number, None where a side is missing. `at_least`: more is
    better."""

    name: str
    must: float
    stretch: float
    figure: Callable[[Round], float | None]
    at_least: bool = True
    unit: str = ""


def cold(paths: Iterable[Path]) -> None:
    """Evict, and refuse to go on where the kernel kept pages."""
    names = [str(path) for path in paths if path.is_file()]
    evict(names)
    ratio = cached_ratio(names)
    if ratio is not None and ratio > 0.01:
        raise SystemExit(f"{ratio:.1%} of the files stayed in the page cache: this is no cold measurement")


def ours(folder: Path, *options: str) -> Taken:
    """`muster reload` in a fresh process. Ends the bench where the bytes were not proven."""
    command = [
        sys.executable,
        "-c",
        _MUSTER,
        "reload",
        str(folder),
        "--json",
        "--no-write",
        "--device",
        "cpu",
        *options,
    ]
    report = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    if report["verified"] is not True:
        raise SystemExit(f"the bytes were not proven: {report['findings']}")
    per_gigabyte = report["cpu_seconds"] / report["bytes"] * 1e9
    return Taken(report["bytes"] / report["seconds"], per_gigabyte, report["peak_rss_bytes"])


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def with_progress(folder: Path) -> Taken:
    """A reload that draws its bar as on a terminal; the CPU seconds are those of the callbacks alone."""
    bar, cpu_seconds = ProgressBar(_Terminal()), []

    def timed(phase: str, done_bytes: int, total_bytes: int) -> None:
        before = time.thread_time()
        bar.update(phase, done_bytes, total_bytes)
        cpu_seconds.append(time.thread_time() - before)

    report = reload(str(folder), device="cpu", control=JobControl(progress=timed))
    return Taken(report.bytes_per_second, sum(cpu_seconds) / report.bytes * 1e9)


def seal_again(folder: Path) -> Taken:
    """The in-order whole-file digest, chunk and tensor digests in one pass."""
    code = f"from muster_agent.jobs.seal import seal; print(seal({str(folder)!r}, write_beside=False).seconds)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    size = sum(path.stat().st_size for path in folder.glob("*.safetensors"))
    return Taken(size / float(done.stdout))


def peer(python: str, name: str, folder: Path) -> Taken | None:
    loaded = peers.load(python, name, folder)
    if isinstance(loaded, str):
        print(f"  {name} did not run: {loaded}")
        return None
    per_gigabyte = loaded.cpu_seconds / loaded.bytes * 1e9
    return Taken(loaded.bytes / loaded.seconds, per_gigabyte, loaded.rss_bytes)


def contenders(folder: Path, python: str | None, others: Path) -> dict[str, Callable[[], Taken | None]]:
    """What runs cold, by name."""
    paths = sorted(folder.glob("*.safetensors"))
    found: dict[str, Callable[[], Taken | None]] = {
        OURS: lambda: ours(folder),
        KEPT: lambda: ours(folder, "--resident"),
        SEALED: lambda: seal_again(folder),
        PROGRESS: lambda: with_progress(folder),
        LOOP: lambda: Taken(limits.timed(lambda: limits.pread_loop(paths))),
    }

    def fio(engine: str, depth: int) -> Callable[[], Taken | None]:
        return lambda: Taken(rate) if (rate := limits.fio_rate(paths, engine, depth)) else None

    def loader(name: str) -> Callable[[], Taken | None]:
        return lambda: peer(python or "", name, others)

    if limits.has_fio():
        found |= {f"fio {engine} x{depth}": fio(engine, depth) for engine, depth in limits.FIO_SETTINGS}
    if python is not None:
        found |= {f"peer {name}": loader(name) for name in peers.LOADERS}
    return found


def one_round(folder: Path, others: Path, python: str | None, order: random.Random) -> Round:
    """Every contender once, in a shuffled order."""
    paths = sorted(folder.glob("*.safetensors"))
    everything = [*paths, *others.rglob("*")]
    result: Round = {}
    running = contenders(folder, python, others)
    for name in order.sample(sorted(running), len(running)):
        cold(everything)
        taken = running[name]()
        if taken is not None:
            result[name] = taken
    limits.pread_loop(paths)
    result[WARM_LOOP] = Taken(limits.timed(lambda: limits.pread_loop(paths)))
    threads = min(limits.THREADS, os.cpu_count() or 1)
    result[WARM_FLOOR] = Taken(*limits.hashing_loop(paths, threads))
    result[WARM] = ours(folder, "--no-evict")
    result[MEMCPY] = Taken(limits.memcpy_rate(threads))
    return result


def best(row: Round, prefix: str) -> float | None:
    """The best rate of those whose name begins so, in one round."""
    return max((taken.bytes_per_second for name, taken in row.items() if name.startswith(prefix)), default=None)


def ratio(name: str, prefix: str) -> Callable[[Round], float | None]:
    def of(row: Round) -> float | None:
        other = best(row, prefix)
        return row[name].bytes_per_second / other if other and name in row else None

    return of


def cpu_ratio(name: str, other: str) -> Callable[[Round], float | None]:
    def of(row: Round) -> float | None:
        mine, least = (row[one].cpu_seconds_per_gigabyte for one in (name, other))
        return None if mine is None or not least else mine / least

    return of


def mebibytes(name: str) -> Callable[[Round], float | None]:
    return lambda row: None if row[name].rss_bytes is None else (row[name].rss_bytes or 0) / (1 << 20)


GOALS = (
    Goal("cold reload+verify / best fio, O_DIRECT, huge pages", 0.90, 0.97, ratio(OURS, "fio ")),
    Goal("cold, own buffers / best peer that also hashes", 1.8, 2.3, ratio(OURS, "peer ")),
    Goal("cold, fresh memory on both sides / best peer", 1.2, 1.6, ratio(KEPT, "peer ")),
    Goal("warm reload+verify / memcpy, as many threads", 0.75, 0.85, ratio(WARM, MEMCPY)),
    Goal("CPU s/GB, cold", 0.12, 0.08, lambda row: row[OURS].cpu_seconds_per_gigabyte, at_least=False),
    Goal("CPU s/GB, warm", 0.15, 0.13, lambda row: row[WARM].cpu_seconds_per_gigabyte, at_least=False),
    Goal("warm reload+verify / least that copies and hashes", 0.9, 1.0, ratio(WARM, WARM_FLOOR)),
    Goal("CPU s/GB, warm / least that copies and hashes", 1.1, 1.05, cpu_ratio(WARM, WARM_FLOOR), at_least=False),
    Goal("CPU s of progress callbacks / of the reload", 0.01, 0.001, cpu_ratio(PROGRESS, OURS), at_least=False),
    Goal("extra memory, verify only, MiB", 128, 64, mebibytes(OURS), at_least=False),
    Goal("cold reload+verify / plain pread loop", 0.8, 1.0, ratio(OURS, LOOP)),
)


def goal_line(goal: Goal, rounds: Sequence[Round]) -> str:
    values = [value for row in rounds if (value := goal.figure(row)) is not None]
    asked = f"{goal.must:g} | {goal.stretch:g}"
    if not values:
        return f"| {goal.name} | {asked} | not measured | | |"
    median = statistics.median(values)
    met = median >= goal.must if goal.at_least else median <= goal.must
    spread = f"{min(values):.2f} to {max(values):.2f}"
    return f"| {goal.name} | {asked} | **{median:.3g}** | {spread} | {'met' if met else 'MISSED'} |"


def contender_line(name: str, rounds: Sequence[Round]) -> str:
    rows = [row[name] for row in rounds if name in row]
    rate = statistics.median(row.bytes_per_second for row in rows) / 1e9
    cpu = [row.cpu_seconds_per_gigabyte for row in rows if row.cpu_seconds_per_gigabyte is not None]
    memory = [row.rss_bytes for row in rows if row.rss_bytes is not None]
    cells = [
        f"{rate:.2f}",
        f"{statistics.median(cpu):.3f}" if cpu else "not measured",
        f"{statistics.median(memory) / (1 << 20):.0f}" if memory else "not measured",
    ]
    return f"| {name} | {' | '.join(cells)} |"


def table(rounds: Sequence[Round]) -> str:
    """The goals, then every contender's medians, fastest first."""
    names = {name for row in rounds for name in row}
    fastest = sorted(names, key=lambda name: -max(row[name].bytes_per_second for row in rounds if name in row))
    return "\n".join(
        [
            "| goal | must | stretch | median of rounds | spread | |",
            "|---|---|---|---|---|---|",
            *(goal_line(goal, rounds) for goal in GOALS),
            "",
            "| contender | GB/s | CPU s/GB | extra MiB |",
            "|---|---|---|---|",
            *(contender_line(name, rounds) for name in fastest),
        ]
    )


def warn_of_gaps(python: str | None) -> None:
    """What will be missing from the table, said before anything is measured."""
    if python is None:
        print(f"PEERS NOT MEASURED: run `make bench PEERS=1`, or name an interpreter that has them in {peers.VARIABLE}")
    if not limits.has_fio():
        print("FIO NOT MEASURED: the program fio is not installed")
    elif not limits.has_huge_pages():
        print(f"fio runs with 4 KiB pages, far from its best: sysctl vm.nr_hugepages={limits.FIO_HUGE_PAGES}")


def measure(folder: Path, work: Path, python: str | None, count: int) -> list[Round]:
    others, order, rounds = work / "peers", random.Random(0), []
    if python is not None:
        peers.write(python, others, sorted(folder.glob("*.safetensors")))
    for number in range(count):
        try:
            rounds.append(one_round(folder, others, python, order))
        except KeyboardInterrupt:
            print(f"stopped in round {number + 1}: the table is of the {number} before it")
            break
        rates = ", ".join(f"{name} {taken.bytes_per_second / 1e9:.2f}" for name, taken in rounds[-1].items())
        print(f"round {number + 1} (load {os.getloadavg()[0]:.1f}): {rates}", flush=True)
    return rounds


def main() -> int:
    """Write a checkpoint, measure, print. Raises SystemExit where bytes were not proven or could not be evicted."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--directory", default=None)
    parser.add_argument("--gigabytes", type=float, default=2.0)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    python = peers.interpreter()
    warn_of_gaps(python)
    work = Path(tempfile.mkdtemp(prefix="muster-bench-", dir=options.directory))
    try:
        folder = write_checkpoint(work / "run", 1, world_size=4, rank_bytes=int(options.gigabytes * 1e9 / 4))
        if seal(str(folder)).manifest is None:
            raise SystemExit("the bench's own checkpoint could not be sealed")
        rounds = measure(folder, work, python, options.rounds)
        if rounds:
            print(table(rounds))
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
