"""Taking in a listing: runs, checkpoints, placements, shards, findings and manifests, in batches of constant queries.

Only what changed is written; an unchanged place costs one update per batch. A tier is taken in by one writer at a time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime

from django.db import transaction
from django.db.models import Q
from django.utils import timezone
from muster_agent.formats.base import Finding as FoundFinding

from apps.checkpoints import describe, intake
from apps.checkpoints.copies import OtherCopies
from apps.checkpoints.describe import LAYOUT
from apps.checkpoints.differences import Facts, difference, listed_facts
from apps.checkpoints.evidence import OPEN_DAMAGE, SCAN, trust_from
from apps.checkpoints.findings import finding_row
from apps.checkpoints.folders import folder_of, hold_tier, settle_runs
from apps.checkpoints.intake import Listed, Listing, ShardFields
from apps.checkpoints.manifest_intake import ManifestIntake
from apps.checkpoints.missing import WENT_MISSING
from apps.checkpoints.models import (
    Checkpoint,
    Finding,
    InventoryScan,
    Placement,
    ScanChange,
    Shard,
    TrainingRun,
    TrustEvidence,
)
from apps.checkpoints.runs import ensure_runs
from apps.checkpoints.shard_rows import ShardRow, upsert_shards
from apps.checkpoints.trust import effective_status
from apps.core.models import Transition

_PLACEMENT_FIELDS = [
    "checkpoint", *LAYOUT, "rotated_away", "status", "listed_status", "trust", "trust_at", "resumable",
    "not_resumable_reasons", "shard_count", "total_bytes", "newest_mtime_at", "middle_mtime_at", "fingerprint",
    "manifest", "damaged_at",
]  # fmt: skip
_WRITE_ROWS = 2000
Stamp = tuple[str, datetime]


@dataclass(slots=True)
class Counts:
    checkpoints: int = 0
    runs: dict[str, str] = field(default_factory=dict)
    """Folder of checkpoints -> id of the run they belong to; pointers lie in these folders."""


def ingest(scan: InventoryScan, listing: Listing, listed_at: datetime) -> Counts:
    """Record what was listed under the scan's root. `listed_at` is when the listing began, by the server's clock:
    what a later listing has recorded already is left as it is, so listings may arrive in any order, and twice."""
    counts = Counts()
    settle_runs(scan.tier, listing.accepted)
    for batch in intake.batches(listing.accepted):
        _Batch(scan, listed_at, counts).take(batch)
    return counts


class _Batch:
    """One transaction's worth. Loads everything it compares with in a constant number of queries, then writes."""

    def __init__(self, scan: InventoryScan, listed_at: datetime, counts: Counts) -> None:
        self.scan = scan
        self.listed_at = listed_at
        self.now = timezone.now()
        self.counts = counts
        self.transitions: list[Transition] = []
        self.voided: list[TrustEvidence] = []
        self.resolved: list[int] = []
        self.reopened: list[int] = []
        self.new_findings: list[Finding] = []
        self.changed: list[Placement] = []
        self.differences: list[ScanChange] = []

    @transaction.atomic
    def take(self, batch: list[Listed]) -> None:
        hold_tier(self.scan.tier_id)
        existing, batch = self._touch(batch)
        runs = ensure_runs(self.scan.tier.cluster, {item.run for item in batch})
        checkpoints = _ensure_checkpoints(runs, batch, self.now)
        self.fresh = {item.path: self._new_placement(item) for item in batch if item.path not in existing}
        rows = {**existing, **self.fresh}
        self._load([row.pk for row in existing.values()])
        self.manifests = ManifestIntake(
            [(rows[item.path], checkpoints[runs[item.run].pk, item.step], item) for item in batch if item.manifest]
        )
        self.others = OtherCopies(self.scan.tier, checkpoints.values(), existing.values())
        for item in batch:
            checkpoint = checkpoints[runs[item.run].pk, item.step]
            self.counts.runs[folder_of(item.path)] = checkpoint.run_id
            self._take_one(rows[item.path], checkpoint, item)
        self._write(rows, batch)
        described = {row.checkpoint_id for row in (*self.changed, *self.fresh.values())}
        describe.describe_checkpoints(described, batch, rows)
        self.counts.checkpoints += len(batch)

    # -- loading ----------------------------------------------------------------------------------------------------
    def _touch(self, batch: list[Listed]) -> tuple[dict[str, Placement], list[Listed]]:
        """Lock and load the rows of these paths; leave out those that a later listing has seen already."""
        known = Placement.objects.filter(tier=self.scan.tier, path__in=[item.path for item in batch])
        known.filter(last_seen_at__lte=self.listed_at).update(last_seen_at=self.listed_at)
        rows = {row.path: row for row in known}
        later = {path for path, row in rows.items() if row.last_seen_at > self.listed_at}
        return (
            {path: row for path, row in rows.items() if path not in later},
            [item for item in batch if item.path not in later],
        )

    def _load(self, placement_ids: list[str]) -> None:
        self.shards: dict[str, dict[str, ShardFields]] = defaultdict(dict)
        self.shard_ids: dict[tuple[str, str], int] = {}
        for pk, owner, path, size_bytes, promised_bytes, rank, role, mtime_ns in Shard.objects.filter(
            placement__in=placement_ids
        ).values_list("pk", "placement_id", "path", "size_bytes", "promised_bytes", "rank", "role", "mtime_ns"):
            self.shards[owner][path] = (size_bytes, promised_bytes, rank, role, mtime_ns)
            self.shard_ids[owner, path] = pk
        self.open_findings: dict[str, list[Finding]] = defaultdict(list)
        for found in Finding.objects.filter(placement__in=placement_ids, source_kind=SCAN, resolved_at=None):
            self.open_findings[found.placement_id].append(found)
        self.damage: dict[str, list[Finding]] = defaultdict(list)
        for found in Finding.objects.filter(OPEN_DAMAGE | _GONE_DAMAGE, placement__in=placement_ids):
            self.damage[found.placement_id].append(found)
        self.evidence: dict[str, list[TrustEvidence]] = defaultdict(list)
        for proof in TrustEvidence.objects.filter(placement__in=placement_ids, voided_at=None):
            self.evidence[proof.placement_id].append(proof)

    def _new_placement(self, item: Listed) -> Placement:
        return Placement(
            tier=self.scan.tier,
            path=item.path,
            status="",
            trust="",
            first_seen_at=self.now,
            last_seen_at=self.listed_at,
        )

    # -- one placement ----------------------------------------------------------------------------------------------
    def _take_one(self, row: Placement, checkpoint: Checkpoint, item: Listed) -> None:
        before, listed_before = {name: getattr(row, name) for name in _COMPARED}, listed_facts(row)
        self._reopen(row, item)
        row.checkpoint_id = checkpoint.pk
        if before["checkpoint_id"] not in ("", None, checkpoint.pk):
            row.manifest_id = None  # other state lies at this path now
        if item.was_read or row.path in self.fresh:
            self._take_files(row, item)
        row.listed_status = item.status
        row.rotated_away = False
        row.resumable = item.resumable
        row.not_resumable_reasons = item.reasons
        clash = self.others.clash(row, item)
        if clash is not None:
            row.resumable, row.not_resumable_reasons = False, [clash.detail, *item.reasons]
        self._compare_findings(row, item, [clash] if clash else [])
        standing = [(proof.rung, proof.at) for proof in self.evidence[row.pk] if proof.fingerprint == row.fingerprint]
        row.status = effective_status(row.listed_status, damaged=row.damaged_at is not None)
        row.trust, row.trust_at = trust_from(row.listed_status, row.damaged_at is not None, standing)
        self._note_change(row, before)
        self._note_difference(row, listed_before)

    def _take_files(self, row: Placement, item: Listed) -> None:
        shards = self.shards[row.pk]
        if row.fingerprint and row.fingerprint != item.fingerprint and intake.was_saved_again(shards, item.shards):
            row.manifest_id = None
        for name in LAYOUT:
            setattr(row, name, getattr(item, name))
        self._void(row, item, shards)
        row.fingerprint = item.fingerprint
        row.shard_count = len(item.shards)
        row.total_bytes = item.total_bytes
        row.newest_mtime_at = item.newest_mtime_at
        row.middle_mtime_at = item.middle_mtime_at
        proof = self.manifests.take(row, item, self.evidence[row.pk])
        if proof is not None:
            self.evidence[row.pk].append(proof)

    def _void(self, row: Placement, item: Listed, shards: dict[str, ShardFields]) -> None:
        """Evidence for, and damage in, files other than these is about bytes that are gone. What was found after this
        listing began is left: it may be about newer files than were listed."""
        stale = [proof for proof in self.evidence[row.pk] if self._is_old(proof.fingerprint, proof.at, item)]
        if stale:
            reason = intake.what_changed(shards, item.shards)
            for proof in stale:
                proof.voided_at, proof.void_reason = self.now, reason
            self.voided.extend(stale)
            self.evidence[row.pk] = [proof for proof in self.evidence[row.pk] if proof.voided_at is None]
        gone = [found for found in self.damage[row.pk] if self._is_old(found.fingerprint, found.found_at, item)]
        self.resolved.extend(found.pk for found in gone if found.resolved_at is None)
        if row.damaged_at is not None and len(gone) == len(self.damage[row.pk]):
            row.damaged_at = None

    def _reopen(self, row: Placement, item: Listed) -> None:
        """A copy that was missing is back (its storage was not mounted, say): what was wrong with those files is wrong
        again."""
        back = [
            found
            for found in self.damage[row.pk]
            if found.resolved_at is not None and not self._is_old(found.fingerprint, found.found_at, item)
        ]
        self.reopened.extend(found.pk for found in back)
        if back and row.damaged_at is None:
            row.damaged_at = self.now

    def _is_old(self, fingerprint: str, at: datetime, item: Listed) -> bool:
        return fingerprint != item.fingerprint and at < self.listed_at

    def _compare_findings(self, row: Placement, item: Listed, further: list[FoundFinding]) -> None:
        listed = {
            _finding_key(found): found
            for found in (
                finding_row(row.pk, found, source_kind=SCAN, source_id=self.scan.pk, at=self.now)
                for found in (*item.findings, *self.manifests.findings(item), *further)
            )
        }
        known = {_finding_key(found): found for found in self.open_findings[row.pk]}
        self.new_findings.extend(found for key, found in listed.items() if key not in known)
        if item.was_read:
            self.resolved.extend(found.pk for key, found in known.items() if key not in listed)

    def _note_change(self, row: Placement, before: dict[str, object]) -> None:
        if row.path not in self.fresh and any(getattr(row, name) != value for name, value in before.items()):
            self.changed.append(row)
        if row.status != before["status"]:
            self.transitions.append(
                Transition(
                    owner_kind="placement",
                    owner_id=row.pk,
                    old=str(before["status"]),
                    new=row.status,
                    reason=f"seen by {self.scan.pk}",
                    at=self.now,
                )
            )

    def _note_difference(self, row: Placement, before: Facts) -> None:
        found = difference(None if row.path in self.fresh else before, listed_facts(row))
        if found is not None:
            self.differences.append(ScanChange(scan=self.scan, placement=row, **found))

    # -- writing ----------------------------------------------------------------------------------------------------
    def _write(self, rows: dict[str, Placement], batch: list[Listed]) -> None:
        self.manifests.write_manifests()
        Placement.objects.bulk_create(self.fresh.values())
        if self.changed:
            Placement.objects.bulk_update(self.changed, _PLACEMENT_FIELDS)
        self._write_shards(rows, batch)
        Finding.objects.bulk_create(self.new_findings)
        if self.resolved:
            Finding.objects.filter(pk__in=self.resolved).update(resolved_at=self.now)
        if self.reopened:
            Finding.objects.filter(pk__in=self.reopened).update(resolved_at=None, resolved_reason="")
        if self.voided:
            TrustEvidence.objects.bulk_update(self.voided, ["voided_at", "void_reason"])
        self.manifests.write_evidence()
        Transition.objects.bulk_create(self.transitions)
        ScanChange.objects.bulk_create(self.differences, ignore_conflicts=True)

    def _write_shards(self, rows: dict[str, Placement], batch: list[Listed]) -> None:
        write: list[ShardRow] = []
        gone: list[int] = []
        for item in batch:
            row = rows[item.path]
            if not item.was_read and row.path not in self.fresh:
                continue
            known = self.shards[row.pk]
            write.extend((row.pk, path, *it) for path, it in item.shards.items() if known.get(path) != it)
            gone.extend(self.shard_ids[row.pk, path] for path in known.keys() - item.shards.keys())
        upsert_shards(write)
        for begin in range(0, len(gone), _WRITE_ROWS):
            Shard.objects.filter(pk__in=gone[begin : begin + _WRITE_ROWS]).delete()


