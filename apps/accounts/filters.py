"""Filters of lists of accounts' rows."""

from __future__ import annotations

import django_filters.rest_framework as filters

from apps.accounts.models import ActivityEntry


class ActivityFilter(filters.FilterSet):  # type: ignore[misc]  # it ships no types
    cluster = filters.CharFilter(field_name="cluster_id", label="Cluster id")
    actor = filters.CharFilter()
    action = filters.CharFilter()
    target_kind = filters.CharFilter()
    target_id = filters.CharFilter()
    request_id = filters.CharFilter()

    class Meta:
        model = ActivityEntry
        fields: list[str] = []
