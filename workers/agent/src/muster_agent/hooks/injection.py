"""A fault that a drill raises inside a trainer: asked for by a file in the hook folder, and only where the trainer said
`allow_injection=True`."""

from __future__ import annotations

import os
from pathlib import Path

from muster_agent.hooks.paths import WriterName, injection_name


class InjectedFault(Exception):
    """Raised by `RunReporter.step` on behalf of a drill. Nothing is wrong with the training; let it end the process."""


def request_injection(directory: Path, writer: WriterName) -> None:
    """Have that process raise at its next step. Raises OSError where the folder does not take the file."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    os.close(os.open(directory / injection_name(writer), flags, 0o640))


def take_injection(directory: Path, writer: WriterName) -> bool:
    """Whether this process was asked to raise; asking counts once."""
    try:
        (directory / injection_name(writer)).unlink()
    except OSError:
        return False
    return True
