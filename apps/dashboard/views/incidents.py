"""Real disruptions: the list, and one with the way back from it."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from apps.core.phases import LABELS, not_measured
from apps.dashboard import pages
from apps.dashboard.bars import bar
from apps.dashboard.lists.state import context_of
from apps.dashboard.lists.work import INCIDENTS
from apps.recovery import selectors
from apps.recovery.models import Incident


@pages.page
def incident_list(request: HttpRequest) -> HttpResponse:
    context = context_of(INCIDENTS, request)
    for incident in context["page"].items:
        incident.bar = _bar(incident)
    return render(request, "dashboard/incidents.html", context)


@pages.page
def incident_detail(request: HttpRequest, incident_id: str) -> HttpResponse:
    incident: Incident = pages.find(request, selectors.incidents(), "run__cluster", incident_id)
    recovery = incident.recovery
    context = {
        "incident": incident,
        "recovery": recovery,
        "run": incident.run,
        "bar": _bar(incident),
        "unmeasured": [LABELS[phase].lower() for phase in not_measured(recovery.phases)],
    }
    return render(request, "dashboard/incident.html", context)


def _bar(incident: Incident) -> Any:
    recovery = incident.recovery
    return bar(recovery.phases, recovery.time_to_resume_seconds, incident.run.rto_objective_seconds)
