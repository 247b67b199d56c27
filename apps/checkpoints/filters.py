"""Filters of runs, checkpoints, placements, findings and scans, for pages and the API alike."""

from __future__ import annotations

from typing import Any

import django_filters.rest_framework as filters
from django.db.models import Exists, OuterRef, Q, QuerySet
from muster_agent.formats.codes import CODES
from muster_agent.formats.foreign import UNKNOWN_FORMAT
from muster_agent.formats.registry import FORMATS
from muster_agent.protocol.trust import Trust

from apps.checkpoints.models import (
    Checkpoint,
    Finding,
    InventoryScan,
    Placement,
    ScanChange,
    SteplessCheckpoint,
    TrainingRun,
)

_FORMATS = [(name, name) for name in (*sorted(FORMATS), UNKNOWN_FORMAT)]
_CODES = [(code, code) for code in sorted(CODES)]
_SOURCES = [(kind, kind) for kind in ("scan", "audit", "drill")]


class ChoiceInFilter(filters.BaseInFilter, filters.ChoiceFilter):  # type: ignore[misc]  # it ships no types
    """`status=complete,corrupt`: any of these."""


class _Filters(filters.FilterSet):  # type: ignore[misc]  # it ships no types
    """`cluster` and `run` take an id or a name; `paths` says where these lie from a row."""

    cluster_lookup = ""
    run_lookup = ""

    def of_cluster(self, rows: QuerySet[Any], _name: str, value: str) -> QuerySet[Any]:
        return rows.filter(Q(**{f"{self.cluster_lookup}_id": value}) | Q(**{f"{self.cluster_lookup}__name": value}))

    def of_run(self, rows: QuerySet[Any], _name: str, value: str) -> QuerySet[Any]:
        return rows.filter(Q(**{f"{self.run_lookup}_id": value}) | Q(**{f"{self.run_lookup}__name": value}))


class RunFilter(_Filters):
    cluster_lookup = "cluster"
    cluster = filters.CharFilter(method="of_cluster", label="Cluster id or name")
    name = filters.CharFilter(lookup_expr="icontains", label="Part of the name")
    archived = filters.BooleanFilter(field_name="archived_at", lookup_expr="isnull", exclude=True, label="Archived")

    class Meta:
        model = TrainingRun
        fields = ["cluster", "name", "archived"]


class CheckpointFilter(_Filters):
    cluster_lookup = "run__cluster"
    run_lookup = "run"
    cluster = filters.CharFilter(method="of_cluster", label="Cluster id or name")
    run = filters.CharFilter(method="of_run", label="Run id or name")
    status = ChoiceInFilter(choices=Placement.Status.choices, method="with_status", label="A copy has this status")
    trust = ChoiceInFilter(choices=Placement.Trust.choices, method="with_trust", label="A copy has this trust")
    at_least = filters.ChoiceFilter(
        choices=Placement.Trust.choices, method="trusted_at_least", label="A copy has this trust or more"
    )
    tier = filters.CharFilter(method="on_tier", label="A copy lies on this tier (id)")
    step = filters.NumberFilter(min_value=0, max_value=2**63 - 1, label="Step")
    format = ChoiceInFilter(choices=_FORMATS, label="Format")

    class Meta:
        model = Checkpoint
        fields = ["cluster", "run", "status", "trust", "at_least", "tier", "step", "format"]

    def with_status(self, rows: QuerySet[Any], _name: str, value: list[str]) -> QuerySet[Any]:
        return rows.filter(_has_copy(status__in=value))

    def with_trust(self, rows: QuerySet[Any], _name: str, value: list[str]) -> QuerySet[Any]:
        return rows.filter(_has_copy(trust__in=value))

    def trusted_at_least(self, rows: QuerySet[Any], _name: str, value: str) -> QuerySet[Any]:
        needed = Trust(value).rung
        return rows.filter(_has_copy(trust__in=[trust.value for trust in Trust if trust.rung >= needed]))

    def on_tier(self, rows: QuerySet[Any], _name: str, value: str) -> QuerySet[Any]:
        return rows.filter(_has_copy(tier_id=value))


