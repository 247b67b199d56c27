"""What training processes report through the agents: launches, phases, saves, steps. Taken in twice, it counts once."""

from __future__ import annotations

import math
import posixpath
from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
from django.db import transaction
from django.db.models import Max
from muster_agent.protocol.trust import Trust
from muster_agent.protocol.wire import HookRecord

from apps.checkpoints.evidence import add_evidence
from apps.checkpoints.findings import clean
from apps.checkpoints.models import Placement, RunAttempt, RunEvent, StepReport, TrainingRun, TrustEvidence
from apps.checkpoints.rescans import SAVE_FINISHED, note_saves
from apps.checkpoints.runs import ensure_runs, is_name
from apps.fleet.models import Agent

ATTEMPT = "attempt"
STEP = "step"
RESUMED_FROM = "resumed_from"
_ENDINGS = frozenset({"process_ended", "failure_detected"})
_MAX_INTEGER = 2**63 - 1
_MAX_SMALL_INTEGER = 2**31 - 1
_MAX_DATA_CHARACTERS = 8000
_LATEST_UNIX_SECONDS = 32503680000.0  # the year 3000; a clock beyond it is no clock
AttemptKey = tuple[str, str]


@transaction.atomic
def ingest_records(*, agent: Agent, records: Sequence[HookRecord]) -> int:
    """Record what the hooks on the agent's node wrote; gives how many records could be used.

    Records that came before are recognised by (source, seq), steps by (attempt, step). A record that no row can hold
    is left out: it would be refused for ever, and block those behind it.
    """
    usable = [record for record in records if _is_usable(record)]
    if not usable:
        return 0
    runs = ensure_runs(agent.node.cluster, {record.run for record in usable})
    attempts = _ensure_attempts(runs, usable, agent)
    fresh = _new_events(usable)
    by_attempt: dict[AttemptKey, list[HookRecord]] = defaultdict(list)
    for record in usable:
        by_attempt[runs[record.run].pk, record.attempt].append(record)
    RunEvent.objects.bulk_create(
        [_event(record, attempts[runs[record.run].pk, record.attempt], agent) for record in fresh],
        ignore_conflicts=True,
    )
    StepReport.objects.bulk_create(
        [report for key, of_attempt in by_attempt.items() for report in _reports(attempts[key], of_attempt)],
        ignore_conflicts=True,
    )
    changed = [attempts[key] for key, of_attempt in by_attempt.items() if _follow(attempts[key], of_attempt)]
    RunAttempt.objects.bulk_update(changed, _FOLLOWED)
    _note_resumed(list(attempts.values()))
    note_saves(agent, [record for record in fresh if record.kind == SAVE_FINISHED], [run.pk for run in runs.values()])
    return len(usable)


def _is_usable(record: HookRecord) -> bool:
    texts_fit = (
        is_name(record.run)
        and 0 < len(record.attempt) <= 128
        and 0 < len(record.source) <= 64
        and 0 < len(record.kind) <= 24
        and all(clean(text, len(text)) == text for text in (record.attempt, record.source, record.kind))
    )
    numbers = ((record.seq, _MAX_INTEGER), (record.step or 0, _MAX_INTEGER))
    numbers_fit = all(0 <= number <= limit for number, limit in numbers)
    times_fit = 0 <= record.at_unix_seconds <= _LATEST_UNIX_SECONDS and math.isfinite(record.mono_seconds)
    return texts_fit and numbers_fit and times_fit and (record.kind != STEP or record.step is not None)


def _ensure_attempts(
    runs: dict[str, TrainingRun], records: Sequence[HookRecord], agent: Agent
) -> dict[AttemptKey, RunAttempt]:
    wanted: dict[AttemptKey, float] = {}
    for record in records:
        key = (runs[record.run].pk, record.attempt)
        wanted[key] = min(wanted.get(key, record.at_unix_seconds), record.at_unix_seconds)
    known = _attempts(wanted)
    fresh = [
        RunAttempt(run_id=run_id, launch_id=launch_id, agent=agent, started_at=_at(began), last_report_at=_at(began))
        for (run_id, launch_id), began in sorted(wanted.items())
        if (run_id, launch_id) not in known
    ]
    RunAttempt.objects.bulk_create(fresh, ignore_conflicts=True)
    return _locked([row.pk for row in (_attempts(wanted) if fresh else known).values()])


