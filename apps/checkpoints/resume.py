"""Where a run would resume from: rows become candidates, the shared pure decision picks one."""

from __future__ import annotations

import posixpath
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import msgspec
from django.db.models import F, Q, Window
from django.db.models.functions import DenseRank
from django.utils import timezone
from muster_agent.decide.frameworks import governing
from muster_agent.decide.model import Candidate, Pointer, ResumeDecision, ResumeRequest
from muster_agent.decide.resume import decide
from muster_agent.protocol.trust import Trust

from apps.checkpoints.evidence import SCAN, STALE
from apps.checkpoints.models import Finding, Placement, RunPointer, TrainingRun

SOURCE = "server"
_COPY_COLUMNS = (
    "path", "format", "status", "resumable", "not_resumable_reasons", "world_size", "dp", "tp", "pp", "must_match",
    "total_bytes", "trust", "trust_at", "last_seen_at", "newest_mtime_at", "middle_mtime_at", "damaged_at",
    "fingerprint", "manifest_id", "checkpoint__run_id", "checkpoint__step", "checkpoint__saved_at", "tier__name",
    "tier__speed_order",
)  # fmt: skip
"""Thousands of rows are read for a page of runs, so nothing is read that decides nothing."""
NEWEST_STEPS = 20
"""The answer nearly always lies among these; all steps are only looked at where it does not."""
_NOTHING_YET = frozenset({"nothing_resumable", "unknown"})
_SHOWN_DAMAGE = 3
_EXPLAINED = (Placement.Status.CORRUPT, Placement.Status.INCOMPLETE)


@dataclass(slots=True)
class RunState:
    """What is known of one run: its copies, newest step first, and what its framework's pointers say."""

    copies: list[Placement] = field(default_factory=list)
    findings: dict[str, list[Finding]] = field(default_factory=dict)
    """Open damage by placement, oldest first."""
    pointers: list[Pointer] = field(default_factory=list)


def own_request(run: TrainingRun) -> ResumeRequest:
    """What the run's own launch script asks for."""
    return ResumeRequest(require=Trust(run.required_trust))


def resume_decision(
    run: TrainingRun, request: ResumeRequest | None = None, now: datetime | None = None
) -> ResumeDecision:
    """Where `run` would resume from, by what the last scans, audits and drills found; by its own request where none is
    given. At most six queries."""
    return decisions_for([run], request, now)[run.pk]


def decisions_for(
    runs: Iterable[TrainingRun], request: ResumeRequest | None = None, now: datetime | None = None
) -> dict[str, ResumeDecision]:
    """The decision of each run by id, in a constant number of queries; by its own request where none is given."""
    asked = {run.pk: request or own_request(run) for run in runs}
    at = now or timezone.now()
    newest = None if request is not None and request.step is not None else NEWEST_STEPS
    decisions = {pk: _decide(state, asked[pk], at) for pk, state in _load(list(asked), newest).items()}
    unanswered = [pk for pk, decision in decisions.items() if decision.outcome in _NOTHING_YET]
    if newest is not None and unanswered:
        decisions.update({pk: _decide(state, asked[pk], at) for pk, state in _load(unanswered, None).items()})
    return decisions


def evidence_for(run: TrainingRun) -> list[dict[str, Any]]:
    """What is known here about each copy, for a command line that lists the disk itself: it adds this to what it finds
    there only where the fingerprint is equal."""
    state = _load([run.pk], None)[run.pk]
    return [entry for row in state.copies for entry in _evidence(row, state.findings.get(row.pk, []))]


def _evidence(row: Placement, findings: Sequence[Finding]) -> Iterator[dict[str, Any]]:
    """One entry for the files as last scanned, and one for each later state of them in which damage was found."""
    by_files: dict[str, list[Finding]] = defaultdict(list)
    for finding in findings:
        if finding.source_kind != SCAN:
            by_files[finding.fingerprint].append(finding)
    damage = [*by_files.pop("", []), *by_files.pop(row.fingerprint, [])]
    entry = {
        "path": row.path,
        "fingerprint": row.fingerprint,
        "manifest_id": row.manifest_id,
        "trust": row.trust,
        "as_of": _iso(row.trust_at or row.last_seen_at),
        **_damage(damage),
        "tier": row.tier.name,
        "tier_order": row.tier.speed_order,
    }
    yield entry
    for fingerprint, found in by_files.items():
        yield {**entry, "fingerprint": fingerprint, "trust": Trust.LISTED.value, **_damage(found)}


def _damage(findings: Sequence[Finding]) -> dict[str, Any]:
    """The sentences, and when the newest was found: who verified every byte after that overrules them."""
    return {
        "damage": _shortened([damage_sentence(finding) for finding in findings]),
        "damage_at": max(finding.found_at for finding in findings).isoformat() if findings else None,
    }


def decision_json(decision: ResumeDecision) -> dict[str, Any]:
    """The JSON that `muster resume-point --json` prints too."""
    fields: dict[str, Any] = msgspec.to_builtins(decision)
    pointer = decision.pointer
    fields["pointer"] = None if pointer is None else {"path": pointer.path, "step": pointer.step}
    return fields


