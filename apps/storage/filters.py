"""Filters of tiers, for pages and the API alike."""

from __future__ import annotations

import django_filters.rest_framework as django_filters
from django.db.models import Q, QuerySet

from apps.storage.models import StorageTier


class TierFilter(django_filters.FilterSet):  # type: ignore[misc]  # it ships no types
    cluster = django_filters.CharFilter(method="of_cluster", label="Cluster id or name")
    kind = django_filters.MultipleChoiceFilter(choices=StorageTier.Kind.choices, label="Kind")

    class Meta:
        model = StorageTier
        fields = ["cluster", "kind"]

    def of_cluster(self, rows: QuerySet[StorageTier], _name: str, value: str) -> QuerySet[StorageTier]:
        return rows.filter(Q(cluster_id=value) | Q(cluster__name=value))
