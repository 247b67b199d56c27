"""Every list by the name of its page."""

from __future__ import annotations

from apps.dashboard.lists.fleet import CLUSTERS, NODES
from apps.dashboard.lists.log import ACTIVITY, ALERTS, CHANGES
from apps.dashboard.lists.telling import CHANNELS, DELIVERIES, SILENCES
from apps.dashboard.lists.training import CHECKPOINTS, DRILLS, OBJECTIVES, PLANS, RUNS
from apps.dashboard.lists.work import AUDIT_POLICIES, AUDITS, INCIDENTS, POLICIES, REPAIRS, TRANSFERS

LISTS = {
    spec.name: spec
    for spec in (
        RUNS, CHECKPOINTS, DRILLS, PLANS, NODES, CLUSTERS, AUDITS, AUDIT_POLICIES, REPAIRS, POLICIES, TRANSFERS,
        INCIDENTS, CHANGES, ALERTS, ACTIVITY, OBJECTIVES, SILENCES, CHANNELS, DELIVERIES,
    )
}  # fmt: skip
