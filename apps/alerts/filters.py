"""What the list of alerts can be narrowed by; the page and the API use the same."""

from __future__ import annotations

from typing import Any

import django_filters.rest_framework as filters
from django.db.models import Q, QuerySet

from apps.alerts.models import Alert
from apps.drills.filters import ChoiceInFilter


class AlertFilter(filters.FilterSet):  # type: ignore[misc]  # it ships no types
    cluster = filters.CharFilter(method="of_cluster", label="Cluster id or name")
    state = ChoiceInFilter(choices=Alert.State.choices)
    rule = ChoiceInFilter(choices=Alert.Rule.choices)
    subject_id = filters.CharFilter()

    class Meta:
        model = Alert
        fields: list[str] = []

    def of_cluster(self, rows: QuerySet[Any], _name: str, value: str) -> QuerySet[Any]:
        return rows.filter(Q(cluster_id=value) | Q(cluster__name=value))
