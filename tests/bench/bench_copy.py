"""Our copies, each proven, against `cp` on file systems and `rclone copy` into a real S3 server: one table of ratios.

    python -m tests.bench.bench_copy [--directory DIR] [--megabytes 1024] [--rounds 3] [--no-s3]

Same files, same run, interleaved, each contender in a process of its own; sources are warm for all of them. `cp` proves
nothing, so two peers stand beside it: `cp` alone, and `cp` with a sync and `cmp`, which is what proving a copy takes
without Muster. rclone runs with its checks on (it compares the MD5 sums after each file). Only ratios mean anything on
a shared machine; the table gives medians of the rounds. The exit code speaks of the bytes only.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import boto3
from muster_agent.jobs.control import JobControl
from muster_agent.jobs.copy import run_copy
from muster_agent.jobs.copy_posix import PosixTarget
from muster_agent.jobs.copy_s3 import S3Target
from muster_agent.jobs.seal import seal
from muster_agent.manifest.beside import read_beside
from muster_agent.protocol.copies import CopyOrder
from muster_agent.storage.s3_client import connect
from muster_agent.storage.s3_writer import S3Writer

from tests.agent.checkpoint_factory import write_checkpoint

RANKS = 8


class Taken(NamedTuple):
    seconds: float
    cpu_seconds: float


Contender = Callable[[], Taken]


def main() -> int:
    options = _options()
    if options.one:
        return _one(json.loads(options.one))
    # the store's daemons may still write a last line into their folder
    with tempfile.TemporaryDirectory(dir=options.directory, prefix="bench-copy-", ignore_cleanup_errors=True) as made:
        folder = Path(made)
        source = write_checkpoint(
            folder / "hot" / "run", 100, world_size=RANKS, rank_bytes=options.megabytes * 1_000_000 // RANKS
        )
        if seal(str(source)).manifest is None:
            raise SystemExit("the source could not be sealed")
        size_bytes = sum(path.stat().st_size for path in source.iterdir())
        print(f"{size_bytes / 1e6:.0f} MB in {RANKS} files, {os.cpu_count()} cores, {options.rounds} rounds")
        _table("folder to folder", _posix(folder, source), options.rounds, size_bytes, "cp, sync and cmp")
        if not options.no_s3:
            from tests.servers.ceph import joined

            with joined(folder / "ceph") as endpoints:
                _table("folder to bucket", _s3(source, endpoints), options.rounds, size_bytes, "rclone copy")
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--directory", default=None)
    parser.add_argument("--megabytes", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--no-s3", action="store_true")
    parser.add_argument("--one", default="", help=argparse.SUPPRESS)
    return parser.parse_args()


def _table(title: str, contenders: dict[str, Contender], rounds: int, size_bytes: int, peer: str) -> None:
    taken: dict[str, list[Taken]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, run in contenders.items():
            taken[name].append(run())
    print(f"\n{title}: throughput relative to `{peer}`")
    base = [one.seconds for one in taken[peer]]
    for name, runs in taken.items():
        ratio = statistics.median(other / one.seconds for one, other in zip(runs, base, strict=True))
        rate = size_bytes / statistics.median(one.seconds for one in runs) / 1e6
        cpu = statistics.median(one.cpu_seconds for one in runs) / size_bytes * 1e9
        print(f"  {name:<28} {ratio:5.2f}x  {rate:7.0f} MB/s  {cpu:5.2f} CPU s/GB")


def _posix(folder: Path, source: Path) -> dict[str, Contender]:
    cold = folder / "cold"
    cold.mkdir()

    def plain() -> Taken:
        return _timed(["cp", "-r", str(source), str(_fresh(cold))])

    def proven() -> Taken:
        target = _fresh(cold)
        script = 'cp -r "$1" "$2" && sync "$2"/* && for f in "$1"/*; do cmp "$f" "$2/${f##*/}" || exit 1; done'
        return _timed(["sh", "-c", script, "sh", str(source), str(target)])

    def ours() -> Taken:
        return _ours(source, str(_fresh(cold)), "read_back")

    return {"cp": plain, "cp, sync and cmp": proven, "muster, read back": ours}


def _fresh(cold: Path) -> Path:
    shutil.rmtree(cold / "copy", ignore_errors=True)
    subprocess.run(["sync", "-f", str(cold)], check=True)
    return cold / "copy"


def _s3(source: Path, endpoints: Any) -> dict[str, Contender]:
    os.environ |= {
        "AWS_ACCESS_KEY_ID": endpoints.access_key,
        "AWS_SECRET_ACCESS_KEY": endpoints.secret_key,
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": endpoints.url,
        "AWS_EC2_METADATA_DISABLED": "true",
        "RCLONE_CONFIG_C_TYPE": "s3",
        "RCLONE_CONFIG_C_PROVIDER": "Ceph",
        "RCLONE_CONFIG_C_ENV_AUTH": "true",
        "RCLONE_CONFIG_C_ENDPOINT": endpoints.url,
        "RCLONE_CONFIG": "/dev/null",
    }
    os.environ.pop("AWS_CA_BUNDLE", None)  # rclone cannot take it, and this is HTTP
    client = boto3.client("s3")
    client.create_bucket(Bucket="bench")

    def emptied() -> None:
        for page in client.get_paginator("list_objects_v2").paginate(Bucket="bench"):
            for one in page.get("Contents", ()):
                client.delete_object(Bucket="bench", Key=one["Key"])

    def rclone() -> Taken:
        emptied()
        return _timed(["rclone", "copy", str(source), "C:bench/copy"])

    def ours(proof: str) -> Taken:
        emptied()
        return _ours(source, "s3://bench/copy", proof)

    return {
        "rclone copy": rclone,
        "muster, store's checksum": lambda: ours("checksum"),
        "muster, read back": lambda: ours("read_back"),
    }


def _timed(command: list[str]) -> Taken:
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    subprocess.run(command, check=True)
    seconds, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return Taken(seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def _ours(source: Path, target: str, proof: str) -> Taken:
    """The start of the interpreter is not part of a copy; a worker is started once."""
    asked = {"source": str(source), "target": target, "proof": proof}
    command = [sys.executable, "-m", "tests.bench.bench_copy", "--one", json.dumps(asked)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return Taken(**json.loads(done.stdout))


def _one(asked: dict[str, str]) -> int:
    source, target = asked["source"], asked["target"]
    order = CopyOrder(
        source=source,
        source_root=os.path.dirname(source),
        target=target,
        target_root=os.path.dirname(target),
        tag="bench",
        manifest=read_beside(source),
        proof=asked["proof"],
    )
    store = S3Writer.over(connect()) if target.startswith("s3://") else None
    began, cpu = time.monotonic(), time.process_time()
    run_copy(order, S3Target(order, store) if store else PosixTarget(order), JobControl(), store=store)
    print(json.dumps({"seconds": time.monotonic() - began, "cpu_seconds": time.process_time() - cpu}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
