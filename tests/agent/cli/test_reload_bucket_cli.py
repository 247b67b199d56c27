"""`muster reload s3://...`, as people and scripts run it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.agent.checkpoint_factory import write_checkpoint
from tests.agent.cli.asking import muster
from tests.servers.fault_proxy import Fault, fault_proxy, gets
from tests.servers.s3 import S3Server


@pytest.fixture
def place(tmp_path: Path, s3_server: S3Server) -> str:
    return s3_server.put_folder(write_checkpoint(tmp_path, 10, world_size=2), "run/step-10")


def test_the_report_is_for_people(place: str) -> None:
    done = muster("reload", place + "/")
    assert done.exit_code == 0, done.stderr
    assert done.stdout.startswith(place)
    assert "path     s3 (asked for auto): the checkpoint lies in a bucket" in done.stdout
    assert "what the store caches is not known" in done.stdout
    assert "first bytes" in done.stdout and "names" in done.stdout and "connections to http" in done.stdout


def test_the_report_is_for_scripts(place: str, s3_server: S3Server) -> None:
    with fault_proxy(s3_server.url) as proxy:
        proxy.add(Fault(lambda asked: int(asked.range.partition("-")[2] or 0) > 1_000_000, times=2, status=503))
        done = muster("reload", place, "--endpoint-url", proxy.url, "--json")
    report = json.loads(done.stdout)
    assert (done.exit_code, report["effective"], report["cache_state"]) == (0, "s3", "cold")
    assert report["evidence"]["s3"]["retries"] == {"503 SlowDown": 2}
    assert "Signature" not in done.stdout + done.stderr


def test_a_sealed_checkpoint_is_verified_and_its_verdict_left_in_the_bucket(place: str, s3_server: S3Server) -> None:
    assert muster("seal", place).exit_code == 0
    done = muster("reload", place)
    assert (done.exit_code, "every byte equals its seal" in done.stdout) == (0, True), done.stderr
    assert s3_server.keys("run/step-10/.muster-verify.json")
    found = json.loads(muster("resume-point", s3_server.place, "--require", "verified", "--json").stdout)
    assert (found["path"], found["trust"]) == (place, "verified")


def test_a_folder_of_checkpoints_is_answered_with_their_names(place: str, s3_server: S3Server) -> None:
    done = muster("reload", f"{s3_server.place}/run")
    assert done.exit_code == 2 and f"name it, such as {place}" in done.stderr


def test_two_endpoints_are_read_from(place: str, s3_server: S3Server) -> None:
    with fault_proxy(s3_server.url) as other:
        done = muster("reload", place, "--endpoint-url", s3_server.url, "--endpoint-url", other.url, "--json")
        assert json.loads(done.stdout)["evidence"]["s3"]["endpoints"] == sorted([s3_server.url, other.url])


def test_a_share_and_resident(place: str) -> None:
    half = json.loads(muster("reload", place, "--rank", 0, "--world", 2, "--json").stdout)
    whole = json.loads(muster("reload", place, "--resident", "--json").stdout)
    assert half["bytes"] < whole["bytes"] == whole["evidence"]["resident_bytes"]
    assert half["cached_ratio_before"] == 0.0


def test_what_is_not_there_is_not_found(place: str) -> None:
    done = muster("reload", place + "0")
    assert done.exit_code == 3 and "no checkpoint" in done.stderr or "no key begins" in done.stderr


def test_another_backend_is_an_error_after_the_report(place: str) -> None:
    done = muster("reload", place, "--backend", "host_direct")
    assert done.exit_code == 1 and "the bytes took the path s3, not host_direct" in done.stderr


def test_a_store_that_refuses_the_bytes_is_told(place: str, s3_server: S3Server) -> None:
    with fault_proxy(s3_server.url) as proxy:
        proxy.add(Fault(gets("00001-of-00002.safetensors"), status=403, code="AccessDenied"))
        done = muster("reload", place, "--endpoint-url", proxy.url)
    assert done.exit_code == 1 and "AccessDenied" in done.stderr
