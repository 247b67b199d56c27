"""What `make test` runs: the suite on SQLite; with ALL=1 everything, then the database's part again on PostgreSQL."""

from __future__ import annotations

import os
import subprocess
import sys

# The browser's driver keeps an event loop running in its process, in which Django refuses to work synchronously.
BROWSER = "tests/browser"
# These touch neither the database nor Django; a second database proves nothing about them.
WITHOUT_DATABASE = ("tests/agent", "tests/demo", "tests/architecture")


def main() -> int:
    everything = bool(os.environ.get("ALL"))
    marks = "not bench and not gpu" if everything else "not bench and not gpu and not slow"
    runs = [_pytest(["tests", f"--ignore={BROWSER}", "-m", marks]), _pytest([BROWSER, "-m", marks])]
    if everything:
        ignored = [f"--ignore={path}" for path in (BROWSER, *WITHOUT_DATABASE)]
        runs.append(_pytest(["tests", "-m", marks, *ignored], MUSTER_TEST_DATABASE="postgres"))
    return max(runs)


def _pytest(arguments: list[str], **environment: str) -> int:
    # A file stays in one process, so that its servers start once.
    command = [sys.executable, "-m", "pytest", "-rs", "-n", "2", "--dist", "loadfile", *arguments]
    return subprocess.run(command, env={**os.environ, **environment}, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
