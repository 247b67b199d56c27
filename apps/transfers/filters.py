"""What lists of policies and transfers can be narrowed by; pages and API use the same."""

from __future__ import annotations

from typing import Any

import django_filters.rest_framework as filters
from django.db.models import Q, QuerySet

from apps.checkpoints.filters import ChoiceInFilter
from apps.transfers.models import RetentionPolicy, Transfer


class PolicyFilter(filters.FilterSet):  # type: ignore[misc]  # it ships no types
    cluster = filters.CharFilter(method="of_cluster", label="Cluster id or name")
    run = filters.CharFilter(method="of_run", label="Run id or name")
    enabled = filters.BooleanFilter()
    plan_only = filters.BooleanFilter()

    class Meta:
        model = RetentionPolicy
        fields: list[str] = []

    def of_cluster(self, rows: QuerySet[Any], _name: str, value: str) -> QuerySet[Any]:
        return rows.filter(Q(cluster_id=value) | Q(cluster__name=value))

    def of_run(self, rows: QuerySet[Any], _name: str, value: str) -> QuerySet[Any]:
        return rows.filter(Q(run_id=value) | Q(run__name=value))


class TransferFilter(filters.FilterSet):  # type: ignore[misc]  # it ships no types
    cluster = filters.CharFilter(method="of_cluster", label="Cluster id or name")
    run = filters.CharFilter(method="of_run", label="Run id or name")
    checkpoint = filters.CharFilter(field_name="checkpoint_id", label="Checkpoint id")
    placement = filters.CharFilter(method="of_placement", label="Placement id, as source or as target")
    tier = filters.CharFilter(method="of_tier", label="Tier id, as source or as target")
    policy = filters.CharFilter(field_name="migration__policy_id", label="Policy id")
    migration = filters.CharFilter(field_name="migration_id", label="Migration id")
    kind = ChoiceInFilter(choices=Transfer.Kind.choices, label="Kind")
    state = ChoiceInFilter(choices=Transfer.State.choices, label="State")

    class Meta:
        model = Transfer
        fields: list[str] = []

    def of_cluster(self, rows: QuerySet[Any], _name: str, value: str) -> QuerySet[Any]:
        return rows.filter(Q(cluster_id=value) | Q(cluster__name=value))

    def of_run(self, rows: QuerySet[Any], _name: str, value: str) -> QuerySet[Any]:
        return rows.filter(Q(checkpoint__run_id=value) | Q(checkpoint__run__name=value))

    def of_placement(self, rows: QuerySet[Any], _name: str, value: str) -> QuerySet[Any]:
        return rows.filter(Q(source_id=value) | Q(target_id=value))

    def of_tier(self, rows: QuerySet[Any], _name: str, value: str) -> QuerySet[Any]:
        return rows.filter(Q(source__tier_id=value) | Q(target_tier_id=value))