def _attempts(keys: Iterable[AttemptKey]) -> dict[AttemptKey, RunAttempt]:
    wanted = set(keys)
    rows = RunAttempt.objects.filter(
        run__in={run for run, _launch in wanted}, launch_id__in={launch for _run, launch in wanted}
    )
    return {(row.run_id, row.launch_id): row for row in rows if (row.run_id, row.launch_id) in wanted}


def _locked(attempt_ids: Sequence[str]) -> dict[AttemptKey, RunAttempt]:
    """Read again under a lock: another agent may forward the same launch, and the later write must see the earlier.
    (SQLite has no row locks and needs none: its transactions begin IMMEDIATE, one writer at a time.)"""
    rows = RunAttempt.objects.filter(pk__in=attempt_ids).order_by("pk").select_for_update()
    return {(row.run_id, row.launch_id): row for row in rows}


def _new_events(records: Sequence[HookRecord]) -> list[HookRecord]:
    """All but steps, without those that were taken in before (a conflict would only be ignored; this saves the row)."""
    events = {(record.source, record.seq): record for record in records if record.kind != STEP}
    known = set(
        RunEvent.objects.filter(
            source__in={source for source, _seq in events}, seq__in={seq for _source, seq in events}
        ).values_list("source", "seq")
    )
    return [events[key] for key in sorted(events) if key not in known]


def _event(record: HookRecord, attempt: RunAttempt, agent: Agent) -> RunEvent:
    return RunEvent(
        run_id=attempt.run_id,
        attempt=attempt,
        agent=agent,
        source=record.source,
        seq=record.seq,
        kind=record.kind,
        at=_at(record.at_unix_seconds),
        mono_seconds=record.mono_seconds,
        rank=_small(record.rank),
        pid=_small(record.pid),
        step=record.step,
        phase=clean(record.phase or "", 16),
        edge=clean(record.edge or "", 8),
        data=_data(record.data),
    )


def _reports(attempt: RunAttempt, records: Sequence[HookRecord]) -> list[StepReport]:
    """One report per step: when the first rank had it, with the loss of whichever rank told one. In the order of steps,
    since two writers in different orders could deadlock."""
    by_step: dict[int, StepReport] = {}
    for record in sorted(records, key=lambda item: item.at_unix_seconds):
        if record.kind != STEP or record.step is None:
            continue
        loss = record.loss if record.loss is not None and math.isfinite(record.loss) else None
        report = by_step.setdefault(
            record.step, StepReport(attempt=attempt, step=record.step, at=_at(record.at_unix_seconds), loss=loss)
        )
        report.loss = loss if report.loss is None else report.loss
    return [by_step[step] for step in sorted(by_step)]


_FOLLOWED = [
    "started_at", "last_report_at", "last_step", "ended_at", "resumed_from_step", "resumed_from_path", "job_id",
    "job_restart_count",
]  # fmt: skip


def _follow(attempt: RunAttempt, records: Sequence[HookRecord]) -> bool:
    """Bring the attempt up to date with these records; whether anything changed. Order does not matter."""
    before = [getattr(attempt, name) for name in _FOLLOWED]
    for record in records:
        at = _at(record.at_unix_seconds)
        attempt.started_at = min(attempt.started_at, at)
        attempt.last_report_at = max(attempt.last_report_at, at)
        if record.kind == STEP and record.step is not None:
            attempt.last_step = max(record.step, attempt.last_step if attempt.last_step is not None else -1)
        elif record.kind in _ENDINGS:
            attempt.ended_at = max(at, attempt.ended_at or at)
        elif record.kind == RESUMED_FROM and record.step is not None:
            attempt.resumed_from_step = record.step
            attempt.resumed_from_path = _path(record.data)
        _follow_job(attempt, record.data)
    steps_at = [_at(record.at_unix_seconds) for record in records if record.kind == STEP]
    if attempt.ended_at is not None and any(at > attempt.ended_at for at in steps_at):
        attempt.ended_at = None  # one rank had ended, another goes on
    return before != [getattr(attempt, name) for name in _FOLLOWED]


