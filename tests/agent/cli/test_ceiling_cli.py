"""`muster ceiling` as a person and a script see it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner
from muster_agent.cli import main
from muster_agent.jobs import ceiling


@pytest.fixture(autouse=True)
def own_state(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))


def test_the_table_names_each_way_and_the_best(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "shard").write_bytes(os.urandom(2 << 20))
    monkeypatch.setattr(ceiling, "cached_ratio", lambda _paths: 0.0)
    done = CliRunner().invoke(main, ["ceiling", str(tmp_path), "--no-fio"])
    assert done.exit_code == 0
    assert "muster 4 MiB x 16, " in done.stdout and "  ceiling  " in done.stdout
    assert "too little to keep storage busy" in done.stderr


def test_json_holds_what_the_table_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "shard").write_bytes(os.urandom(2 << 20))
    monkeypatch.setattr(ceiling, "cached_ratio", lambda _paths: 0.0)
    done = CliRunner().invoke(main, ["ceiling", str(tmp_path), "--no-fio", "--json"])
    report = json.loads(done.stdout)
    assert report["bytes_per_second"] == max(one["bytes_per_second"] for one in report["tries"])
    assert report["measured_at"] and report["method"]


def test_what_was_only_read_from_memory_is_an_error_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shard").write_bytes(os.urandom(2 << 20))
    monkeypatch.setattr(ceiling, "cached_ratio", lambda _paths: 1.0)
    done = CliRunner().invoke(main, ["ceiling", str(tmp_path), "--no-fio"])
    assert done.exit_code == 1
    assert "the storage was not measured" in done.stderr and "100% cached before" in done.stdout


def test_a_bucket_has_no_ceiling_of_files() -> None:
    done = CliRunner().invoke(main, ["ceiling", "s3://bucket/run"])
    assert done.exit_code == 2 and "for a bucket run `muster reload`" in done.stderr


@pytest.mark.parametrize(("name", "said"), [("none", "there is nothing at"), ("", "1 MiB")])
def test_nothing_to_read_is_not_found(tmp_path: Path, name: str, said: str) -> None:
    done = CliRunner().invoke(main, ["ceiling", str(tmp_path / name)])
    assert done.exit_code == 3 and said in done.stderr
