"""What tests of deploy/ share: outside programs, each skipped by name where it is missing (in CI that is a failure)."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
Runner = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run_program() -> Runner:
    """`run_program("nginx", "-t", ...)`: what it printed and its exit status."""

    def run(program: str, *arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
        found = shutil.which(program, path="/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
        if found is None:
            pytest.skip(f"the program {program} is not installed")
        return subprocess.run(
            [found, *map(str, arguments)],
            env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/nonexistent", **environment},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    return run
