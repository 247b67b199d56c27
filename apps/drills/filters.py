"""What lists of drills and plans can be narrowed by; pages and API use the same."""

from __future__ import annotations

from typing import Any

import django_filters.rest_framework as filters
from django.db.models import Q, QuerySet

from apps.drills.models import Drill, DrillKind, DrillPlan


class ChoiceInFilter(filters.BaseInFilter, filters.ChoiceFilter):  # type: ignore[misc]  # it ships no types
    """`state=running,waiting`: any of these."""


class _RunFilters(filters.FilterSet):  # type: ignore[misc]  # it ships no types
    cluster_lookup = "cluster"
    cluster = filters.CharFilter(method="of_cluster", label="Cluster id or name")
    run = filters.CharFilter(method="of_run", label="Run id or name")
    kind = ChoiceInFilter(choices=DrillKind.choices)

    def of_cluster(self, rows: QuerySet[Any], _name: str, value: str) -> QuerySet[Any]:
        return rows.filter(Q(**{f"{self.cluster_lookup}_id": value}) | Q(**{f"{self.cluster_lookup}__name": value}))

    def of_run(self, rows: QuerySet[Any], _name: str, value: str) -> QuerySet[Any]:
        return rows.filter(Q(run_id=value) | Q(run__name=value))


class DrillFilter(_RunFilters):
    plan = filters.CharFilter(field_name="plan_id")
    placement = filters.CharFilter(field_name="placement_id")
    state = ChoiceInFilter(choices=Drill.State.choices)
    outcome = ChoiceInFilter(choices=[choice for choice in Drill.Outcome.choices if choice[0]])
    objective_state = ChoiceInFilter(choices=Drill.ObjectiveState.choices)
    created_after = filters.IsoDateTimeFilter(field_name="created_at", lookup_expr="gte")
    created_before = filters.IsoDateTimeFilter(field_name="created_at", lookup_expr="lt")

    class Meta:
        model = Drill
        fields: list[str] = []


class PlanFilter(_RunFilters):
    cluster_lookup = "run__cluster"
    enabled = filters.BooleanFilter()

    class Meta:
        model = DrillPlan
        fields: list[str] = []
