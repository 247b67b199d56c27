"""Colour for people at a terminal, and for nobody else."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import IO

import click

Paint = Callable[[str, str], str]
"""Takes a text that is fit to print and what it says (`good`, `bad`, `doubt`, `quiet`, `heading`)."""

_STYLES: dict[str, dict[str, str | bool]] = {
    "good": {"fg": "green"},
    "bad": {"fg": "red", "bold": True},
    "doubt": {"fg": "yellow"},
    "quiet": {"dim": True},
    "heading": {"bold": True},
}


def plain(text: str, _meaning: str) -> str:
    return text


def coloured(text: str, meaning: str) -> str:
    """Words never depend on colour alone: it only repeats what they say."""
    style = _STYLES.get(meaning)
    return click.style(text, **style) if style else text  # type: ignore[arg-type]


def paint_for(stream: IO[str]) -> Paint:
    """Colour where `stream` is a terminal that has it and NO_COLOR is not set."""
    wanted = not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return coloured if wanted and stream.isatty() else plain
