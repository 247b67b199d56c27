"""A drill's report on the wire."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from apps.core.phases import PHASES
from apps.drills.serializers import FactsField


class DrillFactSerializer(serializers.Serializer[Any]):
    label = serializers.CharField()  # type: ignore[assignment]  # a declared field, not the argument of that name
    words = serializers.CharField()


class DrillLastClientSerializer(serializers.Serializer[Any]):
    """Who came last. Seconds run from the first client's start."""

    name = serializers.CharField()
    ranks = serializers.ListField(child=serializers.IntegerField())
    end_seconds = serializers.FloatField()
    after_median_seconds = serializers.FloatField()
    phase = serializers.CharField(help_text="Where it lost most against the others' median.")
    excess_seconds = serializers.FloatField()
    rate_ratio = serializers.FloatField(allow_null=True, help_text="Its reading rate by that of the others.")
    without_seconds = serializers.FloatField(help_text="When the round would have been over without it.")
    is_straggler = serializers.BooleanField()
    sentence = serializers.CharField()


class DrillChangeSerializer(serializers.Serializer[Any]):
    what = serializers.CharField(help_text="phase, bytes, rate, cached, step, backend, nodes or versions.")
    label = serializers.CharField()  # type: ignore[assignment]
    before = serializers.CharField()
    after = serializers.CharField()
    ratio = serializers.FloatField(allow_null=True, help_text="after / before - 1.")
    seconds = serializers.FloatField(allow_null=True, help_text="What it adds to the time; of a phase only.")


class DrillComparisonSerializer(serializers.Serializer[Any]):
    """With the last passed drill of the same run, kind, tier, backend, cap, fault and number of clients."""

    with_drill = serializers.CharField()
    at = serializers.DateTimeField()
    seconds = serializers.FloatField(allow_null=True, help_text="Positive: this one took longer.")
    changes = DrillChangeSerializer(many=True)
    sentence = serializers.CharField()


class DrillStorySerializer(serializers.Serializer[Any]):
    lead = serializers.CharField()
    asked = DrillFactSerializer(many=True)
    done = DrillFactSerializer(many=True)
    ceiling = serializers.CharField(help_text="How the rate stands to what the tier was measured to give.")
    is_above_ceiling = serializers.BooleanField()
    last = DrillLastClientSerializer(allow_null=True)
    comparison = DrillComparisonSerializer(allow_null=True)
    not_proven = serializers.ListField(child=serializers.CharField())


class DrillPhaseSerializer(serializers.Serializer[Any]):
    phase = serializers.CharField(help_text=f"{', '.join(PHASES)}.")
    seconds = serializers.FloatField(allow_null=True, help_text="On the critical path; null: not measured.")


class DrillReportEventSerializer(serializers.Serializer[Any]):
    at = serializers.DateTimeField()
    state = serializers.CharField()
    reason = serializers.CharField()
    actor = serializers.CharField()


class DrillReportSerializer(serializers.Serializer[Any]):
    """A drill in one document. null is "not measured"."""

    report_version = serializers.IntegerField()
    drill = serializers.CharField()
    title = serializers.CharField()
    cluster = serializers.CharField()
    run = serializers.CharField()
    plan = serializers.CharField(allow_null=True)
    step = serializers.IntegerField(allow_null=True)
    tier = serializers.CharField(allow_null=True)
    path = serializers.CharField(allow_null=True)
    kind = serializers.CharField()
    state = serializers.CharField()
    outcome = serializers.CharField()
    objective_state = serializers.CharField()
    reason = serializers.CharField()
    requested_by = serializers.CharField()
    approved_by = serializers.CharField()
    created_at = serializers.DateTimeField()
    started_at = serializers.DateTimeField(allow_null=True)
    finished_at = serializers.DateTimeField(allow_null=True)
    fault_at = serializers.DateTimeField(allow_null=True)
    objective_seconds = serializers.FloatField(allow_null=True)
    seconds = serializers.FloatField(allow_null=True)
    total_bytes = serializers.IntegerField(allow_null=True)
    bytes_per_second = serializers.FloatField(allow_null=True)
    cached_ratio_before = serializers.FloatField(allow_null=True)
    verified = serializers.BooleanField(allow_null=True)
    start_skew_seconds = serializers.FloatField(allow_null=True)
    jain_index = serializers.FloatField(allow_null=True)
    lost_steps = serializers.IntegerField(allow_null=True)
    lost_seconds = serializers.FloatField(allow_null=True)
    unattributed_seconds = serializers.FloatField(allow_null=True)
    efficiency_ratio = serializers.FloatField(
        allow_null=True, help_text="Of the tier's measured ceiling; above 1 that was no upper limit."
    )
    is_storage_only = serializers.BooleanField()
    story = DrillStorySerializer()
    phases = DrillPhaseSerializer(many=True)
    facts = FactsField()
    client_count = serializers.IntegerField()
    clients = serializers.ListField(child=FactsField(), help_text="The first 512, by rank; /ranks has all.")
    steps = serializers.ListField(child=FactsField(), help_text="Of a standby drill.")
    events = DrillReportEventSerializer(many=True)
