"""Alerts."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone

from apps.accounts.models import Role
from apps.alerts import services
from apps.alerts.deciding import silence_for
from apps.alerts.models import Alert
from apps.alerts.silences import standing_silences
from apps.dashboard import pages
from apps.dashboard.lists.log import ALERTS
from apps.dashboard.lists.state import context_of
from apps.fleet.access import require_role

# Where the thing that an alert speaks of is shown.
SUBJECT_PAGES = {
    "drill": "drill",
    "checkpoint": "checkpoint",
    "run": "run",
    "audit": "audit",
    "plan": "plan",
    "audit_policy": "audit-policy",
    "node": "node",
    "tier": "tier",
    "transfer": "transfer",
    "channel": "channel",
}


@pages.page
def alert_list(request: HttpRequest) -> HttpResponse:
    context = context_of(ALERTS, request)
    operable = pages.operable(request, {alert.cluster_id for alert in context["page"].items if alert.cluster_id})
    silences, now, everywhere = standing_silences(), timezone.now(), pages.operates_everywhere(request)
    for alert in context["page"].items:
        alert.subject_url = subject_url(alert)
        is_over = alert.state == Alert.State.RESOLVED
        alert.can_operate = not is_over and (alert.cluster_id in operable if alert.cluster_id else everywhere)
        alert.silence = None if is_over else silence_for(alert, silences, now)
    return render(request, "dashboard/alerts.html", context)


def subject_url(alert: Alert) -> str:
    """The page of what the alert is about; empty where there is none."""
    name = SUBJECT_PAGES.get(alert.subject_kind)
    return reverse(name, args=[alert.subject_id]) if name else ""


@pages.action
def alert_acknowledge(request: HttpRequest, alert_id: str) -> HttpResponse:
    alert: Alert = pages.find(request, Alert.objects.all(), "cluster", alert_id)
    require_role(request, Role.OPERATOR, alert.cluster_id)
    actor = request.user.get_username()
    services.acknowledge(alert=alert, actor=actor)
    messages.success(request, "Acknowledged. It stays listed until its cause is gone.")
    return redirect(pages.back(request, "alerts"))