def _follow_job(attempt: RunAttempt, data: dict[str, Any]) -> None:
    job_id, count = data.get("job_id"), data.get("job_restart_count")
    if isinstance(job_id, str) and type(count) is int and 0 <= count <= _MAX_SMALL_INTEGER:
        attempt.job_id, attempt.job_restart_count = clean(job_id, 64), count


def _path(data: dict[str, Any]) -> str:
    path = data.get("path")
    return clean(posixpath.normpath(path), 2048) if isinstance(path, str) and path else ""


# -- proof that a checkpoint can be resumed from -----------------------------------------------------------------------
def _note_resumed(attempts: Sequence[RunAttempt]) -> None:
    """A step beyond the one resumed from was computed: the copy it came from has the highest rung."""
    advanced = {
        attempt.pk: attempt
        for attempt in attempts
        if attempt.resumed_from_step is not None
        and attempt.resumed_from_path
        and (attempt.last_step if attempt.last_step is not None else -1) > attempt.resumed_from_step
    }
    known = TrustEvidence.objects.filter(source_kind=ATTEMPT, source_id__in=list(advanced))
    for attempt_id in known.values_list("source_id", flat=True):
        advanced.pop(attempt_id, None)
    if not advanced:
        return
    resumed_at = dict(
        RunEvent.objects.filter(attempt__in=list(advanced), kind=RESUMED_FROM)
        .values_list("attempt")
        .annotate(at=Max("at"))
    )
    copies = Placement.objects.filter(
        checkpoint__run__in={attempt.run_id for attempt in advanced.values()},
        path__in={attempt.resumed_from_path for attempt in advanced.values()},
    ).select_related("checkpoint")
    for attempt in advanced.values():
        for copy in copies:
            if _is_source(copy, attempt, resumed_at.get(attempt.pk)):
                _prove(copy, attempt)


def _is_source(copy: Placement, attempt: RunAttempt, resumed_at: datetime | None) -> bool:
    """Files that are newer than the resume are not those that it read."""
    same = (copy.checkpoint.run_id, copy.path, copy.checkpoint.step) == (
        attempt.run_id, attempt.resumed_from_path, attempt.resumed_from_step,
    )  # fmt: skip
    return same and not (
        resumed_at is not None and copy.newest_mtime_at is not None and copy.newest_mtime_at > resumed_at
    )


def _prove(copy: Placement, attempt: RunAttempt) -> None:
    add_evidence(
        placement=copy,
        rung=Trust.RESUMED,
        source_kind=ATTEMPT,
        source_id=attempt.pk,
        fingerprint=copy.fingerprint,
        detail={"launch_id": attempt.launch_id, "from_step": attempt.resumed_from_step, "to_step": attempt.last_step},
    )


def _at(unix_seconds: float) -> datetime:
    return datetime.fromtimestamp(unix_seconds, UTC)


def _small(number: int | None) -> int | None:
    return number if number is not None and -1 <= number <= _MAX_SMALL_INTEGER else None


def _data(data: dict[str, Any]) -> dict[str, Any]:
    """As sent where a JSON column can hold it; else a note that it could not."""
    text = msgspec.json.encode(data)
    if len(text) > _MAX_DATA_CHARACTERS or b"\\u0000" in text:
        return {"left_out": f"{len(text)} bytes that no row can hold"}
    decoded: dict[str, Any] = msgspec.json.decode(text)  # turns NaN into null, which JSON columns accept
    return decoded
