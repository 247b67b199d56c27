"""Whether what lies on two tiers under one run and step is one checkpoint, or that of two trainings.

Copies are taken for one checkpoint only while nothing contradicts it: a restart must never mix two trainings.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from django.db.models import Q, QuerySet
from muster_agent.formats.base import Finding, Severity
from muster_agent.formats.codes import finding
from muster_agent.manifest.compare import matches

from apps.checkpoints.intake import Listed
from apps.checkpoints.models import Checkpoint, Manifest, Placement
from apps.storage.models import StorageTier


class Facts(NamedTuple):
    """What tells one state from another. `root` is the digest of all bytes, empty where they were not sealed."""

    format: str
    world_size: int | None
    total_bytes: int
    root: str


class Copy(NamedTuple):
    """A copy on another tier that is complete, or of which a manifest says what it was."""

    path: str
    tier: str
    order: tuple[object, str]
    facts: Facts


def contradiction(one: Facts, other: Facts) -> str | None:
    """Why the two cannot be copies of each other; None where nothing says so. Equal bytes settle it."""
    if one.root and other.root:
        return None if one.root == other.root else f"sealed bytes {one.root[:12]} against {other.root[:12]}"
    if one.format != other.format:
        return f"format {one.format} against {other.format}"
    if None not in (one.world_size, other.world_size) and one.world_size != other.world_size:
        return f"{one.world_size} ranks against {other.world_size}"
    if one.total_bytes != other.total_bytes:
        return f"{one.total_bytes} bytes against {other.total_bytes}"
    return None


def strangers_to(tier: StorageTier, claims: Mapping[tuple[str, str], Sequence[Listed]]) -> set[tuple[str, str]]:
    """Those (folder, name) of a tier whose checkpoints contradict the other tiers' copies of the run of that name at
    every step that both have. One step that agrees makes it the same training."""
    by_step: dict[tuple[str, int], list[Copy]] = defaultdict(list)
    rows = _comparable(tier).filter(checkpoint__run__cluster=tier.cluster)
    for row in rows.filter(checkpoint__run__name__in={name for _folder, name in claims}):
        by_step[row.checkpoint.run.name, row.checkpoint.step].append(_copy(row))
    strangers = set()
    for (folder, name), items in claims.items():
        whole = [item for item in items if item.status == Placement.Status.COMPLETE]
        verdicts = [
            contradiction(_listed_facts(item), copy.facts) is None
            for item in whole
            for copy in by_step.get((name, item.step), [])
        ]
        if verdicts and not any(verdicts):
            strangers.add((folder, name))
    return strangers


class OtherCopies:
    """The copies on other tiers of one batch's checkpoints. At most two queries."""

    def __init__(self, tier: StorageTier, checkpoints: Iterable[Checkpoint], rows: Iterable[Placement]) -> None:
        self._copies: dict[str, list[Copy]] = defaultdict(list)
        for row in _comparable(tier).filter(checkpoint__in=list(checkpoints)):
            self._copies[row.checkpoint_id].append(_copy(row))
        sealed = {row.manifest_id for row in rows if row.manifest_id} if self._copies else set()
        self._roots = dict(Manifest.objects.filter(pk__in=sealed).values_list("pk", "root_xxh3_128")) if sealed else {}

    def clash(self, row: Placement, item: Listed) -> Finding | None:
        """How this copy contradicts the oldest one, which is the one that keeps its word."""
        if item.status != Placement.Status.COMPLETE:
            return None
        first = min(_comparable_with(item, self._copies.get(row.checkpoint_id, ())), key=_order, default=None)
        if first is None or first.order > (row.first_seen_at, row.pk):
            return None
        listed = _listed_facts(item)
        why = contradiction(
            listed._replace(root=listed.root or self._roots.get(row.manifest_id or "", "")), first.facts
        )
        if why is None:
            return None
        detail = f"it is not a copy of {first.path} on {first.tier} ({why}), so it may be of another training"
        return finding("second_lineage", path=item.path, detail=detail, severity=Severity.WARNING)


def _comparable_with(item: Listed, copies: Sequence[Copy]) -> Sequence[Copy]:
    """A step may be kept in two formats on each tier: those of the same format, where there are any."""
    return [copy for copy in copies if copy.facts.format == item.format] or copies


def _order(copy: Copy) -> tuple[object, str]:
    return copy.order


def _comparable(tier: StorageTier) -> QuerySet[Placement]:
    told = Q(status=Placement.Status.COMPLETE) | Q(manifest__isnull=False)
    others = Placement.objects.filter(told).exclude(tier=tier)
    return others.select_related("checkpoint__run", "tier", "manifest").defer("manifest__body")


def _copy(row: Placement) -> Copy:
    root, total_bytes = "", row.total_bytes
    if row.manifest is not None:
        root, total_bytes = row.manifest.root_xxh3_128, row.manifest.total_bytes
    facts = Facts(row.format, row.world_size, total_bytes, root)
    return Copy(row.path, row.tier.name, (row.first_seen_at, row.pk), facts)


def _listed_facts(item: Listed) -> Facts:
    """A manifest beside the data counts where it speaks for exactly these files."""
    root = ""
    if item.manifest is not None and matches(item.manifest, item.files())[0]:
        root = item.manifest.root_xxh3_128
    return Facts(item.format, item.world_size, item.total_bytes, root)
