"""A bucket of a million keys at 50 ms a page: scanned into a database, once and once more; and only listed, against
boto3's own paginator over fewer of them.

    python -m tests.bench.bench_s3_listing [--keys 1000000] [--peer-keys 50000] [--wait-seconds 0.05]
        [--database postgres://...]

The database is an SQLite file unless another, empty one is named. `written` are rows inserted, changed or deleted.

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
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
OURS, PEER = "muster", "boto3's paginator"
FIRST, AGAIN = "scan into rows", "scan again, unchanged"


def listed(url: str) -> int:
    from muster_agent.storage.s3_client import connect

    return len(connect(url).objects("bucket", "runs/", one_level=False, check=lambda: None).objects)


def paginated(url: str) -> int:
    import boto3

    pages = (
        boto3.client("s3", endpoint_url=url).get_paginator("list_objects_v2").paginate(Bucket="bucket", Prefix="runs/")
    )
    return sum(len(page["Contents"]) for page in pages)


def prepare() -> None:
    """Tables; a worker has them, and has imported what it needs."""
    import django

    django.setup()
    from django.core.management import call_command

    call_command("migrate", verbosity=0)


def scanned(url: str) -> int:
    """As a worker scans a tier, apart from the bounds of a slice; the number of entries. Both times the same tier."""
    from django.utils import timezone
    from muster_agent.jobs.inventory import run_inventory
    from muster_agent.protocol.wire import InventoryParams
    from muster_agent.storage.s3_client import connect

    from apps.checkpoints.models import InventoryScan
    from apps.checkpoints.scan_results import take_in
    from apps.fleet.models import Cluster
    from apps.storage.models import StorageTier

    now, place = timezone.now(), "s3://bucket/runs"
    cluster, _ = Cluster.objects.get_or_create(name="bench", defaults={"created_at": now})
    tier, _ = StorageTier.objects.get_or_create(
        cluster=cluster, name="cold", defaults={"uri": place, "kind": "object_store", "created_at": now}
    )
    scan = InventoryScan.objects.create(tier=tier, root=place, state="running", created_at=now)
    body = run_inventory(InventoryParams(root=place, settle_seconds=0), store=connect(url))
    fields = take_in(scan, body, now)
    InventoryScan.objects.filter(pk=scan.pk).update(state="finished", finished_at=timezone.now(), **fields)
    return body.entries or 0


def rows_written() -> int | None:
    """By this process's connection; None where the database does not count them."""
    from django.db import connection

    return connection.connection.total_changes if connection.vendor == "sqlite" else None


def run_one(name: str, url: str) -> None:
    """In the contender's own process: its figures as JSON."""
    contender = {OURS: listed, PEER: paginated, FIRST: scanned, AGAIN: scanned}[name]
    if contender is scanned:
        prepare()
    before = resource.getrusage(resource.RUSAGE_SELF)
    began = time.monotonic()
    count = contender(url)
    seconds, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_SELF)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    written = rows_written() if contender is scanned else None
    told = {"keys": count, "seconds": seconds, "cpu_seconds": cpu, "rss_mib": after.ru_maxrss / 1024}
    print(json.dumps({**told, "written": written}))


def measured(name: str, keys: int, wait_seconds: float, database: str) -> dict[str, Any]:
    environment = {
        **os.environ,
        "AWS_ACCESS_KEY_ID": "reader",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_DEFAULT_REGION": "us-east-1",
        "NO_PROXY": "127.0.0.1",
        "DJANGO_SETTINGS_MODULE": "controlplane.settings",
        "DATABASE_URL": database,
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
    options.add_argument("--database", default="")
    options.add_argument("--one")
    options.add_argument("--url")
    chosen = options.parse_args()
    if chosen.one:
        run_one(chosen.one, chosen.url)
        return
    with tempfile.TemporaryDirectory(prefix="bench-listing-") as folder:
        database = chosen.database or f"sqlite:///{folder}/rows.sqlite3"
        print("| contender | keys | seconds | keys a second | cpu us a key | RSS MiB | rows written |")
        print("| --- | --- | --- | --- | --- | --- | --- |")
        for name in (FIRST, AGAIN, OURS, PEER):
            keys = chosen.peer_keys if name == PEER else chosen.keys
            got = measured(name, keys, chosen.wait_seconds, database)
            rate, cost = got["keys"] / got["seconds"], 1e6 * got["cpu_seconds"] / got["keys"]
            print(
                f"| {name} | {got['keys']} | {got['seconds']:.1f} | {rate:.0f} | {cost:.1f} | {got['rss_mib']:.0f} "
                f"| {'' if got['written'] is None else got['written']} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
