"""fio's report, as it really looks, and a real run where fio is installed."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from muster_agent.probes.fio import FioRate, command, parse_fio, read_fio

REPORT = {
    "fio version": "fio-3.33",
    "jobs": [
        {"jobname": "ceiling", "error": 0, "read": {"io_bytes": 1200000000, "runtime": 400, "bw_bytes": 3000000000}}
    ],
}


def test_lines_before_the_report_are_passed_over() -> None:
    stdout = "note: both iodepth >= 1 and synchronous I/O engine are selected\n" + json.dumps(REPORT)
    assert parse_fio(stdout) == FioRate(1_200_000_000, 0.4)


@pytest.mark.parametrize(
    ("stdout", "stderr", "said"),
    [
        ("", "fio: engine io_uring not loadable\n", "engine io_uring not loadable"),
        ("", "", "it printed no report"),
        ("{", "", "fio failed"),
        (json.dumps({"jobs": []}), "", "fio failed"),
        (json.dumps({"jobs": [{"error": 22}]}), "", "error 22"),
        (json.dumps({"jobs": [{"error": 0, "read": {"io_bytes": 0, "runtime": 0}}]}), "", "read nothing"),
    ],
)
def test_a_report_without_a_rate_says_why(stdout: str, stderr: str, said: str) -> None:
    reason = parse_fio(stdout, stderr)
    assert isinstance(reason, str) and said in reason


def test_fio_may_neither_write_nor_create() -> None:
    argv = command(["/a:b", "/c"], engine="psync", block_bytes=4096, depth=1, seconds=2)
    assert {"--readonly", "--allow_file_create=0", "--rw=read", "--filename=/a\\:b:/c"} <= set(argv)


def test_a_real_run_reads_the_file_and_a_missing_one_is_not_made(tmp_path: Path) -> None:
    if shutil.which("fio") is None:
        pytest.skip("the program fio is not installed")
    (tmp_path / "data").write_bytes(os.urandom(8 << 20))
    rate = read_fio([str(tmp_path / "data")], engine="psync", block_bytes=1 << 20, depth=1, seconds=5)
    assert isinstance(rate, FioRate) and rate.read_bytes == 8 << 20
    assert isinstance(read_fio([str(tmp_path / "none")], engine="psync", block_bytes=4096, depth=1, seconds=1), str)
    assert not (tmp_path / "none").exists()
