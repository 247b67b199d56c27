from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from muster_agent.cli import main
from muster_agent.storage import s3_client

from tests.agent.formats.damage import DATA
from tests.agent.formats.s3_server import S3Server


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "reader")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(s3_client, "ATTEMPTS", 2)
    with S3Server() as running:
        running.store.put_folder(DATA / "megatron/torch_dist", "runs/llama")
        for one in running.store.objects.values():
            one.unix_seconds = time.time() - 86_400
        yield running


def muster(*arguments: object) -> Result:
    return CliRunner().invoke(main, [*map(str, arguments)], catch_exceptions=False)


def test_the_resume_point_is_a_path_in_the_bucket(server: S3Server) -> None:
    for key in [key for key in server.store.objects if "iter_0000200" in key and key.endswith(".distcp")]:
        del server.store.objects[key]
    server.store.put("runs/llama/latest_checkpointed_iteration.txt", b"100", time.time() - 86_400)
    done = muster("resume-point", "s3://bucket/runs/llama/", "--endpoint-url", server.url, "--format", "path")
    assert (done.exit_code, done.stdout) == (0, "s3://bucket/runs/llama/iter_0000100\n")
    done = muster("resume-point", "s3://bucket/runs/llama", "--endpoint-url", server.url, "--format", "megatron")
    assert done.stdout == "--load s3://bucket/runs/llama --ckpt-step 100\n"


def test_the_endpoint_may_come_from_the_environment(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", server.url)
    done = muster("inventory", "s3://bucket/runs", "--json")
    assert [one["path"] for one in json.loads(done.stdout)] == [
        "s3://bucket/runs/llama/iter_0000200",
        "s3://bucket/runs/llama/iter_0000100",
    ]
    assert "Run llama in s3://bucket/runs/llama" in muster("inventory", "s3://bucket/runs").stdout


def test_one_checkpoint_is_explained(server: S3Server) -> None:
    done = muster("explain", "s3://bucket/runs/llama/iter_0000100", "--endpoint-url", server.url)
    assert done.exit_code == 0
    assert done.stdout.startswith("s3://bucket/runs/llama/iter_0000100\n")


@pytest.mark.parametrize(
    ("place", "code"), [("s3://bucket/nothing", 3), ("s3://other/runs", 3), ("s3://bucket/runs/lla", 3)]
)
def test_what_is_not_there_is_said_with_what_to_do(server: S3Server, place: str, code: int) -> None:
    done = muster("inventory", place, "--endpoint-url", server.url)
    assert (done.exit_code, done.stdout) == (code, "")
    assert "what to do:" in done.stderr


def test_a_store_that_only_throttles_is_an_error_and_no_empty_bucket(server: S3Server) -> None:
    server.store.fail = lambda _what: (503, "SlowDown")
    for command in ("inventory", "resume-point", "explain"):
        done = muster(command, "s3://bucket/runs", "--endpoint-url", server.url)
        assert (done.exit_code, done.stdout) == (1, "")
        assert "SlowDown" in done.stderr


def test_without_boto3_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "boto3", None)
    done = muster("inventory", "s3://bucket/runs")
    assert done.exit_code == 1
    assert "muster-agent[s3]" in done.stderr


def test_a_local_path_needs_no_boto3(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "boto3", None)
    assert muster("inventory", tmp_path).exit_code == 0
