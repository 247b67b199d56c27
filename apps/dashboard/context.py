"""What the frame of every page shows."""

from __future__ import annotations

from typing import Any

from django.db.models import Count, Subquery
from django.http import HttpRequest
from django.utils.functional import SimpleLazyObject

from apps.accounts.access import global_role
from apps.accounts.models import Role
from apps.alerts import own_health
from apps.alerts.models import Alert
from apps.core import heartbeats, zones
from apps.core.errors import InvalidInput
from apps.core.models import Heartbeat
from apps.fleet.access import scoped

NAVIGATION = (
    ("readiness", "Readiness"),
    ("runs", "Runs"),
    ("checkpoints", "Checkpoints"),
    ("drills", "Drills"),
    ("plans", "Plans"),
    ("nodes", "Nodes"),
    ("tiers", "Tiers"),
    ("analysis", "Analysis"),
)
MORE = (
    ("objectives", "Objectives"),
    ("clusters", "Clusters"),
    ("changes", "Inventory changes"),
    ("incidents", "Incidents"),
    ("policies", "Retention policies"),
    ("transfers", "Transfers"),
    ("audits", "Audits"),
    ("activity", "Activity log"),
    ("health", "Muster's own health"),
    ("first-steps", "First steps"),
    ("manual", "Manual"),
)
# A page belongs to the entry of the navigation that leads to it.
SECTIONS = {
    "alert-rules": "alerts",
    "alert-rule": "alerts",
    "alert-rule-create": "alerts",
    "silences": "alerts",
    "silence-create": "alerts",
    **dict.fromkeys(("channels", "channel", "channel-create", "channel-rotate", "channel-delete"), "alerts"),
    **dict.fromkeys(("deliveries", "delivery"), "alerts"),
    "run": "runs",
    "checkpoint": "checkpoints",
    "drill": "drills",
    "drill-start": "drills",
    "drill-print": "drills",
    "drill-cancel": "drills",
    "drills-stop": "drills",
    "drills-compare": "drills",
    "drill-inside": "drills",
    "plan-create": "plans",
    "plan": "plans",
    "plan-delete": "plans",
    "plan-calendar": "plans",
    "checklist": "runs",
    "objective-save": "objectives",
    "incident": "incidents",
    "rank-shards": "checkpoints",
    "cluster": "clusters",
    "cluster-rules": "clusters",
    "plan-grid": "plans",
    "node": "nodes",
    "audit": "audits",
    "audit-print": "audits",
    "repairs": "audits",
    "repair": "audits",
    "repair-start": "checkpoints",
    "audit-policies": "audits",
    "audit-policy": "audits",
    "audit-policy-create": "audits",
    "audit-policy-delete": "audits",
    "policy": "policies",
    "policy-create": "policies",
    "policy-delete": "policies",
    "policy-plan": "policies",
    "transfer": "transfers",
    "tier": "tiers",
    "scan": "tiers",
    "analysis-groups": "analysis",
    "analysis-advice": "analysis",
    "analysis-what-if": "analysis",
    "analysis-tiers": "analysis",
    "manual-page": "manual",
}


def shell(request: HttpRequest) -> dict[str, Any]:
    """Navigation, the section we are in, and what the frame says of alerts and of Muster itself (only read where a page
    has the frame)."""
    match = request.resolver_match
    name = (match.url_name if match else "") or ""
    user = getattr(request, "user", None)
    signed_in = bool(user and user.is_authenticated)
    return {
        "navigation": NAVIGATION,
        "more_navigation": MORE,
        "section": SECTIONS.get(name, name),
        "zone": _zone(request),
        "my_role": global_role(user) if signed_in else Role.NONE,
        "frame": SimpleLazyObject(lambda: _frame(request, name)) if signed_in else {},
    }


def _zone(request: HttpRequest) -> zones.Choice:
    """The reader's; UTC on the page that says that there is no such zone."""
    try:
        return zones.choice_of(request)
    except InvalidInput:
        return zones.Choice(zones.UTC, "UTC")


def _frame(request: HttpRequest, page: str) -> dict[str, Any]:
    """Open alerts, and which of Muster's parts give no sign of life: one query for every page."""
    open_alerts = scoped(request, Alert.objects.filter(state=Alert.State.OPEN), "cluster")
    counted = open_alerts.order_by().values("state").annotate(count=Count("pk")).values("count")
    rows = list(Heartbeat.objects.values_list("part", "beat_at", Subquery(counted)))
    beats = heartbeats.of_every_part((part, beat_at) for part, beat_at, _count in rows)
    return {
        "standing_still": own_health.standing_still(beats) if page != "health" else [],
        "open_alert_count": (rows[0][2] or 0) if rows else open_alerts.count(),
    }
