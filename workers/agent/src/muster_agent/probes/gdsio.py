"""gdsio, where NVIDIA's tools are installed: how it is called, and what its line says. `parse_*` is pure."""

from __future__ import annotations

import re

from muster_agent.probes.fio import FioRate

_LINE = re.compile(
    r"IoType: READ XferType: (?P<path>\S+).*?DataSetSize: (?P<moved>\d+)/\d+\(KiB\)"
    r".*?Throughput: (?P<rate>[0-9.]+) GiB/sec.*?total_time (?P<seconds>[0-9.]+) secs"
)
_AGREES_RATIO = 0.02
"""Bytes over time must be the rate that it prints itself, up to rounding."""


def command(path: str, size_bytes: int, *, gpu: int, block_bytes: int, threads: int, seconds: float) -> list[str]:
    """Sequential reads of one file into a GPU's memory by cuFile; `-I 0` reads, nothing is written."""
    return [
        "gdsio", "-f", path, "-d", str(gpu), "-w", str(threads), "-s", f"{size_bytes // 1024}K",
        "-i", f"{block_bytes // 1024}K", "-x", "0", "-I", "0", "-T", f"{max(1.0, seconds):.0f}",
    ]  # fmt: skip


def parse_gdsio(stdout: str) -> FioRate | str:
    """The rate of its READ line, or half a sentence that says why there is none."""
    match = _LINE.search(stdout.replace("\n", " "))
    if match is None:
        said = next((line for line in stdout.splitlines() if line.strip()), "it printed nothing")
        return f"gdsio gave no READ line: {said.strip()[:200]}"
    read_bytes, seconds = int(match["moved"]) * 1024, float(match["seconds"])
    told = float(match["rate"]) * (1 << 30)
    if read_bytes <= 0 or seconds <= 0:
        return "gdsio read nothing"
    if abs(read_bytes / seconds - told) > _AGREES_RATIO * told + 2**20:
        return f"gdsio contradicts itself: {read_bytes} bytes in {seconds} s are not {match['rate']} GiB/s"
    return FioRate(read_bytes, seconds)


def transfer_of(stdout: str) -> str:
    """What it calls its way, such as GPUD. cuFile may have fallen back without a word, so this proves nothing."""
    match = _LINE.search(stdout.replace("\n", " "))
    return match["path"] if match else ""
