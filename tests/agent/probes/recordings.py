"""Outputs of probes: `recorded/` on a machine, ours or that of a public report, and `composed/` by hand in the form of
the real ones, which prove that we read the form and nothing about any machine. `# name: value` lines on top say which.
"""

from __future__ import annotations

from pathlib import Path

RECORDED, COMPOSED = (Path(__file__).with_name(name) for name in ("recorded", "composed"))


def recorded(name: str) -> str:
    """What the program printed."""
    return _body(RECORDED / name)


def composed(name: str) -> str:
    """What a program would print."""
    return _body(COMPOSED / name)


def example(name: str) -> str:
    """One or the other."""
    return recorded(name) if (RECORDED / name).exists() else composed(name)


def sources_of(path: Path) -> dict[str, str]:
    """The lines on top."""
    lines = [line[2:].partition(": ") for line in path.read_text().splitlines() if line.startswith("# ")]
    return {name: value for name, _, value in lines}


def _body(path: Path) -> str:
    return "\n".join(line for line in path.read_text().splitlines() if not line.startswith("# "))
