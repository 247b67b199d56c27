"""What must hold of every history, whatever befell the fleet. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from tests.simulation.history import History, TaskRow, Work

MAX_RUNS = 3
CLOCK_ERROR_SECONDS = 1.0
"""A node takes the server's clock from an exchange that took at most a second."""
LEGAL = {
    "queued": {"leased", "done", "lost"},
    "leased": {"queued", "acked", "done"},
    "acked": {"running", "cancelling", "queued", "done", "reported", "orphaned"},
    "running": {"cancelling", "queued", "done", "reported", "orphaned"},
    "cancelling": {"reported", "done", "orphaned", "lost"},
    "orphaned": {"queued", "lost", "done"},
    "reported": {"done"},
    "done": set[str](),
    "lost": set[str](),
}
"""The state machine of docs/protocol.md. A late result leaves a row from a state to itself."""


def violations(history: History) -> list[str]:
    """Everything that must not be, in words; empty where all is well."""
    works: dict[str, list[Work]] = defaultdict(list)
    for work in history.works:
        works[work.attempt[0]].append(work)
    found = [f"agent {agent} was refused for good" for agent in history.revoked]
    for task in history.tasks:
        own = works[task.id]
        for problem in (
            *_moves(task),
            *_end(task, own),
            *_work(task, own),
            *_events(task, history),
            *_leases(task, history),
        ):
            found.append(f"task {task.id}: {problem}")
    return found + [f"barrier {group}: {problem}" for group, problem in _barriers(history, works)]


def _moves(task: TaskRow) -> Iterator[str]:
    state = "queued"
    for old, new in task.moves:
        if old == new:
            continue
        if old != state or new not in LEGAL[old]:
            yield f"moved from {old} to {new} while it was {state}"
        state = new
    if state != task.state:
        yield f"is {task.state} although its last move led to {state}"
    if Counter(task.moves)["reported", "done"] > 1:
        yield "was reported more than once"


def _end(task: TaskRow, works: list[Work]) -> Iterator[str]:
    if task.state not in ("done", "lost"):
        yield f"never ended: it is {task.state}"
    if task.outcome == "done":
        if not any(work.attempt[1] == task.attempt and work.ended == "done" for work in works):
            yield f"is done, but no work of attempt {task.attempt} was"
        if task.result != {"task_id": task.id, "attempt": task.attempt}:
            yield f"has the result {task.result} of another attempt than {task.attempt}"


def _work(task: TaskRow, works: list[Work]) -> Iterator[str]:
    in_order = sorted(works, key=lambda work: work.began_at)
    for one, other in zip(in_order, in_order[1:], strict=False):
        if one.ended_at is None or other.began_at < one.ended_at:
            yield f"was worked on twice at a time: attempts {one.attempt[1]} and {other.attempt[1]}"
        if other.attempt[1] <= one.attempt[1]:
            yield f"attempt {other.attempt[1]} began after attempt {one.attempt[1]}"
    if not task.idempotent and len(works) > 1:
        yield f"may run once and did {len(works)} times"
    if task.runs > MAX_RUNS:
        yield f"was run {task.runs} times"
    if task.moves and task.moves[-1][0] in ("queued", "leased") and task.runs == 0 and works and task.outcome == "done":
        yield "ended before anybody took it up, and was worked on"
    if task.attempt != sum(move == ("queued", "leased") for move in task.moves):
        yield f"counts {task.attempt} hand-outs"


def _events(task: TaskRow, history: History) -> Iterator[str]:
    for attempt, stored in task.seqs.items():
        emitted = history.emitted[task.id, attempt]
        if len(set(stored)) != len(stored):
            yield f"attempt {attempt} has events twice"
        if not set(stored) <= set(emitted):
            yield f"attempt {attempt} has events that nobody sent"
    if task.outcome == "done" and sorted(task.seqs.get(task.attempt, [])) != history.emitted[task.id, task.attempt]:
        yield f"is done, but not every event of attempt {task.attempt} is stored"


def _leases(task: TaskRow, history: History) -> Iterator[str]:
    seen = history.seen[task.id]
    for (one, one_ends), (other, other_ends) in zip(seen, seen[1:], strict=False):
        if other < one:
            yield f"its attempt went back from {one} to {other}"
        if one == other and one_ends is not None and other_ends is not None and other_ends < one_ends:
            yield f"the lease of attempt {one} was cut short"


def _barriers(history: History, works: dict[str, list[Work]]) -> Iterator[tuple[str, str]]:
    for task in history.tasks:
        group = history.groups.get(task.group_id or "")
        if group is None or not works[task.id]:
            continue
        first = min(work.began_at for work in works[task.id])
        if group.state != "released" or group.starts_at is None:
            yield task.group_id or "", f"work began although it is {group.state}"
        elif first < group.starts_at - CLOCK_ERROR_SECONDS:
            yield task.group_id or "", f"work began {group.starts_at - first:.1f} s before its start"
