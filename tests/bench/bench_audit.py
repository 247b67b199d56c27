"""A full audit against `xxh128sum` on as many processes as there are processors, over the same files; and what a
sampled audit reads.

    python -m tests.bench.bench_audit [--directory DIR] [--megabytes 1024] [--rounds 3]

Interleaved in one run, all files warm. An audit reads around the page cache, where the file system allows it, since it
is to prove what the storage holds; the peer reads from memory. So there are rows for the files on DIR, read around the
cache and through it (`--through-cache`), and for files in memory (/dev/shm). Only ratios mean anything on a shared
machine.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from muster_agent.jobs.seal import seal
from muster_agent.jobs.verify import verify
from muster_agent.manifest.model import Manifest
from muster_agent.manifest.sampling import Sample

from tests.agent.checkpoint_factory import write_checkpoint

RANKS = 8
RATIO = 0.1


def main() -> int:
    options = _options()
    for place in dict.fromkeys((options.directory or tempfile.gettempdir(), "/dev/shm")):
        with tempfile.TemporaryDirectory(dir=place, prefix="bench-audit-") as made:
            rank_bytes = options.megabytes * 1_000_000 // RANKS
            _bench(write_checkpoint(Path(made), 100, world_size=RANKS, rank_bytes=rank_bytes), options.rounds)
    return 0


def _bench(folder: Path, rounds: int) -> None:
    manifest = seal(str(folder), write_beside=False).manifest
    assert manifest is not None
    files = sorted(str(path) for path in folder.glob("*.safetensors"))
    around, through, peers = [], [], []
    for _ in range(rounds):
        peers.append(_timed(lambda: _peer(files)))
        through.append(_timed(lambda: _audit(folder, manifest, through_cache=True)))
        around.append(_timed(lambda: _audit(folder, manifest, through_cache=False)))
    total, peer = manifest.total_bytes, statistics.median(peers)
    for told, ours in (("around", around), ("through", through)):
        seconds = statistics.median(ours)
        print(
            f"{folder.parent.parent}: full audit {told} the page cache {total / seconds / 1e9:.2f} GB/s, xxh128sum on "
            f"{os.cpu_count()} processes {total / peer / 1e9:.2f} GB/s: {peer / seconds:.2f}x"
        )
    asked = _asked_bytes()
    body = verify(str(folder), manifest, sample=Sample(RATIO, 7))
    asked = _asked_bytes() - asked
    print(
        f"{folder.parent.parent}: a sample of {RATIO:.0%} says {body.checked_bytes} bytes, asked the kernel for "
        f"{asked}, {asked / total:.1%} of all"
    )


def _peer(files: list[str]) -> None:
    """xargs as a user would: one file after another to each of the processes."""
    command = ["xargs", "-0", "-n1", f"-P{os.cpu_count()}", "xxh128sum", "-q"]
    subprocess.run(command, input="\0".join(files).encode(), stdout=subprocess.DEVNULL, check=True)


def _audit(folder: Path, manifest: Manifest, *, through_cache: bool) -> None:
    assert verify(str(folder), manifest, through_cache=through_cache).verified is True


def _timed(work: Callable[[], None]) -> float:
    began = time.monotonic()
    work()
    return time.monotonic() - began


def _asked_bytes() -> int:
    return int(Path("/proc/self/io").read_text().split()[1])


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--directory", help="on the file system to measure")
    parser.add_argument("--megabytes", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=3)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
