"""elbencho, where it is installed: how it is called, and what its table of results says. `parse_*` is pure."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from muster_agent.probes.fio import FioRate

_MIB = 1 << 20


def command(
    paths: Sequence[str], size_bytes: int, *, result_file: str, block_bytes: int, threads: int, seconds: float
) -> list[str]:
    """Sequential reads around the page cache of `size_bytes` of each file; without `--write` nothing is written but the
    table."""
    return [
        "elbencho", "--read", "--direct", "--nolive", "--threads", str(threads), "--block", str(block_bytes),
        "--size", str(size_bytes), "--timelimit", f"{max(1.0, seconds):.0f}", "--csvfile", result_file, *paths,
    ]  # fmt: skip


def parse_elbencho(table: str) -> FioRate | str:
    """The last READ row's rate until the slowest thread was done, or half a sentence that says why there is none."""
    rows = [row for row in csv.DictReader(io.StringIO(table)) if row.get("operation") == "READ"]
    if not rows:
        return "elbencho wrote no READ row"
    try:
        read_bytes, seconds = int(float(rows[-1]["MiB [last]"]) * _MIB), float(rows[-1]["time ms [last]"]) / 1000
    except (KeyError, TypeError, ValueError):
        return "elbencho's READ row has no MiB and time"
    return FioRate(read_bytes, seconds) if read_bytes > 0 and seconds > 0 else "elbencho read nothing"
