"""What the list of alerts can be narrowed by; the page and the API use the same."""

from __future__ import annotations

from typing import Any

import django_filters.rest_framework as filters
from django.db.models import Q, QuerySet
from django.utils import timezone

from apps.alerts.models import Alert, AlertRule, Channel, Delivery, RuleKind, Severity, Silence
from apps.drills.filters import ChoiceInFilter


class _OfCluster(filters.FilterSet):  # type: ignore[misc]  # it ships no types
    cluster = filters.CharFilter(method="of_cluster", label="Cluster id or name")
    run = filters.CharFilter(method="of_run", label="Run id or name")

    def of_cluster(self, rows: QuerySet[Any], _name: str, value: str) -> QuerySet[Any]:
        return rows.filter(Q(cluster_id=value) | Q(cluster__name=value))

    def of_run(self, rows: QuerySet[Any], _name: str, value: str) -> QuerySet[Any]:
        return rows.filter(Q(run_id=value) | Q(run__name=value))


class AlertFilter(_OfCluster):
    severity = ChoiceInFilter(choices=Severity.choices)
    state = ChoiceInFilter(choices=Alert.State.choices)
    rule = ChoiceInFilter(choices=Alert.Rule.choices)
    subject_id = filters.CharFilter()

    class Meta:
        model = Alert
        fields: list[str] = []


class AlertRuleFilter(_OfCluster):
    kind = ChoiceInFilter(choices=RuleKind.choices)
    enabled = filters.BooleanFilter()

    class Meta:
        model = AlertRule
        fields: list[str] = []


class SilenceFilter(_OfCluster):
    rule = ChoiceInFilter(choices=RuleKind.choices)
    standing = filters.BooleanFilter(method="of_now", label="Whether it holds now")

    class Meta:
        model = Silence
        fields: list[str] = []

    def of_now(self, rows: QuerySet[Silence], _name: str, value: bool) -> QuerySet[Silence]:
        now = timezone.now()
        standing = Q(starts_at__lte=now, ends_at__gt=now)
        return rows.filter(standing if value else ~standing)


class ChannelFilter(filters.FilterSet):  # type: ignore[misc]  # it ships no types
    kind = ChoiceInFilter(choices=Channel.Kind.choices)
    enabled = filters.BooleanFilter()

    class Meta:
        model = Channel
        fields: list[str] = []


class DeliveryFilter(filters.FilterSet):  # type: ignore[misc]  # it ships no types
    channel = filters.CharFilter(field_name="channel_id", label="Channel id")
    state = ChoiceInFilter(choices=Delivery.State.choices)
    event = filters.CharFilter(field_name="event_id", label="Event id: the webhook-id")
    subject = filters.CharFilter(label="Such as alert/alr_...")

    class Meta:
        model = Delivery
        fields: list[str] = []
