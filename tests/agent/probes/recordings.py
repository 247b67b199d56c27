"""Outputs of probes that were recorded elsewhere: `# name: value` lines on top say where and when."""

from __future__ import annotations

from pathlib import Path

RECORDED = Path(__file__).with_name("recorded")


def recorded(name: str) -> str:
    """What the program printed."""
    return "\n".join(line for line in (RECORDED / name).read_text().splitlines() if not line.startswith("# "))


def sources_of(path: Path) -> dict[str, str]:
    """The lines on top."""
    lines = [line[2:].partition(": ") for line in path.read_text().splitlines() if line.startswith("# ")]
    return {name: value for name, _, value in lines}
