"""The arithmetic of a failover: from the fault to the first training step beyond the checkpoint, by phase. Pure.

All times are seconds on one clock (the server's). Every boundary is a record that somebody made when it happened; no
phase is what was left over. Time that no record covers is `unattributed_seconds`. With many ranks a phase lasts until
its last rank is through, as the next collective operation does.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from apps.core.phases import PHASES, Phase

CLOCK_TOLERANCE_SECONDS = 1.0
_TRAINER_PHASES = PHASES[PHASES.index(Phase.LAUNCH) :]


@dataclass(frozen=True, kw_only=True)
class Record:
    """One record of a training hook. `kind`, `phase` and `edge` are those of `HookRecord`; `rank` None is a process
    beside the ranks, such as a launcher."""

    kind: str
    at: float
    attempt: str
    rank: int | None = None
    step: int | None = None
    phase: str = ""
    edge: str = ""


@dataclass(frozen=True, kw_only=True)
class Step:
    """Step `step` of `attempt` was done at `at`."""

    attempt: str
    step: int
    at: float


@dataclass(frozen=True, kw_only=True)
class Boundary:
    """One edge on the way back and the record that drew it."""

    at: float
    what: str
    attempt: str


@dataclass(frozen=True, kw_only=True)
class Segment:
    """`phase` from `begin` to `end`, both recorded."""

    phase: Phase
    begin: float
    end: float


@dataclass(frozen=True, kw_only=True)
class Timeline:
    """The way back. `seconds` is None until a step beyond the checkpoint was computed; `phases` holds only what was
    measured and, with `unattributed_seconds`, adds up to `seconds`."""

    seconds: float | None
    attempt: str | None
    resumed_from_step: int | None
    first_step: int | None
    phases: dict[str, float]
    unattributed_seconds: float | None
    boundaries: tuple[Boundary, ...]
    launch_count: int
    detected_at: float | None


def timeline(
    *,
    fault_at: float,
    records: Iterable[Record],
    steps: Iterable[Step],
    failed_attempt: str,
    fault_is_exact: bool = True,
) -> Timeline:
    """What the records and steps after `fault_at` say about the way back from the end of `failed_attempt`.

    `fault_is_exact` False: only the last sign of life is known, so `detect` is not measured and the time up to the
    detection stays unattributed. Records may come in any order, and late ones change the answer: ask again.
    """
    after = _since(records, fault_at, failed_attempt)
    back = _first_step_beyond(after, steps, fault_at, failed_attempt)
    until = back.at if back else None
    within = [record for record in after if until is None or record.at <= until]
    segments = _segments(within, fault_at, fault_is_exact, back, failed_attempt)
    phases, covered = _critical_path(segments, fault_at)
    seconds = back.at - fault_at if back else None
    detected = next((record.at for record in within if record.kind == "failure_detected"), None)
    return Timeline(
        seconds=seconds,
        attempt=back.attempt if back else None,
        resumed_from_step=resumed_step(after, back.attempt) if back else None,
        first_step=back.step if back else None,
        phases=phases,
        unattributed_seconds=max(0.0, seconds - covered) if seconds is not None else None,
        boundaries=_boundaries(within, fault_at, fault_is_exact, back, failed_attempt),
        launch_count=len({record.attempt for record in within if record.attempt != failed_attempt}),
        detected_at=detected,
    )


def _since(records: Iterable[Record], fault_at: float, failed_attempt: str) -> list[Record]:
    """Records from the fault on, in order. A detection of this failure that two clocks place just before it is moved
    to it: an effect is not earlier than its cause. Where nobody was left to report a failure, the scheduler's requeue
    is what detected it."""
    records = list(records)
    reported = {record.attempt for record in records if record.kind == "failure_detected"}
    requeues = [one for one in records if one.kind == "requeued" and one.attempt not in reported]
    records += [replace(one, kind="failure_detected") for one in requeues]
    kept = []
    for record in records:
        detects = record.kind in ("failure_detected", "requeued") and record.attempt == failed_attempt
        if detects and fault_at - CLOCK_TOLERANCE_SECONDS <= record.at < fault_at:
            kept.append(replace(record, at=fault_at))
        elif record.at >= fault_at:
            kept.append(record)
    return sorted(kept, key=lambda one: (one.at, one.kind, one.phase, one.edge, -1 if one.rank is None else one.rank))


def resumed_step(records: Iterable[Record], attempt: str) -> int | None:
    """The step whose whole state `attempt` has in place; the lowest where ranks disagree."""
    steps = [r.step for r in records if r.kind == "resumed_from" and r.attempt == attempt and r.step is not None]
    return min(steps, default=None)


def lost_work(
    *, fault_at: float, steps: Iterable[Step], resumed_from_step: int | None
) -> tuple[int | None, float | None]:
    """(steps, seconds) of work that has to be done again: from the state of `resumed_from_step` to the fault.

    Steps count from the last one done before the fault. Seconds run from when the checkpoint's step was done, the
    latest time before the fault; None where that was never reported.
    """
    if resumed_from_step is None:
        return None, None
    before = [step for step in steps if step.at <= fault_at]
    if not before:
        return None, None
    last = max(before, key=_in_order)
    at_checkpoint = [step.at for step in before if step.step == resumed_from_step]
    lost_seconds = fault_at - max(at_checkpoint) if at_checkpoint else None
    return max(0, last.step - resumed_from_step), lost_seconds


def _first_step_beyond(
    records: Sequence[Record], steps: Iterable[Step], fault_at: float, failed_attempt: str
) -> Step | None:
    """The earliest step after the fault that is beyond the checkpoint which its own attempt resumed from."""
    resumed = {attempt: resumed_step(records, attempt) for attempt in {record.attempt for record in records}}
    beyond = [
        step
        for step in steps
        if step.at >= fault_at
        and step.attempt != failed_attempt
        and (from_step := resumed.get(step.attempt)) is not None
        and step.step > from_step
    ]
    return min(beyond, key=_in_order, default=None)


def _in_order(step: Step) -> tuple[float, int]:
    """Steps that a log's follower saw in one look carry one time."""
    return step.at, step.step


