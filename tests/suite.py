"""What `make test` runs: the suite on SQLite; with ALL=1 everything, then the database's part again on PostgreSQL."""

from __future__ import annotations

import os
import subprocess
import sys

# These touch neither the database nor Django; a second database proves nothing about them.
WITHOUT_DATABASE = ("tests/agent", "tests/demo", "tests/architecture", "tests/browser")


def main() -> int:
    everything = bool(os.environ.get("ALL"))
    marks = "not bench and not gpu" if everything else "not bench and not gpu and not slow"
    code = _pytest(["tests", "-m", marks])
    if everything and code == 0:
        ignored = [f"--ignore={path}" for path in WITHOUT_DATABASE]
        code = _pytest(["tests", "-m", marks, *ignored], MUSTER_TEST_DATABASE="postgres")
    return code


def _pytest(arguments: list[str], **environment: str) -> int:
    # A file stays in one process, so that its servers start once.
    command = [sys.executable, "-m", "pytest", "-rs", "-n", "2", "--dist", "loadfile", *arguments]
    return subprocess.run(command, env={**os.environ, **environment}, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
