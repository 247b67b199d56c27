"""Our reload from a bucket, verified, against plain ranged GETs of the same objects by http.client and by boto3.

    python -m tests.bench.bench_s3 [--gigabytes 1] [--rounds 5]

Same server (a Ceph RADOS gateway on loopback, over HTTP and over TLS), same objects, same readers and ranges, same run,
interleaved in a shuffled order. The server shares the processors, so only ratios within a round mean anything; the
tables give their medians. CPU seconds are of this process alone.
"""

from __future__ import annotations

import argparse
import http.client
import os
import random
import ssl
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import boto3
from muster_agent.jobs.reload import prepare
from muster_agent.jobs.seal import seal
from muster_agent.manifest.model import Manifest
from muster_agent.protocol.wire import ReloadParams
from muster_agent.reload.pace import READERS
from muster_agent.reload.plan import BLOCK_BYTES, plan_reads, whole_shards
from muster_agent.storage.s3_client import S3Store, connect

from tests.agent.checkpoint_factory import write_checkpoint
from tests.servers.ceph import Ceph, Endpoints

BUCKET, PREFIX = "bench", "run/step-00000001"
GOAL_RATE, GOAL_CPU = 0.90, 1.3
Range = tuple[str, int, int]


class Contest:
    """The objects, and every way to read them."""

    def __init__(self, manifest: Manifest, url: str, ca_path: str) -> None:
        self.manifest, self.url = manifest, url
        self.store: S3Store = connect(url)
        self.context = ssl.create_default_context(cafile=ca_path) if url.startswith("https") else None
        self.client: Any = boto3.client("s3", endpoint_url=url)
        sizes = [shard.size_bytes for shard in manifest.shards]
        names = [shard.path for shard in manifest.shards]
        plan = plan_reads(whole_shards(sizes), BLOCK_BYTES)
        self.ranges: list[Range] = [(names[one.shard], one.offset_bytes, one.length_bytes) for one in plan]

    def ours(self) -> int:
        """A reload of named shards, as a drill asks for it: listing, buffers, ranged reads, every chunk compared."""
        names = tuple(shard.path for shard in self.manifest.shards)
        params = ReloadParams(path=f"s3://{BUCKET}/{PREFIX}", shards=names, manifest=self.manifest)
        prepared = prepare(params, stores=[self.store])
        self.begin()
        report = prepared.run().report
        assert report.verified is True, report.findings
        return report.bytes

    def plain(self, *, into_buffer: bool) -> int:
        """What a careful engineer writes: one connection and one buffer a thread, no digests."""
        urls = {shard.path: urlsplit(self.signed(shard.path)) for shard in self.manifest.shards}
        self.begin()

        def reader(take: Callable[[], Range | None]) -> int:
            connection, buffer, total = self.connection(), memoryview(bytearray(BLOCK_BYTES)), 0
            while (one := take()) is not None:
                name, offset, length = one
                target = f"{urls[name].path}?{urls[name].query}"
                connection.request("GET", target, headers={"Range": f"bytes={offset}-{offset + length - 1}"})
                answer = connection.getresponse()
                total += fill(answer, buffer[:length]) if into_buffer else len(answer.read())
            connection.close()
            return total

        return self.by_threads(reader)

    def by_boto3(self) -> int:
        """As boto3's manual has it."""
        self.begin()

        def reader(take: Callable[[], Range | None]) -> int:
            total = 0
            while (one := take()) is not None:
                name, offset, length = one
                place = {"Bucket": BUCKET, "Key": f"{PREFIX}/{name}"}
                answer = self.client.get_object(**place, Range=f"bytes={offset}-{offset + length - 1}")
                total += len(answer["Body"].read())
            return total

        return self.by_threads(reader)

    def begin(self) -> None:
        """The clocks start: what is ready before (signatures, a client) is nobody's reading."""
        self.began_at, self.cpu_before = time.monotonic(), time.process_time()

    def signed(self, name: str) -> str:
        return self.store.signed_url(BUCKET, f"{PREFIX}/{name}", 3600)

    def connection(self) -> http.client.HTTPConnection:
        where = urlsplit(self.url)
        if self.context is not None:
            return http.client.HTTPSConnection(str(where.hostname), where.port, context=self.context)
        return http.client.HTTPConnection(str(where.hostname), where.port)

    def by_threads(self, reader: Callable[[Callable[[], Range | None]], int]) -> int:
        todo, lock, totals = iter(self.ranges), threading.Lock(), []

        def take() -> Range | None:
            with lock:
                return next(todo, None)

        threads = [threading.Thread(target=lambda: totals.append(reader(take))) for _ in range(READERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return sum(totals)

    def measured(self, read: Callable[[], int]) -> tuple[float, float]:
        """(bytes per second, CPU seconds per GB)."""
        count = read()
        seconds, cpu = time.monotonic() - self.began_at, time.process_time() - self.cpu_before
        assert count == self.manifest.total_bytes, (count, self.manifest.total_bytes)
        return count / seconds, cpu / count * 1e9


def fill(answer: http.client.HTTPResponse, buffer: memoryview) -> int:
    done = 0
    while done < len(buffer) and (count := answer.readinto(buffer[done:])):
        done += count
    return done


def one_round(contest: Contest, order: random.Random) -> dict[str, tuple[float, float]]:
    contenders = {
        "reload+verify": contest.ours,
        "http.client, readinto": lambda: contest.plain(into_buffer=True),
        "http.client, read()": lambda: contest.plain(into_buffer=False),
        "boto3 get_object": contest.by_boto3,
    }
    return {name: contest.measured(contenders[name]) for name in order.sample(sorted(contenders), len(contenders))}


def table(scheme: str, rounds: Sequence[dict[str, tuple[float, float]]]) -> str:
    """Medians, and of each round's ratios to the plain reads into a buffer."""
    base = "http.client, readinto"
    lines = [
        f"| {scheme} | GB/s | CPU s/GB | rate / plain (min-max) | CPU / plain (min-max) |",
        "|---|---|---|---|---|",
    ]
    for name in sorted(rounds[0]):
        rate, cpu = (statistics.median(row[name][kind] for row in rounds) for kind in (0, 1))
        ratios = [spread([row[name][kind] / row[base][kind] for row in rounds]) for kind in (0, 1)]
        lines.append(f"| {name} | {rate / 1e9:.3f} | {cpu:.3f} | {ratios[0]} | {ratios[1]} |")
    return "\n".join(lines)


def spread(ratios: Sequence[float]) -> str:
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})"


