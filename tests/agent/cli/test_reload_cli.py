"""`muster reload` as a user meets it."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result
from muster_agent.cli import main
from muster_agent.cli import reload as reload_command
from muster_agent.cli.finding_text import ProgressBar
from muster_agent.cli.output import human_rate
from muster_agent.cli.reload import Rate
from muster_agent.jobs.control import JobControl
from muster_agent.jobs.reload import ReloadStopped, prepare
from muster_agent.jobs.seal import seal
from muster_agent.protocol.wire import ReloadParams

from tests.agent.checkpoint_factory import write_checkpoint

FIELDS = {
    "bytes", "seconds", "bytes_per_second", "requested", "effective", "evidence", "reason", "cache_state",
    "cached_ratio_before", "phases", "busy", "cpu_seconds", "cpu_by_phase", "peak_rss_bytes", "verified", "findings",
    "ceiling", "efficiency_ratio",
}  # fmt: skip


def muster(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments], catch_exceptions=False)


@pytest.fixture
def sealed(tmp_path: Path) -> Path:
    folder = write_checkpoint(tmp_path / "run", 10, world_size=2, rank_bytes=5_000_000)
    assert seal(str(folder)).manifest is not None
    return folder


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def test_the_rate_is_held_against_the_ceiling_that_was_measured_last(
    sealed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("muster_agent.jobs.reload.cached_ratio", lambda _paths: 0.0)
    before = json.loads(muster("reload", sealed, "--json").stdout)
    assert (before["ceiling"], before["efficiency_ratio"]) == (None, None)
    assert "efficiency not measured" in muster("reload", sealed).stdout
    monkeypatch.setattr("muster_agent.jobs.ceiling_sources.cached_ratio", lambda _paths: 0.0)
    ceiling = json.loads(muster("ceiling", sealed, "--no-fio", "--seconds", "0.5", "--json").stdout)
    report = json.loads(muster("reload", sealed, "--json").stdout)
    assert report["ceiling"]["method"] == ceiling["method"]
    assert report["efficiency_ratio"] == pytest.approx(report["bytes_per_second"] / ceiling["bytes_per_second"])
    assert f"of {human_rate(ceiling['bytes_per_second'])} ({ceiling['method']}" in muster("reload", sealed).stdout
    monkeypatch.setattr("muster_agent.jobs.reload.cached_ratio", lambda _paths: 1.0)
    assert "efficiency not measured: bytes came from memory" in muster("reload", sealed).stdout


def test_a_state_that_cannot_be_read_or_written_stops_nothing(sealed: Path, tmp_path: Path) -> None:
    (tmp_path / "state").write_text("no folder")
    assert muster("ceiling", sealed, "--no-fio", "--seconds", "0.5").exit_code in (0, 1)
    assert "efficiency not measured" in muster("reload", sealed).stdout


def test_json_has_exactly_the_promised_fields(sealed: Path) -> None:
    done = muster("reload", sealed, "--json")
    report = json.loads(done.stdout)
    assert done.exit_code == 0 and set(report) == FIELDS
    assert report["verified"] is True and report["requested"] == "auto"


def test_text_shows_phases_rate_cache_and_verdict(sealed: Path) -> None:
    done = muster("reload", sealed)
    assert done.exit_code == 0 and done.stderr == ""
    for words in ("B/s", "cached before the first read", "resolve", "allocate", "every byte equals its seal"):
        assert words in done.stdout
    assert "to_device    not measured" in done.stdout


def test_damage_is_exit_7_with_shard_range_and_tensor(sealed: Path) -> None:
    shard = sealed / "rank-00000-of-00002.safetensors"
    before = shard.stat()
    with open(shard, "r+b") as file:
        file.seek(2000)
        file.write(b"\xff\x00\xff\x00")
    changed = muster("reload", sealed)
    assert changed.exit_code == 1 and "changed since sealing" in changed.stderr and "DAMAGED" not in changed.stdout
    os.utime(shard, ns=(before.st_atime_ns, before.st_mtime_ns))
    done = muster("reload", sealed)
    assert done.exit_code == 7 and "DAMAGED" in done.stdout
    assert "digest_mismatch" in done.stderr and "model.layer0.weight" in done.stderr


def test_a_named_backend_that_did_not_happen_is_exit_1_with_the_reason(sealed: Path) -> None:
    if os.path.exists("/dev/nvidiactl"):
        pytest.skip("this machine has an NVIDIA driver")
    done = muster("reload", sealed, "--backend", "gds", "--json")
    report = json.loads(done.stdout)
    assert done.exit_code == 1
    assert report["requested"] == "gds" and report["effective"] in ("host_direct", "host_buffered")
    assert "no CUDA driver" in report["reason"] and "no CUDA driver" in done.stderr


def test_without_a_seal_it_reads_and_says_that_nothing_was_verified(tmp_path: Path) -> None:
    done = muster("reload", write_checkpoint(tmp_path / "run", 10, world_size=1, rank_bytes=60_000))
    assert done.exit_code == 0 and "not verified: there is no manifest" in done.stdout


def test_a_rank_and_a_shard_read_only_their_bytes(sealed: Path) -> None:
    name = "rank-00001-of-00002.safetensors"
    size = (sealed / name).stat().st_size
    common = (sealed / "checkpoint.json").stat().st_size  # of no rank, and so of every rank
    for choice, read_bytes in ((("--rank", "1"), size + common), (("--shards", name), size)):
        assert json.loads(muster("reload", sealed, *choice, "--json").stdout)["bytes"] == read_bytes


def test_both_choices_at_once_are_a_usage_error(sealed: Path) -> None:
    assert muster("reload", sealed, "--rank", "1", "--shards", "x").exit_code == 2


def test_a_rank_that_is_not_there_is_exit_3(sealed: Path) -> None:
    done = muster("reload", sealed, "--rank", "7")
    assert done.exit_code == 3 and "it has ranks 0 to 1" in done.stderr


def test_a_path_that_is_not_there_is_exit_3(tmp_path: Path) -> None:
    done = muster("reload", tmp_path / "gone")
    assert done.exit_code == 3 and "there is no checkpoint at" in done.stderr


def test_a_shard_that_is_not_there_is_damage_where_it_was_sealed(sealed: Path) -> None:
    (sealed / "rank-00001-of-00002.safetensors").unlink()
    done = muster("reload", sealed, "--json")
    assert done.exit_code == 7
    assert json.loads(done.stdout)["findings"][0]["code"] == "shard_missing"


@pytest.mark.parametrize(
    ("text", "rate"),
    [("500MB", 500_000_000), ("1.5GB/s", 1_500_000_000), ("256MiB", 268_435_456), ("1000", 1000), ("2 kB", 2000)],
)
def test_rates_are_read_with_their_units(text: str, rate: int) -> None:
    assert Rate().convert(text, None, None) == rate


@pytest.mark.parametrize("text", ["fast", "-5MB", "0", "", "5 parsecs"])
def test_a_rate_that_is_none_is_a_usage_error(text: str) -> None:
    with pytest.raises(click.BadParameter):
        Rate().convert(text, None, None)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_drawn_on_a_terminal_only() -> None:
    terminal, pipe = Terminal(), io.StringIO()
    for stream in (terminal, pipe):
        bar = ProgressBar(stream)
        bar.control().progress("read", 50, 100)
        bar.clear()
    assert "read [###############---------------] 50 B of 100 B" in terminal.getvalue()
    assert terminal.getvalue().endswith("\r\x1b[K")
    assert pipe.getvalue() == ""


def test_several_ranks_are_told_what_each_of_them_got(tmp_path: Path) -> None:
    """The marker belongs to no rank, so both read it; it comes from the storage once."""
    folder = write_checkpoint(tmp_path / "run", 10, world_size=3, rank_bytes=600_000)
    sizes = {path.name: path.stat().st_size for path in folder.iterdir()}
    asked = ["reload", str(folder), "--rank", "0", "--rank", "2"]
    report = json.loads(CliRunner().invoke(main, [*asked, "--json"]).stdout)
    common = sizes["checkpoint.json"]
    own = {rank: sizes[f"rank-0000{rank}-of-00003.safetensors"] for rank in (0, 2)}
    assert report["evidence"]["ranks"] == {
        "unique_bytes": own[0] + own[2] + common,
        "delivered_bytes": own[0] + own[2] + 2 * common,
        "by_rank": {"0": own[0] + common, "2": own[2] + common},
    }
    assert report["bytes"] == own[0] + own[2] + common
    assert "to 2 ranks: rank 0 " in CliRunner().invoke(main, asked).stdout


def test_a_resident_reload_says_what_it_keeps(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "run", 10, world_size=2, rank_bytes=1_000_000)
    done = CliRunner().invoke(main, ["reload", str(folder), "--resident"])
    assert done.exit_code == 0
    assert "tensors are views of them" in done.stdout and "materialize" in done.stdout


def test_a_cold_read_that_cannot_be_had_is_an_error_with_the_way_out(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "run", 10, world_size=2, rank_bytes=1_000_000)
    for shard in folder.iterdir():
        shard.read_bytes()
    done = CliRunner().invoke(main, ["reload", str(folder), "--no-evict", "--cold-required"])
    assert done.exit_code == 1
    assert "would not be a cold read" in done.stderr and "--no-evict" in done.stderr


def test_ranks_of_another_world_read_even_shares_of_one_large_file(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "run", 10, world_size=1, rank_bytes=20_000_000)
    assert seal(str(folder)).manifest is not None
    reports = []
    for rank in range(3):
        done = CliRunner().invoke(main, ["reload", str(folder), "--rank", str(rank), "--world", "3", "--json"])
        reports.append(json.loads(done.stdout))
    size = sum(path.stat().st_size for path in folder.iterdir() if not path.name.startswith("."))
    assert sum(report["bytes"] for report in reports) == size
    assert {report["verified"] for report in reports} == {True}
    assert max(report["bytes"] for report in reports) - size / 3 <= 4 << 20


@pytest.mark.parametrize("ranks", [[], ["--rank", "3"], ["--rank", "0", "--rank", "1"]])
def test_a_share_needs_one_rank_of_that_world(tmp_path: Path, ranks: list[str]) -> None:
    folder = write_checkpoint(tmp_path / "run", 10, world_size=1, rank_bytes=1000)
    done = CliRunner().invoke(main, ["reload", str(folder), "--world", "3", *ranks])
    assert done.exit_code == 2 and "one --rank from 0 to 2" in done.stderr


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_reload_that_is_told_to_stop_says_what_was_and_was_not_read(
    sealed: Path, number: signal.Signals, code: int
) -> None:
    code_to_run = "from muster_agent.cli import main; main()"
    command = [sys.executable, "-c", code_to_run, "reload", str(sealed), "--json", "--max-rate", "500kB"]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while not _catches_sigterm(running.pid):
        time.sleep(0.02)
    time.sleep(1)
    running.send_signal(number)
    out, messages = running.communicate(timeout=30)
    report = json.loads(out)
    assert running.returncode == code and f"stopped by {number.name}" in messages
    stopped = report["evidence"]["stopped"]
    missing = sum(one["bytes"] - one["read_bytes"] for one in stopped["not_read"])
    assert report["verified"] is None and report["findings"] == []
    assert missing > 0 and report["bytes"] == stopped["planned_bytes"] - missing


def _catches_sigterm(pid: int) -> bool:
    status = Path(f"/proc/{pid}/status").read_text()
    caught = next(line for line in status.splitlines() if line.startswith("SigCgt:"))
    return bool(int(caught.split()[1], 16) >> (signal.SIGTERM - 1) & 1)


def test_what_was_read_before_a_stop_still_shows_damage(sealed: Path) -> None:
    shard = sealed / "rank-00000-of-00002.safetensors"
    before = shard.stat()
    with open(shard, "r+b") as file:
        file.seek(2000)
        file.write(b"\xff\x00\xff\x00")
    os.utime(shard, ns=(before.st_atime_ns, before.st_mtime_ns))
    control = JobControl()
    control.progress = lambda _phase, done, _total: control.cancel() if done > 0 else None  # type: ignore[method-assign]
    with pytest.raises(ReloadStopped) as stop:
        prepare(ReloadParams(path=str(sealed), shards=(shard.name,), max_bytes_per_second=20_000_000)).run(control)
    report = stop.value.report
    assert report.verified is False and [found.code for found in report.findings] == ["digest_mismatch"]


def test_a_device_that_was_named_and_not_reached_is_an_error_after_the_report(sealed: Path) -> None:
    done = CliRunner().invoke(main, ["reload", str(sealed), "--device", "cuda:7", "--no-write"])
    assert done.exit_code == 1 and "every byte equals its seal" in done.stdout
    assert "the bytes ended in host memory, not on cuda:7" in done.stderr


def test_a_signal_while_the_metadata_is_still_being_looked_at_ends_it_at_once(
    sealed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def look(*_: object, **__: object) -> None:
        signal.raise_signal(signal.SIGTERM)
        pytest.fail("it went on after the signal")

    monkeypatch.setattr(reload_command, "prepare", look)
    done = CliRunner().invoke(main, ["reload", str(sealed)])
    assert done.exit_code == 143 and "stopped by SIGTERM before anything was read" in done.stderr
