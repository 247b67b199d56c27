"""The counters of the kernel module nvidia-fs. They are off by default, and then zeros mean nothing; they never count
reads that went peer to peer without the module. cuFile's own counters decide; these are shown beside them."""

from __future__ import annotations

import re

import msgspec

STATS_PATH = "/proc/driver/nvidia-fs/stats"


class NvidiaFs(msgspec.Struct, frozen=True, kw_only=True):
    """`counts_reads` None where the module does not say whether it counts; `reads` None where it does not count."""

    version: str | None = None
    counts_reads: bool | None = None
    reads: int | None = None


def read_nvidia_fs() -> NvidiaFs | None:
    """None where the module is not loaded."""
    try:
        with open(STATS_PATH, encoding="utf-8", errors="replace") as file:
            return parse_nvidia_fs(file.read())
    except OSError:
        return None


def parse_nvidia_fs(text: str) -> NvidiaFs:
    """What the module's statistics say; anything else gives a value without facts."""
    version = re.search(r"NVFS Driver\(version:\s*([^)\s]+)", text)
    counting = re.search(r"^IO stats:\s*(\w+)", text, re.MULTILINE)
    reads = re.search(r"^Reads\s*:\s*n=(\d+)", text, re.MULTILINE)
    counts_reads = counting[1] == "Enabled" if counting else None
    return NvidiaFs(
        version=version[1] if version else None,
        counts_reads=counts_reads,
        reads=int(reads[1]) if reads and counts_reads is not False else None,
    )


def reads_between(before: NvidiaFs | None, after: NvidiaFs | None) -> int | None:
    """Reads through the module in between, by everybody on the node; None where it did not count."""
    if before is None or after is None or before.reads is None or after.reads is None:
        return None
    return after.reads - before.reads
