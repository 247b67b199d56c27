"""gdsio's line and elbencho's table as they really look, and programs that are ended."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from muster_agent.jobs.control import Cancelled, JobControl
from muster_agent.probes import elbencho, gdsio
from muster_agent.probes.fio import FioRate
from muster_agent.probes.program import ProgramFailed, run_program

from tests.agent.probes.recordings import recorded


@pytest.mark.parametrize(
    ("name", "gib", "seconds", "transfer"),
    [
        ("gdsio-gpud.txt", 6.844410, 1.164842, "GPUD"),
        ("gdsio-timed.txt", 1.564272, 9.826353, "GPUD"),
        ("gdsio-cpu-gpu.txt", 1.428755, 9.562250, "CPU_GPU"),
    ],
)
def test_gdsios_line_gives_bytes_and_time_that_agree_with_its_own_rate(
    name: str, gib: float, seconds: float, transfer: str
) -> None:
    text = recorded(name)
    rate = gdsio.parse_gdsio(text)
    assert isinstance(rate, FioRate)
    assert rate.read_bytes / rate.seconds / 2**30 == pytest.approx(gib, rel=0.02)
    assert rate.seconds == seconds
    assert gdsio.transfer_of(text) == transfer


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "printed nothing"),
        ("file open failed : Invalid argument", "Invalid argument"),
        ("IoType: WRITE XferType: GPUD Threads: 1 DataSetSize: 4/4(KiB)", "no READ line"),
        (recorded("gdsio-gpud.txt").replace("6.844410", "68.44410"), "contradicts itself"),
    ],
)
def test_a_line_without_a_rate_to_trust_says_why(text: str, said: str) -> None:
    reason = gdsio.parse_gdsio(text)
    assert isinstance(reason, str) and said in reason


def test_elbenchos_table_gives_the_read_until_the_slowest_thread_was_done() -> None:
    rate = elbencho.parse_elbencho(recorded("elbencho-3.1.csv"))
    assert rate == FioRate(8192 * 2**20, 0.905)


@pytest.mark.parametrize(
    ("table", "said"),
    [("", "no READ row"), ("operation\nWRITE\n", "no READ row"), ("operation,MiB [last]\nREAD,\n", "no MiB and time")],
)
def test_a_table_without_a_read_says_so(table: str, said: str) -> None:
    reason = elbencho.parse_elbencho(table)
    assert isinstance(reason, str) and said in reason


def test_both_commands_only_read() -> None:
    read = gdsio.command("/ckpt/a", 10 << 20, gpu=1, block_bytes=4 << 20, threads=8, seconds=5)
    assert read[read.index("-I") + 1] == "0" and read[read.index("-d") + 1] == "1"
    table = elbencho.command(["/ckpt/a"], 4 << 20, result_file="/tmp/r", block_bytes=4 << 20, threads=8, seconds=5)
    assert "--read" in table and not {"--write", "-w", "--delfiles", "-F", "--mkdirs", "-d"} & set(table)


def test_a_program_that_is_cancelled_or_late_ends_with_all_its_children(tmp_path: Path) -> None:
    control, pid_file = JobControl(), tmp_path / "pid"
    argv = ["sh", "-c", f"sleep 60 & echo $! > {pid_file}; wait"]

    def check() -> None:
        if pid_file.exists() and pid_file.read_text().strip():
            control.cancel()
        control.check()

    began = time.monotonic()
    with pytest.raises(Cancelled):
        run_program(argv, seconds=60, check=check)
    assert time.monotonic() - began < 10
    assert ended(int(pid_file.read_text()))
    with pytest.raises(ProgramFailed, match="did not end in time"):
        run_program(["sleep", "60"], seconds=0.2)
    with pytest.raises(ProgramFailed, match="could not be started"):
        run_program(["/no/such/program"], seconds=1)


def ended(pid: int) -> bool:
    for _try in range(50):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except FileNotFoundError:
            return True
        if state == "Z" or not os.path.exists(f"/proc/{pid}"):
            return True
        time.sleep(0.1)
    return False
