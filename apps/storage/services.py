"""Writing storage tiers."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any, TypedDict, Unpack

from django.conf import settings
from django.db import IntegrityError, transaction
from django.utils import timezone

from apps.accounts.services import log_activity
from apps.core import cron
from apps.core.errors import Conflict, InvalidInput
from apps.fleet.models import Cluster
from apps.storage.models import StorageTier, TierCeiling
from apps.storage.paths import contains, is_posix, normalized_endpoint, normalized_uri

_PROFILE = re.compile(r"[A-Za-z0-9_.-]{1,63}")
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")
_CHANGEABLE = frozenset(
    {
        "name", "kind", "uri", "endpoint_url", "credentials_profile", "speed_order", "capacity_bytes",
        "cost_per_tb_month", "scanned_by", "scan_cron", "scan_time_zone",
    }
)  # fmt: skip
_MAX_SPEED_ORDER = 1000
_OBJECT_KINDS = frozenset({StorageTier.Kind.OBJECT_STORE, StorageTier.Kind.ARCHIVE})


class TierDetails(TypedDict, total=False):
    """What a tier may have beside its name and place."""

    endpoint_url: str
    credentials_profile: str
    speed_order: int
    capacity_bytes: int | None
    cost_per_tb_month: Decimal | None
    scanned_by: str
    scan_cron: str
    scan_time_zone: str


@transaction.atomic
def create_tier(
    *, cluster: Cluster, name: str, kind: str, uri: str, actor: str, **details: Unpack[TierDetails]
) -> StorageTier:
    """A new tier of `cluster`. Raises InvalidInput for a bad name, place or schedule, Conflict for a name that is
    taken."""
    tier = StorageTier(cluster=cluster, name=name, kind=kind, uri=uri, created_at=timezone.now(), **details)
    _schedule(tier)
    _save(tier)
    log_activity(
        actor=actor,
        action="tier.create",
        target_kind="tier",
        target_id=tier.pk,
        cluster_id=tier.cluster_id,
        detail={"uri": tier.uri},
    )
    return tier


@transaction.atomic
def update_tier(*, tier: StorageTier, actor: str, **changes: Any) -> StorageTier:
    """Change fields of a tier. Its place cannot change while copies are recorded there: they would not be there."""
    unknown = changes.keys() - _CHANGEABLE
    if unknown:
        raise InvalidInput(f"A tier has no changeable field {sorted(unknown)[0]!r}.", pointer=f"/{sorted(unknown)[0]}")
    if "uri" in changes and normalized_uri(changes["uri"]) != tier.uri and tier.placements.exists():
        raise Conflict(
            "Copies are recorded at this tier's place; create another tier for the new place.", pointer="/uri"
        )
    for field, value in changes.items():
        setattr(tier, field, value)
    if changes.keys() & {"scan_cron", "scan_time_zone"}:
        _schedule(tier)
    _save(tier)
    log_activity(
        actor=actor,
        action="tier.update",
        target_kind="tier",
        target_id=tier.pk,
        cluster_id=tier.cluster_id,
        detail={"fields": sorted(changes)},
    )
    return tier


@transaction.atomic
def record_ceiling(*, tier: StorageTier, bytes_per_second: float, client_count: int, method: str) -> TierCeiling:
    """One measurement of the best read rate; predictions use the best of them."""
    if not bytes_per_second > 0 or client_count < 1:
        raise InvalidInput("A ceiling needs a positive rate and at least one client.")
    return TierCeiling.objects.create(
        tier=tier,
        bytes_per_second=bytes_per_second,
        client_count=client_count,
        method=method[:100],
        measured_at=timezone.now(),
    )


def _schedule(tier: StorageTier) -> None:
    """Set when it is scanned next; a bad schedule is refused."""
    tier.scan_cron, tier.scan_time_zone = tier.scan_cron.strip(), tier.scan_time_zone.strip()
    fields = {"cron": "/scan_cron", "time_zone": "/scan_time_zone"}
    try:
        cron.require_zone(tier.scan_time_zone)
        tier.next_scan_at = (
            cron.next_time(tier.scan_cron, tier.scan_time_zone, timezone.now()) if tier.scan_cron else None
        )
    except cron.BadSchedule as problem:
        raise InvalidInput(problem.detail, pointer=fields[problem.field]) from problem


def _save(tier: StorageTier) -> None:
    tier.uri = normalized_uri(tier.uri)
    _check(tier)
    try:
        with transaction.atomic():
            tier.save()
    except IntegrityError as error:
        raise Conflict(f"{tier.cluster.name} already has a tier {tier.name!r}.", pointer="/name") from error


def _check(tier: StorageTier) -> None:
    if not _NAME.fullmatch(tier.name):
        raise InvalidInput("Use a-z, 0-9, - and _, at most 63 characters, no sign first.", pointer="/name")
    if tier.kind not in StorageTier.Kind.values:
        raise InvalidInput(f"Use one of {', '.join(StorageTier.Kind.values)}.", pointer="/kind")
    if not is_posix(tier.uri) and tier.kind not in _OBJECT_KINDS:
        raise InvalidInput(f"A tier at {tier.uri} is an object_store or an archive.", pointer="/kind")
    if not 0 <= tier.speed_order <= _MAX_SPEED_ORDER:
        raise InvalidInput(f"Use a whole number from 0 (fastest) to {_MAX_SPEED_ORDER}.", pointer="/speed_order")
    if tier.capacity_bytes is not None and not 0 <= tier.capacity_bytes < 2**63:
        raise InvalidInput("Use a whole number of bytes below 2^63, or null.", pointer="/capacity_bytes")
    _check_store(tier)
    _check_scanning(tier)
    if tier.cost_per_tb_month is not None and tier.cost_per_tb_month < 0:
        raise InvalidInput("Use a cost of at least 0, or null.", pointer="/cost_per_tb_month")


def _check_store(tier: StorageTier) -> None:
    """The endpoint's name is resolved, and its addresses are judged, where it is connected to."""
    if is_posix(tier.uri) and (tier.endpoint_url or tier.credentials_profile):
        raise InvalidInput("Only a bucket has an endpoint and a profile; leave them empty.", pointer="/endpoint_url")
    if tier.credentials_profile and not _PROFILE.fullmatch(tier.credentials_profile):
        raise InvalidInput("Use the name of a profile: letters, digits, _, - and dots.", pointer="/credentials_profile")
    if tier.endpoint_url:
        tier.endpoint_url = normalized_endpoint(tier.endpoint_url)


def _check_scanning(tier: StorageTier) -> None:
    if tier.scanned_by not in StorageTier.ScannedBy.values:
        raise InvalidInput(f"Use one of {', '.join(StorageTier.ScannedBy.values)}.", pointer="/scanned_by")
    if len(tier.scan_cron) > 100 or len(tier.scan_time_zone) > 64:
        raise InvalidInput("A schedule has at most 100 characters, a time zone 64.", pointer="/scan_cron")
    if tier.scanned_by == StorageTier.ScannedBy.WORKERS and not workers_may_list(tier.uri):
        raise InvalidInput(
            f"Workers may list only below the folders and buckets in MUSTER_WORKER_ROOTS, and {tier.uri} is in none.",
            pointer="/scanned_by",
        )


def workers_may_list(path: str) -> bool:
    """Whether the setting opens this path to the workers' own scans. By its text: links are followed and checked when
    it is listed."""
    return any(contains(root, path) for root in settings.WORKER_ROOTS)
