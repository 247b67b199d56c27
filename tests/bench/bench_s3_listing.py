"""Listing a bucket of a million keys at 50 ms a page, against boto3's own paginator over fewer of them.

    python -m tests.bench.bench_s3_listing [--keys 1000000] [--peer-keys 50000] [--wait-seconds 0.05]

The store is emulated (`tests/servers/page_generator.py`): no real one
holds a million keys within the time of a bench.
Each contender runs in a process of its own. Processor time a key is what says most on a shared machine: the generator
and other work want the same processors.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
OURS, PEER = "muster", "boto3's paginator"


def listed(url: str) -> int:
    from muster_agent.storage.s3_client import connect

    return len(connect(url).objects("bucket", "runs/", one_level=False, check=lambda: None).objects)


def paginated(url: str) -> int:
    import boto3

    pages = (
        boto3.client("s3", endpoint_url=url).get_paginator("list_objects_v2").paginate(Bucket="bucket", Prefix="runs/")
    )
    return sum(len(page["Contents"]) for page in pages)


def run_one(name: str, url: str) -> None:
    """In the contender's own process: its figures as JSON."""
    contender = {OURS: listed, PEER: paginated}[name]
    before = resource.getrusage(resource.RUSAGE_SELF)
    began = time.monotonic()
    count = contender(url)
    seconds, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_SELF)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(json.dumps({"keys": count, "seconds": seconds, "cpu_seconds": cpu, "rss_mib": after.ru_maxrss / 1024}))


def measured(name: str, keys: int, wait_seconds: float) -> dict[str, float]:
    environment = {
        **os.environ,
        "AWS_ACCESS_KEY_ID": "reader",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_DEFAULT_REGION": "us-east-1",
        "NO_PROXY": "127.0.0.1",
    }
    generator = [sys.executable, "-m", "tests.servers.page_generator", "--keys", str(keys)]
    generator += ["--wait-seconds", str(wait_seconds)]
    with subprocess.Popen(generator, cwd=ROOT, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            command = [sys.executable, "-m", "tests.bench.bench_s3_listing", "--one", name]
            command += ["--url", server.stdout.readline().strip()]
            done = subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True, text=True)
            return dict(json.loads(done.stdout))
        finally:
            server.kill()


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--keys", type=int, default=1_000_000)
    options.add_argument("--peer-keys", type=int, default=50_000)
    options.add_argument("--wait-seconds", type=float, default=0.05)
    options.add_argument("--one")
    options.add_argument("--url")
    chosen = options.parse_args()
    if chosen.one:
        run_one(chosen.one, chosen.url)
        return
    print("| contender | keys | seconds | keys a second | cpu us a key | RSS MiB |")
    print("| --- | --- | --- | --- | --- | --- |")
    for name, keys in ((OURS, chosen.keys), (OURS, chosen.peer_keys), (PEER, chosen.peer_keys)):
        got = measured(name, keys, chosen.wait_seconds)
        rate, cost = got["keys"] / got["seconds"], 1e6 * got["cpu_seconds"] / got["keys"]
        print(f"| {name} | {got['keys']} | {got['seconds']:.1f} | {rate:.0f} | {cost:.1f} | {got['rss_mib']:.0f} |")


if __name__ == "__main__":
    main()
