"""Our reload with verification against a plain multi-threaded pread loop, and fio where it is installed.

    python tests/bench/bench_reload.py [--directory DIR] [--gigabytes 2] [--rounds 5]

Same files, same run, interleaved; every cold read is preceded by an eviction that is checked. Only ratios within a
round mean anything on a shared machine; the table gives their medians.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from muster_agent.jobs.reload import reload
from muster_agent.jobs.seal import seal
from muster_agent.manifest.beside import read_beside
from muster_agent.probes.page_cache import cached_ratio, evict

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "agent"))
from checkpoint_factory import write_checkpoint  # noqa: E402

BLOCK_BYTES = 8 * 1024 * 1024
THREADS = 8
FIO_HUGE_PAGES = 40


def pread_loop(paths: Sequence[Path]) -> int:
    """What a careful engineer writes in ten minutes: threads, one buffer each, buffered preadv, no digests."""
    work = [
        (path, offset)
        for path in sorted(paths, key=lambda path: -path.stat().st_size)
        for offset in range(0, path.stat().st_size, BLOCK_BYTES)
    ]
    lock, total = threading.Lock(), [0]
    descriptors = {path: os.open(path, os.O_RDONLY) for path in paths}

    def reader() -> None:
        buffer = memoryview(bytearray(BLOCK_BYTES))
        while True:
            with lock:
                if not work:
                    return
                path, offset = work.pop(0)
            count = os.preadv(descriptors[path], [buffer], offset)
            with lock:
                total[0] += count

    threads = [threading.Thread(target=reader) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for descriptor in descriptors.values():
        os.close(descriptor)
    return total[0]


def free_huge_pages() -> int:
    """2 MiB pages set aside by the administrator (`vm.nr_hugepages`), which fio needs for its fastest buffers."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("HugePages_Free:"):
            return int(line.split()[1])
    return 0


def fio_direct(paths: Sequence[Path], engine: str, depth: int) -> float | None:
    """Bytes per second of fio with O_DIRECT and 4 MiB reads over the same files, None where fio cannot do that."""
    command = ["fio", "--name=r", "--readonly", "--rw=read", "--bs=4m", "--direct=1", f"--ioengine={engine}",
               f"--iodepth={depth}", "--allow_file_create=0", "--output-format=json",
               f"--filename={':'.join(map(str, paths))}", "--file_service_type=sequential"]  # fmt: skip
    if free_huge_pages() >= FIO_HUGE_PAGES:
        command.append("--mem=mmaphuge")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        job = json.loads(done.stdout[done.stdout.index("{") :])["jobs"][0]
    except (ValueError, KeyError, IndexError):
        return None
    return float(job["read"]["bw_bytes"]) if job["error"] == 0 else None


def timed(read: Callable[[], int]) -> float:
    """Bytes per second."""
    began = time.monotonic()
    count = read()
    return count / (time.monotonic() - began)


def cold(paths: Sequence[Path]) -> None:
    """Evict, and refuse to go on where the kernel kept pages."""
    names = [str(path) for path in paths]
    evict(names)
    ratio = cached_ratio(names)
    if ratio is not None and ratio > 0.01:
        raise SystemExit(f"{ratio:.1%} of the files stayed in the page cache: this is no cold measurement")


def one_round(folder: Path, paths: Sequence[Path], order: random.Random, with_fio: bool) -> dict[str, float]:
    """Every contender once, in a shuffled order; bytes per second by name."""
    manifest = read_beside(str(folder))
    result: dict[str, float] = {}

    def ours(backend: str, evicting: bool) -> float:
        report = reload(str(folder), manifest=manifest, backend=backend, evict=evicting)
        assert report.verified is True, report.findings
        result[f"{'cold' if evicting else 'warm'} cpu s/GB, reload+verify"] = report.cpu_seconds / report.bytes * 1e9
        return report.bytes / report.seconds

    def loop() -> float:
        cold(paths)
        return timed(lambda: pread_loop(paths))

    contenders: dict[str, Callable[[], float | None]] = {
        "cold reload+verify": lambda: ours("auto", True),
        "cold pread loop": loop,
    }
    if with_fio:
        contenders["cold fio direct psync"] = lambda: (cold(paths), fio_direct(paths, "psync", 1))[1]
        contenders["cold fio direct io_uring x16"] = lambda: (cold(paths), fio_direct(paths, "io_uring", 16))[1]
    for name in order.sample(sorted(contenders), len(contenders)):
        speed = contenders[name]()
        if speed is not None:
            result[name] = speed
    pread_loop(paths)
    result["warm pread loop"] = timed(lambda: pread_loop(paths))
    result["warm reload+verify"] = ours("auto", False)
    return result


def table(rounds: Sequence[dict[str, float]]) -> str:
    """Medians of absolute rates and, per round, of the ratio to the pread loop."""
    lines = [
        "| contender | GB/s (median) | ratio to the pread loop (median of rounds) | min-max |",
        "|---|---|---|---|",
    ]
    for name in sorted({name for row in rounds for name in row if "cpu" not in name}):
        rates = [row[name] for row in rounds if name in row]
        base = f"{name.split()[0]} pread loop"
        ratios = [row[name] / row[base] for row in rounds if name in row]
        spread = f"{min(ratios):.2f}-{max(ratios):.2f}"
        lines.append(f"| {name} | {statistics.median(rates) / 1e9:.2f} | {statistics.median(ratios):.2f} | {spread} |")
    for name in sorted({name for row in rounds for name in row if "cpu" in name}):
        lines.append(f"| {name} | {statistics.median(row[name] for row in rounds):.3f} | | |")
    fio = [
        row["cold reload+verify"] / max(rate for name, rate in row.items() if "fio" in name)
        for row in rounds
        if any("fio" in name for name in row)
    ]
    if fio:
        buffers = "huge-page" if free_huge_pages() >= FIO_HUGE_PAGES else "4 KiB-page"
        lines.append(
            f"\ncold reload+verify / best fio of the same round ({buffers} buffers): median "
            f"{statistics.median(fio):.2f}"
        )
    return "\n".join(lines)


def main() -> int:
    """Write a checkpoint, measure, print; exit 1 below the goal of 0.8 of the pread loop."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--directory", default=None)
    parser.add_argument("--gigabytes", type=float, default=2.0)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    work = Path(tempfile.mkdtemp(prefix="muster-bench-", dir=options.directory))
    try:
        folder = write_checkpoint(work / "run", 1, world_size=4, rank_bytes=int(options.gigabytes * 1e9 / 4))
        assert seal(str(folder)).manifest is not None
        paths = sorted(folder.glob("*.safetensors"))
        order = random.Random(0)
        rounds = []
        for number in range(options.rounds):
            rounds.append(one_round(folder, paths, order, shutil.which("fio") is not None))
            print(
                f"round {number + 1}: "
                + ", ".join(f"{k} {v / 1e9:.2f}" for k, v in rounds[-1].items() if "cpu" not in k)
            )
    finally:
        shutil.rmtree(work, ignore_errors=True)
    print(table(rounds))
    ratio = statistics.median(row["cold reload+verify"] / row["cold pread loop"] for row in rounds)
    print(f"cold reload+verify / plain pread loop: {ratio:.2f} (goal 0.80)")
    return 0 if ratio >= 0.8 else 1


if __name__ == "__main__":
    sys.exit(main())
