"""docs/hooks.md names every call and every kind of record, and no others."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

from muster_agent.hooks import RunReporter
from muster_agent.protocol.wire import HookRecord

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "hooks.md").read_text(encoding="utf-8")


def table_cells(heading: str, column: int) -> str:
    section = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    rows = [line.split("|") for line in section.splitlines() if line.startswith("| `")]
    return "\n".join(row[column] for row in rows)


def test_every_public_call_is_in_the_table_and_no_other() -> None:
    calls = {name for name, _ in inspect.getmembers(RunReporter, inspect.isfunction) if not name.startswith("_")}
    assert set(re.findall(r"`(\w+)\(", table_cells("Records", 1))) == calls


def test_the_kinds_of_records_are_those_of_the_protocol() -> None:
    documented = set(re.findall(r"`(\w+)`", table_cells("Records", 2)))
    assert HookRecord.__doc__ is not None
    protocol = HookRecord.__doc__.partition("`kind`:")[2].partition(".")[0]
    assert documented == {word.strip() for word in protocol.replace("\n", " ").split(",")}