def _segments(
    records: Sequence[Record], fault_at: float, fault_is_exact: bool, back: Step | None, failed_attempt: str
) -> list[Segment]:
    restarts = [record for record in records if record.attempt != failed_attempt]
    found = _scheduler_segments(records, fault_at, fault_is_exact)
    for attempt in dict.fromkeys(record.attempt for record in restarts):
        own = [record for record in restarts if record.attempt == attempt]
        for phase in _TRAINER_PHASES[:-1]:
            found += _paired(phase, _edges(phase, own))
    return found + _first_step_segment(restarts, back, max((one.end for one in found), default=fault_at))


def _scheduler_segments(records: Sequence[Record], fault_at: float, fault_is_exact: bool) -> list[Segment]:
    """`detect` from the fault to the first detection; `reschedule` from each detection to the launch after it."""
    found = []
    detected: float | None = None
    first = True
    for record in records:
        if record.kind == "failure_detected" and detected is None:
            if first and fault_is_exact:
                found.append(Segment(phase=Phase.DETECT, begin=fault_at, end=record.at))
            first, detected = False, record.at
        elif record.kind == "launch_started" and detected is not None:
            found.append(Segment(phase=Phase.RESCHEDULE, begin=detected, end=record.at))
            detected = None
    return found


def _edges(phase: Phase, records: Sequence[Record]) -> list[tuple[float, str]]:
    """(time, begin or end) of `phase` in one attempt. A launch that no process timed ends as the ranks start."""
    edges = [(r.at, r.edge) for r in records if r.kind == "phase" and r.phase == phase]
    if phase is not Phase.LAUNCH:
        return edges
    timed = any(edge == "end" for _at, edge in edges)
    edges += [(r.at, "begin") for r in records if r.kind == "launch_started"]
    if not timed:
        edges += [(r.at, "end") for r in records if r.kind == "process_started"]
    return sorted(edges)


def _paired(phase: Phase, edges: Sequence[tuple[float, str]]) -> list[Segment]:
    """Begin to end, across processes: the first begin opens, every end up to the next begin is another rank's and
    moves the end. A begin that never ended, or an end that never began, is not measured."""
    found: list[Segment] = []
    begin: float | None = None
    begun_after_end = True
    for at, edge in edges:
        if edge == "begin":
            begin = at if begun_after_end or begin is None else begin
            begun_after_end = False
        elif begin is not None:
            if begun_after_end and found:
                found[-1] = Segment(phase=phase, begin=found[-1].begin, end=at)
            else:
                found.append(Segment(phase=phase, begin=begin, end=at))
            begun_after_end = True
    return found


def _first_step_segment(records: Sequence[Record], back: Step | None, others_end: float) -> list[Segment]:
    """From the recorded begin to the step beyond; else from when the last rank's state was in place, and no phase that
    was timed was still going on."""
    if back is None:
        return []
    own = [record for record in records if record.attempt == back.attempt and record.at <= back.at]
    begins = [r.at for r in own if r.kind == "phase" and r.phase == Phase.FIRST_STEP and r.edge == "begin"]
    in_place = [r.at for r in own if r.kind == "resumed_from"]
    if not begins and not in_place:
        return []
    begin = min(begins) if begins else min(max(*in_place, others_end), back.at)
    return [Segment(phase=Phase.FIRST_STEP, begin=begin, end=back.at)]


def _critical_path(segments: Iterable[Segment], fault_at: float) -> tuple[dict[str, float], float]:
    """Seconds by phase with no moment counted twice (the phase that began first keeps it), and their sum."""
    seconds: dict[str, float] = {}
    reached = fault_at
    for segment in sorted(segments, key=lambda one: (one.begin, PHASES.index(one.phase))):
        begin = max(segment.begin, reached)
        seconds[segment.phase] = seconds.get(segment.phase, 0.0) + max(0.0, segment.end - begin)
        reached = max(reached, segment.end)
    ordered = {phase.value: seconds[phase] for phase in PHASES if phase in seconds}
    return ordered, sum(ordered.values())


def _boundaries(
    records: Sequence[Record], fault_at: float, fault_is_exact: bool, back: Step | None, failed_attempt: str
) -> tuple[Boundary, ...]:
    fault = "fault injected" if fault_is_exact else "last sign of life before the fault"
    found = [Boundary(at=fault_at, what=fault, attempt=failed_attempt)]
    found += [Boundary(at=r.at, what=_words(r), attempt=r.attempt) for r in records if r.kind in _BOUNDARY_KINDS]
    if back:
        found.append(Boundary(at=back.at, what=f"step {back.step} done", attempt=back.attempt))
    return tuple(found)


_SCHEDULER_WORDS = {
    "requeued": "the scheduler requeued the job",
    "eligible": "the scheduler's hold on the job ended",
    "job_started": "the scheduler started the job again",
}
_BOUNDARY_KINDS = (
    "failure_detected", "launch_started", "process_started", "phase", "resumed_from", *_SCHEDULER_WORDS,
)  # fmt: skip


def _words(record: Record) -> str:
    who = "" if record.rank is None else f", rank {record.rank}"
    if record.kind == "phase":
        return f"{record.phase} {record.edge}{who}"
    if record.kind == "resumed_from":
        return f"state of step {record.step} in place{who}"
    return _SCHEDULER_WORDS.get(record.kind, record.kind.replace("_", " ")) + who
