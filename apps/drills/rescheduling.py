"""What a scheduler did between noticing a failure and launching the job again, piece by piece. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from apps.drills.failover import Record

ENDING, HOLD, QUEUE, STARTING = "ending", "hold", "queue", "starting"
_PIECES = (
    (ENDING, "failure_detected", "requeued"),
    (HOLD, "requeued", "eligible"),
    (QUEUE, "eligible", "job_started"),
    (STARTING, "job_started", "launch_started"),
)


@dataclass(frozen=True)
class Piece:
    """`what`: `ending` the scheduler ends what is left of the job, `hold` it does not even try to start it again,
    `queue` it waits for nodes, `starting` until the job's own script runs. Lies wholly inside `reschedule`."""

    what: str
    seconds: float


def pieces(records: Iterable[Record]) -> list[Piece]:
    """Of the first requeue among `records`, as far as its edges were recorded. Schedulers tell whole seconds, so an
    edge may seem to lie before the one that caused it: it is moved there."""
    first: dict[str, float] = {}
    for record in sorted(records, key=lambda one: one.at):
        first.setdefault(record.kind, record.at)
    found, reached = [], 0.0
    for what, begins, ends in _PIECES:
        if begins in first and ends in first:
            begin = max(first[begins], reached)
            end = max(first[ends], begin)
            found.append(Piece(what, end - begin))
            reached = end
    return found