def stored(endpoints: Endpoints, gigabytes: float, folder: Path) -> Manifest:
    """The checkpoint in the bucket, sealed from the files that were put there."""
    place = write_checkpoint(folder, 1, world_size=2, rank_bytes=int(gigabytes * 1e9 / 2))
    manifest = seal(str(place), write_beside=False).manifest
    assert manifest is not None
    client: Any = boto3.client("s3", endpoint_url=endpoints.url)
    client.create_bucket(Bucket=BUCKET)
    for path in place.iterdir():
        client.upload_file(str(path), BUCKET, f"{PREFIX}/{path.name}")
        path.unlink()
    return manifest


def use(endpoints: Endpoints) -> None:
    os.environ |= {
        "AWS_ACCESS_KEY_ID": endpoints.access_key,
        "AWS_SECRET_ACCESS_KEY": endpoints.secret_key,
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CA_BUNDLE": endpoints.ca_path,
        "AWS_REQUEST_CHECKSUM_CALCULATION": "when_required",
        "AWS_RESPONSE_CHECKSUM_VALIDATION": "when_required",
        "NO_PROXY": "127.0.0.1",
    }


def main() -> int:
    """Start a server, store a checkpoint, measure, print; exit 1 below the goals."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--gigabytes", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    order, missed = random.Random(0), False
    with tempfile.TemporaryDirectory(prefix="mc-", dir="/tmp") as folder:
        ceph = Ceph(Path(folder) / "ceph")
        try:
            ceph.start()
            use(ceph.endpoints)
            manifest = stored(ceph.endpoints, options.gigabytes, Path(folder) / "run")
            for scheme, url in (("HTTP", ceph.endpoints.url), ("TLS", ceph.endpoints.tls_url)):
                contest = Contest(manifest, url, ceph.endpoints.ca_path)
                one_round(contest, order)  # first touches are nobody's
                rounds = [one_round(contest, order) for _ in range(options.rounds)]
                print(table(scheme, rounds), flush=True)
                ours, plain = "reload+verify", "http.client, readinto"
                rate, cpu = (statistics.median(r[ours][kind] / r[plain][kind] for r in rounds) for kind in (0, 1))
                print(f"\nrate {rate:.2f} (goal {GOAL_RATE:.2f}), CPU {cpu:.2f} (goal {GOAL_CPU})\n", flush=True)
                missed |= rate < GOAL_RATE or cpu > GOAL_CPU
        finally:
            ceph.stop()
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
