"""What `make test` runs: the suite on SQLite; with ALL=1 everything, then the database's part again on PostgreSQL."""

from __future__ import annotations

import os
import subprocess
import sys

# The browser's driver keeps an event loop running in its process, in which Django refuses to work synchronously.
BROWSER = "tests/browser"
OPT_IN = "not bench and not gpu and not kubernetes"
# Many tests wait for servers and leases rather than compute.
PROCESSES = str((os.cpu_count() or 1) + 1)
# How many malformed inputs each reader is tried with where not everything runs; ALL=1 takes each test's own number.
FEW_EXAMPLES = "30"
# A second database proves nothing about what touches none, or only through the API, or brings a PostgreSQL of its own.
WITHOUT_DATABASE = (
    "tests/agent",
    "tests/architecture",
    "tests/client",
    "tests/contract/test_drill_in_bucket.py",
    "tests/contract/test_drills_on_slurm.py",
    "tests/contract/test_transfers_among_crashes.py",
    "tests/demo",
    "tests/deploy",
    "tests/examples",
    "tests/servers",
    "tests/simulation",
)
# Of one run. Something that hangs is then told with the tests' names, and not by whoever waits for all of them.
MOST_SECONDS = "--session-timeout=2400"


def main() -> int:
    everything = bool(os.environ.get("ALL"))
    marks = OPT_IN if everything else f"{OPT_IN} and not slow"
    if not everything:
        os.environ.setdefault("MUSTER_FUZZ_EXAMPLES", FEW_EXAMPLES)
    # A file stays in one process, so that its servers start once; of the browser's, any process takes the next page.
    runs = [
        _pytest(["tests", f"--ignore={BROWSER}", "--dist", "loadfile", "-m", marks]),
        _pytest([BROWSER, "--dist", "loadgroup", "-m", marks]),
    ]
    if everything:
        ignored = [f"--ignore={path}" for path in (BROWSER, *WITHOUT_DATABASE)]
        arguments = ["tests", "--dist", "loadfile", "-m", marks, *ignored]
        runs.append(_pytest(arguments, MUSTER_TEST_DATABASE="postgres"))
    return max(runs)


def _pytest(arguments: list[str], **environment: str) -> int:
    command = [sys.executable, "-m", "pytest", "-rs", "-n", PROCESSES, MOST_SECONDS, *arguments]
    return subprocess.run(command, env={**os.environ, **environment}, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