def _decide(state: RunState, request: ResumeRequest, now: datetime) -> ResumeDecision:
    candidates = [_candidate(row, state.findings.get(row.pk, []), now) for row in state.copies]
    decision = decide(candidates, request, _pointer(state.pointers))
    return msgspec.structs.replace(decision, source=SOURCE)


def _candidate(row: Placement, findings: Sequence[Finding], now: datetime) -> Candidate:
    saved_at = row.checkpoint.saved_at or row.newest_mtime_at
    listed = [_located(finding) for finding in findings if finding.source_kind == SCAN]
    read = [damage_sentence(finding) for finding in findings if finding.source_kind != SCAN]
    return Candidate(
        path=row.path,
        step=row.checkpoint.step,
        format=row.format,
        status=row.status,
        resumable=row.resumable,
        not_resumable_reasons=(*row.not_resumable_reasons, *_shortened(listed)),
        world_size=row.world_size,
        dp=row.dp,
        tp=row.tp,
        pp=row.pp,
        must_match=tuple(row.must_match),
        total_bytes=row.total_bytes,
        trust=Trust(row.trust),
        as_of=_iso(row.trust_at or row.last_seen_at),
        age_seconds=_age_seconds(saved_at, now),
        files_age_seconds=_age_seconds(row.middle_mtime_at, now),
        tier=row.tier.name,
        tier_order=row.tier.speed_order,
        damage=tuple(_shortened(read)),
        source=SOURCE,
    )


def _age_seconds(at: datetime | None, now: datetime) -> float | None:
    return None if at is None else (now - at).total_seconds()


def _pointer(pointers: Sequence[Pointer]) -> Pointer | None:
    """The furthest of those that count in their folders (each tier may have its own); a binding one before another of
    the same step."""
    folders: dict[str, list[Pointer]] = defaultdict(list)
    for pointer in pointers:
        folders[posixpath.dirname(pointer.path)].append(pointer)
    counting = [one for group in folders.values() if (one := governing(group)) is not None]
    return max(counting, key=lambda pointer: (pointer.step or -1, pointer.binding), default=None)


# -- loading -----------------------------------------------------------------------------------------------------------
def _load(run_ids: Sequence[str], newest_steps: int | None) -> dict[str, RunState]:
    """Three queries, however many runs and rows. `newest_steps` None loads every step."""
    states = {pk: RunState() for pk in run_ids}
    copies = Placement.objects.filter(checkpoint__run__in=run_ids).select_related("checkpoint", "tier")
    if newest_steps is not None:
        position = Window(DenseRank(), partition_by=F("checkpoint__run"), order_by=F("checkpoint__step").desc())
        copies = copies.annotate(position=position).filter(position__lte=newest_steps)
    rows = list(copies.only(*_COPY_COLUMNS).order_by("-checkpoint__step", "tier__speed_order", "path"))
    damage = _open_damage(rows)
    for row in rows:
        state = states[row.checkpoint.run_id]
        state.copies.append(row)
        if row.pk in damage:
            state.findings[row.pk] = damage[row.pk]
    for pointer in RunPointer.objects.filter(run__in=run_ids):
        found = Pointer(
            path=pointer.path,
            step=pointer.step,
            binding=pointer.binding,
            target=pointer.target,
            problem=pointer.problem,
        )
        states[pointer.run_id].pointers.append(found)
    return states


def _open_damage(rows: Sequence[Placement]) -> dict[str, list[Finding]]:
    explained = [row.pk for row in rows if row.damaged_at is not None or row.status in _EXPLAINED]
    sealed = [row.pk for row in rows if row.manifest_id is not None]
    if not explained and not sealed:
        return {}
    found: dict[str, list[Finding]] = defaultdict(list)
    which = Q(placement__in=explained) | Q(placement__in=sealed, source_kind=STALE)
    damage = Finding.objects.filter(which, resolved_at=None, severity=Finding.Severity.DAMAGE)
    for finding in damage.order_by("found_at", "pk"):
        found[finding.placement_id].append(finding)
    return found


def damage_sentence(finding: Finding) -> str:
    """One sentence that names the shard, the byte range and the tensor, and who found it when."""
    return f"{_located(finding)} ({finding.source_kind} {finding.source_id} at {_iso(finding.found_at)})"


def _located(finding: Finding) -> str:
    text = finding.detail
    if finding.path and finding.path.rpartition("/")[2] not in text:
        text = f"{finding.path}: {text}"
    if finding.begin_byte is not None and str(finding.begin_byte) not in text:
        text = f"{text}, bytes {finding.begin_byte} to {finding.end_byte}"
    if finding.tensor and finding.tensor not in text:
        text = f"{text}, tensor {finding.tensor}"
    return text


def _shortened(sentences: list[str]) -> list[str]:
    if len(sentences) <= _SHOWN_DAMAGE:
        return sentences
    return [*sentences[:_SHOWN_DAMAGE], f"and {len(sentences) - _SHOWN_DAMAGE} more findings of damage"]


def _iso(at: datetime) -> str:
    return at.isoformat(timespec="seconds").replace("+00:00", "Z")
