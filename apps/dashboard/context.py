"""What the frame of every page shows."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from django.utils.functional import SimpleLazyObject

from apps.accounts.access import global_role
from apps.accounts.models import Role
from apps.alerts.models import Alert
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
    ("policies", "Retention policies"),
    ("transfers", "Transfers"),
    ("audits", "Audits"),
    ("activity", "Activity log"),
)
# A page belongs to the entry of the navigation that leads to it.
SECTIONS = {
    "run": "runs",
    "checkpoint": "checkpoints",
    "drill": "drills",
    "drill-start": "drills",
    "drill-cancel": "drills",
    "drills-stop": "drills",
    "plan-create": "plans",
    "plan": "plans",
    "plan-delete": "plans",
    "node": "nodes",
    "audit": "audits",
    "audit-print": "audits",
    "repair": "checkpoints",
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
}


def shell(request: HttpRequest) -> dict[str, Any]:
    """Navigation, the section we are in, and how many alerts are open (only counted where a page asks)."""
    match = request.resolver_match
    name = (match.url_name if match else "") or ""
    user = getattr(request, "user", None)
    signed_in = bool(user and user.is_authenticated)
    return {
        "navigation": NAVIGATION,
        "more_navigation": MORE,
        "section": SECTIONS.get(name, name),
        "my_role": global_role(user) if signed_in else Role.NONE,
        "open_alert_count": SimpleLazyObject(lambda: _open_alerts(request) if signed_in else 0),
    }


def _open_alerts(request: HttpRequest) -> int:
    return scoped(request, Alert.objects.filter(state=Alert.State.OPEN), "cluster").count()