_GONE_DAMAGE = (
    Q(severity=Finding.Severity.DAMAGE, resolved_reason=WENT_MISSING, resolved_at__isnull=False)
    & Q(placement__listed_status=Placement.Status.MISSING)
    & ~Q(source_kind=SCAN)
)
_COMPARED = [name if name not in ("checkpoint", "manifest") else f"{name}_id" for name in _PLACEMENT_FIELDS]


def _ensure_checkpoints(
    runs: dict[str, TrainingRun], batch: list[Listed], now: datetime
) -> dict[tuple[str, int], Checkpoint]:
    """By run id and step; those not known yet are made. Two tiers that race make one."""
    wanted = {(runs[item.run].pk, item.step): item for item in batch}
    known = _checkpoints(wanted.keys())
    fresh = sorted(key for key in wanted if key not in known)  # in one order, or two tiers could deadlock
    if not fresh:
        return known
    Checkpoint.objects.bulk_create([_new_checkpoint(*key, wanted[key], now) for key in fresh], ignore_conflicts=True)
    return _checkpoints(wanted.keys())


def _new_checkpoint(run_id: str, step: int, item: Listed, now: datetime) -> Checkpoint:
    return Checkpoint(
        run_id=run_id,
        step=step,
        format=item.format,
        world_size=item.world_size,
        dp=item.dp,
        tp=item.tp,
        pp=item.pp,
        ep=item.ep,
        must_match=item.must_match,
        total_bytes=item.total_bytes,
        saved_at=item.newest_mtime_at,
        created_at=now,
    )


def _checkpoints(keys: Iterable[tuple[str, int]]) -> dict[tuple[str, int], Checkpoint]:
    wanted = set(keys)
    rows = Checkpoint.objects.filter(run__in={run for run, _step in wanted}, step__in={step for _run, step in wanted})
    return {(row.run_id, row.step): row for row in rows if (row.run_id, row.step) in wanted}


def _finding_key(found: Finding) -> tuple[object, ...]:
    return (found.code, found.severity, found.path, found.detail, found.begin_byte, found.end_byte, found.tensor)
