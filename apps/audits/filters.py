"""Filters of audits, for pages and the API alike."""

from __future__ import annotations

import django_filters.rest_framework as filters
from django.db.models import Q, QuerySet

from apps.audits.models import Audit, AuditPolicy, Repair
from apps.checkpoints.filters import ChoiceInFilter


class AuditFilter(filters.FilterSet):  # type: ignore[misc]  # it ships no types
    cluster = filters.CharFilter(method="of_cluster", label="Cluster id or name")
    run = filters.CharFilter(method="of_run", label="Run id or name")
    checkpoint = filters.CharFilter(field_name="placement__checkpoint_id", label="Checkpoint id")
    placement = filters.CharFilter(field_name="placement_id", label="Placement id")
    mode = ChoiceInFilter(choices=Audit.Mode.choices, label="Mode")
    state = ChoiceInFilter(choices=Audit.State.choices, label="State")
    policy = filters.CharFilter(field_name="round__policy_id", label="Audit policy id")
    round = filters.CharFilter(field_name="round_id", label="Round id")
    outcome = ChoiceInFilter(choices=[item for item in Audit.Outcome.choices if item[0]], label="Outcome")

    class Meta:
        model = Audit
        fields = ["cluster", "run", "checkpoint", "placement", "mode", "policy", "round", "state", "outcome"]

    def of_cluster(self, rows: QuerySet[Audit], _name: str, value: str) -> QuerySet[Audit]:
        return rows.filter(Q(placement__tier__cluster_id=value) | Q(placement__tier__cluster__name=value))

    def of_run(self, rows: QuerySet[Audit], _name: str, value: str) -> QuerySet[Audit]:
        return rows.filter(Q(placement__checkpoint__run_id=value) | Q(placement__checkpoint__run__name=value))


class AuditPolicyFilter(filters.FilterSet):  # type: ignore[misc]  # it ships no types
    cluster = filters.CharFilter(method="of_cluster", label="Cluster id or name")
    run = filters.CharFilter(method="of_run", label="Run id or name")
    enabled = filters.BooleanFilter()

    class Meta:
        model = AuditPolicy
        fields: list[str] = []

    def of_cluster(self, rows: QuerySet[AuditPolicy], _name: str, value: str) -> QuerySet[AuditPolicy]:
        return rows.filter(Q(cluster_id=value) | Q(cluster__name=value))

    def of_run(self, rows: QuerySet[AuditPolicy], _name: str, value: str) -> QuerySet[AuditPolicy]:
        return rows.filter(Q(run_id=value) | Q(run__name=value))


class RepairFilter(filters.FilterSet):  # type: ignore[misc]  # it ships no types
    cluster = filters.CharFilter(method="of_cluster", label="Cluster id or name")
    checkpoint = filters.CharFilter(field_name="placement__checkpoint_id", label="Checkpoint id")
    placement = filters.CharFilter(field_name="placement_id", label="Placement id")
    state = ChoiceInFilter(choices=Repair.State.choices, label="State")

    class Meta:
        model = Repair
        fields: list[str] = []

    def of_cluster(self, rows: QuerySet[Repair], _name: str, value: str) -> QuerySet[Repair]:
        return rows.filter(Q(placement__tier__cluster_id=value) | Q(placement__tier__cluster__name=value))
