"""What leaves a node while a task runs."""

from __future__ import annotations

from pathlib import Path

from muster_agent.runtime.clock import ServerClock
from muster_agent.runtime.reporter import SpoolReporter
from muster_agent.runtime.spool import Spool


def test_what_a_job_counts_leaves_with_its_next_progress(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool.sqlite3")
    reporter = SpoolReporter(("tsk_1", 1), spool, ServerClock(), lambda: None)
    reporter.tell({"entries": 7, "folders_left": 2})
    reporter.progress("inventory", 1, 3)
    events = [event for event in spool.events(("tsk_1", 1), 10) if event.kind == "progress"]
    assert [(one.done_bytes, one.data) for one in events] == [(1, {"entries": 7, "folders_left": 2})]
    spool.close()
