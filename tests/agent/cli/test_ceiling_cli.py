"""`muster ceiling` as a person and a script see it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner
from muster_agent.cli import main
from muster_agent.jobs import ceiling, ceiling_sources

from tests.agent.checkpoint_factory import write_checkpoint
from tests.agent.formats.s3_server import S3Server


@pytest.fixture(autouse=True)
def own_state(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))


def test_the_table_names_each_way_and_the_best(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "shard").write_bytes(os.urandom(2 << 20))
    monkeypatch.setattr(ceiling_sources, "cached_ratio", lambda _paths: 0.0)
    done = CliRunner().invoke(main, ["ceiling", str(tmp_path), "--no-fio"])
    assert done.exit_code == 0
    assert "muster 4 MiB x 16, " in done.stdout and "  ceiling  " in done.stdout
    assert "too little to keep storage busy" in done.stderr


def test_json_holds_what_the_table_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "shard").write_bytes(os.urandom(2 << 20))
    monkeypatch.setattr(ceiling_sources, "cached_ratio", lambda _paths: 0.0)
    done = CliRunner().invoke(main, ["ceiling", str(tmp_path), "--no-fio", "--json"])
    report = json.loads(done.stdout)
    assert report["bytes_per_second"] == max(one["bytes_per_second"] for one in report["tries"])
    assert report["measured_at"] and report["method"]


def test_what_was_only_read_from_memory_is_an_error_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shard").write_bytes(os.urandom(2 << 20))
    monkeypatch.setattr(ceiling_sources, "cached_ratio", lambda _paths: 1.0)
    done = CliRunner().invoke(main, ["ceiling", str(tmp_path), "--no-fio"])
    assert done.exit_code == 1
    assert "the storage was not measured" in done.stderr and "100% cached before" in done.stdout


def test_a_bucket_is_measured_by_its_own_requests_and_a_reload_is_held_against_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {
        "AWS_ACCESS_KEY_ID": "reader", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true", "NO_PROXY": "127.0.0.1",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(ceiling, "OBJECT_SETTINGS", ceiling.OBJECT_SETTINGS[1:2])
    with S3Server() as server:
        server.store.put_folder(write_checkpoint(tmp_path, 10, world_size=2, rank_bytes=3 << 20), "run/step-10")
        at = ["--endpoint-url", server.url]
        done = CliRunner().invoke(main, ["ceiling", "s3://bucket/run", "--seconds", "5", *at])
        assert done.exit_code == 0, done.stderr
        assert "muster 4 MiB x 8, ranged GETs" in done.stdout
        assert "what the store itself keeps in memory cannot be seen from here" in done.stderr
        told = CliRunner().invoke(main, ["reload", "s3://bucket/run/step-10", "--json", *at]).stdout
        none = CliRunner().invoke(main, ["ceiling", "s3://bucket/other", *at])
    report = json.loads(told)
    assert report["ceiling"]["path"] == "s3://bucket/run" and report["ceiling"]["method"].endswith("ranged GETs")
    assert report["efficiency_ratio"] == pytest.approx(
        report["bytes_per_second"] / report["ceiling"]["bytes_per_second"]
    )
    assert none.exit_code == 3 and "1 MiB" in none.stderr


@pytest.mark.parametrize(("name", "said"), [("none", "there is nothing at"), ("", "1 MiB")])
def test_nothing_to_read_is_not_found(tmp_path: Path, name: str, said: str) -> None:
    done = CliRunner().invoke(main, ["ceiling", str(tmp_path / name)])
    assert done.exit_code == 3 and said in done.stderr
