"""`kill -9` of the worker, Redis, PostgreSQL and the S3 store at random moments while checkpoints move into a bucket:
in the end there is exactly one verified copy of each, no part of an upload is left, no source was gone too early."""

from __future__ import annotations

import os
import random
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import boto3
import pytest
import urllib3
from botocore.config import Config
from checkpoint_files import write_checkpoint
from live import LiveAgent
from servers.postgres import Postgres
from stack import Stack

from tests.servers.ceph import ATTEMPTS, Ceph
from tests.servers.s3 import require_programs

CHAOS = "MUSTER_CHAOS_KILLS"
pytestmark = [pytest.mark.slow, pytest.mark.ceph, pytest.mark.timeout(3600)]
KILLS = int(os.environ.get(CHAOS, "10"))
STEPS = [10 * number for number in range(1, 3 + KILLS)]
SHARD_BYTES = 12 * 1024 * 1024
RATE = 6_000_000
"""Of each transfer: so long each of them is somewhere in its middle."""
Files = dict[str, bytes]


class Yard(NamedTuple):
    stack: Stack
    postgres: Postgres
    ceph: Ceph
    client: Any
    folder: Path

    def source(self, step: int) -> Path:
        return self.folder / "hot" / "run-1" / f"step-{step}"

    def objects(self, step: int) -> Files:
        prefix = f"cold/run-1/step-{step}/"
        listed = self.client.list_objects_v2(Bucket="chaos", Prefix=prefix).get("Contents", ())
        names = [one["Key"] for one in listed if ".muster" not in one["Key"]]
        return {
            name.removeprefix(prefix): self.client.get_object(Bucket="chaos", Key=name)["Body"].read() for name in names
        }

    def ask(self, path: str) -> Any:
        """None while the server, or its database, is away."""
        try:
            return self.stack.get(path)
        except (AssertionError, urllib3.exceptions.HTTPError) as error:
            print(f"{path}: {error!r}"[:300])
            return None


def started(folder: Path) -> Ceph:
    for attempt in range(ATTEMPTS - 1):  # on a busy machine its parts may wait too long for each other
        ceph = Ceph(folder / str(attempt))
        try:
            ceph.start()
            return ceph
        except (RuntimeError, OSError):
            ceph.stop()
    ceph = Ceph(folder / "last")
    ceph.start()
    return ceph


@pytest.fixture
def yard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Yard]:
    require_programs()
    for step in STEPS:
        write_checkpoint(tmp_path / "hot" / "run-1", step, ranks=2, shard_bytes=SHARD_BYTES)
    short = Path(tempfile.mkdtemp(prefix="mk-", dir="/tmp"))
    ceph, postgres = started(short), Postgres()
    try:
        found = ceph.endpoints
        keys = {"AWS_ACCESS_KEY_ID": found.access_key, "AWS_SECRET_ACCESS_KEY": found.secret_key}
        environment = {**keys, "AWS_DEFAULT_REGION": "us-east-1", "AWS_ENDPOINT_URL": found.url}
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        # a session of its own: the default one keeps the keys that it first saw in this process
        client = boto3.session.Session().client("s3", config=Config(retries={"total_max_attempts": 8}))
        client.create_bucket(Bucket="chaos")
        stack = Stack(
            tmp_path,
            **environment,
            DATABASE_URL=postgres.url,
            MUSTER_WORKER_ROOTS=f"{tmp_path},s3://chaos",
            MUSTER_CONTRACT_TRANSFER_SLICE_SECONDS="2",
            MUSTER_CONTRACT_TRANSFER_LEASE_SECONDS="8",
            MUSTER_CONTRACT_TRANSFER_RETRY_SECONDS="1",
        )
        yield Yard(stack, postgres, ceph, client, tmp_path)
        stack.stop()
    finally:
        ceph.stop()
        postgres.stop()
        shutil.rmtree(short, ignore_errors=True)


def begin(yard: Yard) -> list[str]:
    """The moves of all steps but the newest, which an agent has verified; their ids."""
    stack, fields = yard.stack, {"cluster": "contract"}
    agent = LiveAgent(stack.server, yard.folder, name="gpu-1", roots=[yard.folder / "hot"])
    stack.agents.append(agent.start())
    hot = stack.post("tiers/", **fields, name="hot", kind="parallel_fs", uri=str(yard.folder / "hot"))["id"]
    place = {"name": "cold", "kind": "object_store", "uri": "s3://chaos/cold", "speed_order": 2}
    cold = stack.post("tiers/", **fields, **place)["id"]
    stack.finished(f"scans/{stack.post('scans', tier=hot)['id']}/")
    copies = sorted(stack.get("placements/?limit=200")["items"], key=lambda one: int(one["path"].rpartition("-")[2]))
    for mode in ("seal", "verify"):
        stack.finished(f"audits/{stack.post('audits', placement=copies[-1]['id'], mode=mode)['id']}/")
    asked = {"kind": "move", "tier": cold, "max_bytes_per_second": RATE}
    return [stack.post("transfers", placement=one["id"], **asked)["id"] for one in copies[:-1]]


def ended(yard: Yard, transfers: list[str], seconds: float) -> list[Any]:
    """The transfers, once all have ended."""
    ends_at = time.monotonic() + seconds
    while True:
        found = [yard.ask(f"transfers/{one}") for one in transfers]
        if all(one and one["finished_at"] for one in found):
            return found
        if time.monotonic() > ends_at:
            told = [one and (one["state"], one["problem"], one["next_attempt_at"]) for one in found]
            raise AssertionError(f"{told}; {yard.stack.log_path.read_text()[-6000:]}")
        time.sleep(0.5)


def crashes(yard: Yard) -> list[tuple[Callable[[], None], Callable[[], None]]]:
    return [
        (yard.stack.kill_worker, yard.stack.start_worker),
        (yard.stack.valkey.kill, yard.stack.valkey.start),
        (yard.postgres.crash, yard.postgres.start_again),
        (yard.ceph.kill_gateway, yard.ceph.start_gateway),
    ]


def test_whatever_is_killed_one_verified_copy_of_each_is_left(yard: Yard) -> None:
    moved = STEPS[:-1]
    before = {step: {path.name: path.read_bytes() for path in yard.source(step).iterdir()} for step in moved}
    transfers = begin(yard)
    chance, kinds = random.Random(7), crashes(yard)
    for number in range(KILLS):
        time.sleep(chance.uniform(0.2, 2.5))
        kill, start = kinds[number % len(kinds)] if number < len(kinds) else chance.choice(kinds)
        kill()
        time.sleep(chance.uniform(0.0, 1.0))
        start()
        for step in moved:
            gone = not yard.source(step).exists()
            assert not gone or yard.objects(step) == before[step], f"step {step} was removed before it was copied"

    found = ended(yard, transfers, 120 + 20 * len(transfers))
    assert [(one["state"], one["problem"]) for one in found] == [("done", "")] * len(moved)
    assert {step: yard.objects(step) for step in moved} == before
    assert not any(yard.source(step).exists() for step in moved) and yard.source(STEPS[-1]).is_dir()
    assert yard.client.list_multipart_uploads(Bucket="chaos").get("Uploads", []) == []
    assert [path.name for path in (yard.folder / "hot").rglob(".muster-*") if "manifest" not in path.name] == []
    there = yard.stack.get("placements/?limit=200")["items"]
    cold = [(one["status"], one["trust"]) for one in there if one["path"].startswith("s3://")]
    assert cold == [("complete", "verified")] * len(moved)