def _has_copy(**conditions: Any) -> Exists:
    return Exists(Placement.objects.filter(checkpoint=OuterRef("pk"), **conditions))


class PlacementFilter(_Filters):
    cluster_lookup = "tier__cluster"
    run_lookup = "checkpoint__run"
    cluster = filters.CharFilter(method="of_cluster", label="Cluster id or name")
    run = filters.CharFilter(method="of_run", label="Run id or name")
    status = ChoiceInFilter(choices=Placement.Status.choices, label="Status")
    trust = ChoiceInFilter(choices=Placement.Trust.choices, label="Trust")
    tier = filters.CharFilter(field_name="tier_id", label="Tier id")
    checkpoint = filters.CharFilter(field_name="checkpoint_id", label="Checkpoint id")
    damaged = filters.BooleanFilter(field_name="damaged_at", lookup_expr="isnull", exclude=True, label="Damage is open")

    class Meta:
        model = Placement
        fields = ["cluster", "run", "status", "trust", "tier", "checkpoint", "damaged"]


class FindingFilter(_Filters):
    cluster_lookup = "placement__tier__cluster"
    run_lookup = "placement__checkpoint__run"
    cluster = filters.CharFilter(method="of_cluster", label="Cluster id or name")
    run = filters.CharFilter(method="of_run", label="Run id or name")
    placement = filters.CharFilter(field_name="placement_id", label="Placement id")
    checkpoint = filters.CharFilter(field_name="placement__checkpoint_id", label="Checkpoint id")
    code = ChoiceInFilter(choices=_CODES, label="Code")
    severity = ChoiceInFilter(choices=Finding.Severity.choices, label="Severity")
    open = filters.BooleanFilter(field_name="resolved_at", lookup_expr="isnull", label="Still open")
    source_kind = ChoiceInFilter(choices=_SOURCES, label="What found it")

    class Meta:
        model = Finding
        fields = ["cluster", "run", "placement", "checkpoint", "code", "severity", "open", "source_kind"]


class SteplessFilter(_Filters):
    cluster_lookup = "tier__cluster"
    cluster = filters.CharFilter(method="of_cluster", label="Cluster id or name")
    tier = filters.CharFilter(field_name="tier_id", label="Tier id")
    run_name = filters.CharFilter(label="The name that its run would have")
    status = ChoiceInFilter(choices=Placement.Status.choices, label="Status")
    format = ChoiceInFilter(choices=_FORMATS, label="Format")

    class Meta:
        model = SteplessCheckpoint
        fields = ["cluster", "tier", "run_name", "status", "format"]


class ScanFilter(_Filters):
    cluster_lookup = "tier__cluster"
    cluster = filters.CharFilter(method="of_cluster", label="Cluster id or name")
    tier = filters.CharFilter(field_name="tier_id", label="Tier id")
    state = ChoiceInFilter(choices=InventoryScan.State.choices, label="State")

    class Meta:
        model = InventoryScan
        fields = ["cluster", "tier", "state"]


class ScanChangeFilter(filters.FilterSet):  # type: ignore[misc]  # it ships no types
    kind = ChoiceInFilter(choices=ScanChange.Kind.choices, label="Kind")

    class Meta:
        model = ScanChange
        fields = ["kind"]


class InventoryChangeFilter(_Filters):
    cluster_lookup = "scan__tier__cluster"
    run_lookup = "placement__checkpoint__run"
    cluster = filters.CharFilter(method="of_cluster", label="Cluster id or name")
    run = filters.CharFilter(method="of_run", label="Run id or name")
    tier = filters.CharFilter(field_name="scan__tier_id", label="Tier id")
    scan = filters.CharFilter(field_name="scan_id", label="Scan id")
    kind = ChoiceInFilter(choices=ScanChange.Kind.choices, label="Kind")
    scanned_after = filters.IsoDateTimeFilter(field_name="scan__created_at", lookup_expr="gte")
    scanned_before = filters.IsoDateTimeFilter(field_name="scan__created_at", lookup_expr="lt")

    class Meta:
        model = ScanChange
        fields = ["cluster", "run", "tier", "scan", "kind"]
