"""Places where tests kill the process: a crash at any of them must lose nothing. Nothing happens unless the environment
names one."""

from __future__ import annotations

import os
import signal

VARIABLE = "MUSTER_FAILPOINT"
POINTS = (
    "copy.surveyed",
    "copy.begun",
    "copy.written",
    "copy.closed",
    "prove.read",
    "switch.manifest",
    "switch.renamed",
    "switch.recorded",
    "retire.checked",
    "retire.aside",
    "retire.half",
    "retire.emptied",
    "retire.removed",
    "retire.recorded",
)
"""In the order in which a move passes them."""
REPAIR_POINTS = (
    "repair.surveyed",
    "repair.noted",
    "repair.half",
    "repair.written",
    "repair.settled",
    "repair.proven",
    "repair.recorded",
)
"""In the order in which a repair passes them."""


def failpoint(name: str) -> None:
    """End this process at once where the environment says so, as `kill -9` would."""
    if os.environ.get(VARIABLE) == name:
        os.kill(os.getpid(), signal.SIGKILL)
