"""What the list of incidents can be narrowed by."""

from __future__ import annotations

from typing import Any

import django_filters.rest_framework as filters
from django.db.models import Q, QuerySet

from apps.recovery.models import Incident, Recovery


class IncidentFilter(filters.FilterSet):  # type: ignore[misc]  # it ships no types
    cluster = filters.CharFilter(method="of_cluster", label="Cluster id or name")
    run = filters.CharFilter(method="of_run", label="Run id or name")
    state = filters.ChoiceFilter(field_name="recovery__state", choices=Recovery.State.choices)

    class Meta:
        model = Incident
        fields: list[str] = []

    def of_cluster(self, rows: QuerySet[Any], _name: str, value: str) -> QuerySet[Any]:
        return rows.filter(Q(run__cluster_id=value) | Q(run__cluster__name=value))

    def of_run(self, rows: QuerySet[Any], _name: str, value: str) -> QuerySet[Any]:
        return rows.filter(Q(run_id=value) | Q(run__name=value))
