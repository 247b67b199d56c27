"""Running something as a user who owns nothing. Root is let in whatever the mode of a file, so that a test which runs
as root, as in a container, proves nothing about permissions."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

NOBODY = 65534

# Everything is imported first: the interpreter's own files may be closed to that user, too.
_PRELUDE = f"""
import contextlib, encodings.ascii, importlib, os, pkgutil, sys
import muster_agent
for package in ("cli", "decide", "formats", "jobs", "manifest", "probes", "protocol", "storage"):
    found = importlib.import_module("muster_agent." + package)
    for one in pkgutil.iter_modules(found.__path__, found.__name__ + "."):
        if not one.name.endswith("_main"):
            with contextlib.suppress(ImportError):
                importlib.import_module(one.name)

if os.geteuid() == 0:
    os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY})
"""
_MUSTER = "from muster_agent.cli import main\nmain(sys.argv[1:])\n"


def run_as_nobody(script: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Python's `script`, with `arguments` in `sys.argv`."""
    command = [sys.executable, "-c", _PRELUDE + script, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, cwd="/")


def muster_as_nobody(*arguments: object) -> subprocess.CompletedProcess[str]:
    """`muster` with these arguments."""
    return run_as_nobody(_MUSTER, *arguments)


def let_others_in(place: Path) -> Path:
    """Let any user walk to `place`: pytest's own folders are closed to others."""
    for folder in (place, *place.parents):
        if folder == Path("/tmp"):
            break
        if folder.is_dir() and folder.stat().st_uid == os.geteuid():
            folder.chmod(0o755)
    return place
