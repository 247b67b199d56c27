"""A scan of 100,000 files in 1,000 checkpoints against `os.walk` with `os.stat` over the same tree.

    python tests/bench/bench_scan.py [--directory DIR] [--checkpoints 1000] [--files 100] [--rounds 7]

Every contender once a round, in a shuffled order, each in a process of its own on warm caches; only ratios within a
round mean anything on a shared machine, and the table gives their medians. `cpu` is the processor time of a contender
and its children: where other work keeps the processors busy, it says more than the time on the wall.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from scan_tree import make_tree  # noqa: E402

WALK = "os.walk + os.stat"


def walk(root: str, _cache: str) -> int:
    """Names and sizes only: what nobody can do without."""
    count = 0
    for folder, _, files in os.walk(root):
        for name in files:
            os.stat(os.path.join(folder, name))
            count += 1
    return count


def full(root: str, _cache: str) -> int:
    from muster_agent.formats.walk import inventory

    return sum(one.status == "complete" for one in inventory(root).checkpoints)


def by_agent(root: str, _cache: str) -> int:
    """As an agent does it, which has other threads: in the process that it keeps for scans."""
    from muster_agent.jobs.control import JobControl
    from muster_agent.jobs.scan_process import run_apart
    from muster_agent.protocol.wire import InventoryParams

    other = threading.Event()
    thread = threading.Thread(target=other.wait)
    thread.start()
    try:
        return len(run_apart(InventoryParams(root=root, settle_seconds=0), JobControl()).checkpoints)
    finally:
        other.set()
        thread.join()


def alone(root: str, _cache: str) -> int:
    """On one processor."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    return full(root, _cache)


def unchanged(root: str, cache: str) -> int:
    from muster_agent.formats.walk import inventory
    from muster_agent.jobs.scan_cache import ScanCache

    with ScanCache(cache, root) as memory:
        found = inventory(root, memory=memory)
        memory.finish()
        return found.unchanged


CONTENDERS: dict[str, Callable[[str, str], int]] = {
    WALK: walk,
    "full scan": full,
    "full scan by an agent": by_agent,
    "full scan, one processor": alone,
    "scan again, unchanged": unchanged,
}


def run_one(name: str, root: str, cache: str) -> None:
    """In the contender's own process: its figures as JSON. Imports and one warm round do not count."""
    CONTENDERS[name](root, cache)
    cpu, began = _cpu_seconds(), time.monotonic()
    count = CONTENDERS[name](root, cache)
    seconds = time.monotonic() - began
    peaks = [resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    peaks += [_peak_kib(pid) for pid in _kept_pids()]
    rss = max(peaks) / 1024
    print(json.dumps({"seconds": seconds, "cpu": _cpu_seconds() - cpu, "rss_mib": rss, "count": count}))


def _cpu_seconds() -> float:
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    ended = sum(usage.ru_utime + usage.ru_stime for usage in usages)
    ticks = 0
    for pid in _kept_pids():
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += sum(map(int, fields[11:15]))  # its own time and that of its forks
    return ended + ticks / os.sysconf("SC_CLK_TCK")


def _kept_pids() -> list[int]:
    """The process that an agent keeps for its scans, if one runs."""
    return [int(pid) for pid in Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()]


def _peak_kib(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))


def one_round(root: str, cache: str, order: random.Random) -> dict[str, dict[str, float]]:
    names = list(CONTENDERS)
    order.shuffle(names)
    result = {}
    for name in names:
        command = [sys.executable, __file__, "--one", name, "--directory", root, "--cache", cache]
        result[name] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return result


def print_table(rounds: list[dict[str, dict[str, float]]]) -> None:
    print("| contender | seconds | cpu s | ratio to the walk | ratio of cpu | lowest to highest | RSS MiB | found |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for name in CONTENDERS:
        mine = [one[name] for one in rounds]
        walks = [one[WALK] for one in rounds]
        ratios = [one["seconds"] / base["seconds"] for one, base in zip(mine, walks, strict=True)]
        cpu = [one["cpu"] / base["cpu"] for one, base in zip(mine, walks, strict=True)]
        median = {key: statistics.median(one[key] for one in mine) for key in mine[0]}
        print(
            f"| {name} | {median['seconds']:.2f} | {median['cpu']:.2f} | {statistics.median(ratios):.2f} "
            f"| {statistics.median(cpu):.2f} | {min(ratios):.2f} to {max(ratios):.2f} | {median['rss_mib']:.0f} "
            f"| {median['count']:.0f} |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--directory", default=tempfile.gettempdir(), help="a folder on the disk to measure")
    parser.add_argument("--checkpoints", type=int, default=1000)
    parser.add_argument("--files", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--cache", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        run_one(given.one, given.directory, given.cache)
        return
    folder = Path(tempfile.mkdtemp(prefix="bench-scan-", dir=given.directory))
    try:
        tree = folder / "tree"
        make_tree(tree, given.checkpoints, given.files)
        time.sleep(2.5)  # what has just changed is not remembered
        order = random.Random(0)
        rounds = [one_round(str(tree), str(folder / "cache.sqlite3"), order) for _ in range(given.rounds)]
        load = os.getloadavg()[0]
        print(f"{len(os.sched_getaffinity(0))} processors, load {load:.1f}, Python {sys.version.split()[0]}\n")
        print_table(rounds)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
