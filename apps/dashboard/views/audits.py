"""Audits: sealing and verifying, as they run and afterwards."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect, render

from apps.accounts.models import Role
from apps.audits import selectors, services
from apps.audits.models import Audit
from apps.audits.report import coverage_of, report, sentence_of
from apps.checkpoints.models import Finding
from apps.core.models import Transition
from apps.dashboard import pages
from apps.dashboard.lists.state import context_of
from apps.dashboard.lists.work import AUDITS
from apps.dashboard.live import progress_of
from apps.fleet.models import AgentTask

CLUSTER = "placement__checkpoint__run__cluster"


@pages.page
def audit_list(request: HttpRequest) -> HttpResponse:
    return render(request, "dashboard/audits.html", context_of(AUDITS, request))


@pages.page
def audit_detail(request: HttpRequest, audit_id: str) -> HttpResponse:
    audit = _audit(request, audit_id)
    context = {
        **_live_context(audit),
        "can_operate": pages.operates(request, audit.placement.checkpoint.run.cluster_id),
        "has_live": audit.state != Audit.State.FINISHED,
    }
    return render(request, "dashboard/audit.html", context)


@pages.page
def audit_live(request: HttpRequest, audit_id: str) -> HttpResponse:
    return render(request, "dashboard/parts/audit_live.html", _live_context(_audit(request, audit_id)))


@pages.page
def audit_print(request: HttpRequest, audit_id: str) -> HttpResponse:
    """The evidence on paper."""
    return render(request, "dashboard/audit_print.html", {"report": report(_audit(request, audit_id))})


@pages.page
def audit_export(request: HttpRequest, audit_id: str) -> HttpResponse:
    """The evidence as a file."""
    audit = _audit(request, audit_id)
    answer = JsonResponse(report(audit), json_dumps_params={"indent": 2})
    answer["Content-Disposition"] = f'attachment; filename="{audit.pk}.json"'
    return answer


def _audit(request: HttpRequest, audit_id: str) -> Audit:
    audit: Audit = pages.find(request, selectors.audits(), CLUSTER, audit_id)
    return audit


def _live_context(audit: Audit) -> dict[str, Any]:
    finished = audit.state == Audit.State.FINISHED
    tasks = AgentTask.objects.filter(owner_kind="audit", owner_id=audit.pk).select_related("agent__node")
    findings = Finding.objects.filter(source_kind="audit", source_id=audit.pk).order_by("pk")[:200]
    events = Transition.objects.filter(owner_kind="audit", owner_id=audit.pk).order_by("at", "pk")[:100]
    return {
        "audit": audit,
        "placement": audit.placement,
        "checkpoint": audit.placement.checkpoint,
        "run": audit.placement.checkpoint.run,
        "finished": finished,
        "live_seconds": 0 if finished else 2,
        "tasks": [] if finished else progress_of(tasks.defer("params", "result", "late_results")),
        "findings": list(findings),
        "events": list(events),
        "coverage": coverage_of(audit),
        "proves": sentence_of(audit),
        "rate": audit.checked_bytes / audit.seconds if audit.checked_bytes and audit.seconds else None,
    }


@pages.action
def audit_cancel(request: HttpRequest, audit_id: str) -> HttpResponse:
    audit = _audit(request, audit_id)
    actor = pages.authorize(request, Role.OPERATOR, audit.placement.checkpoint.run.cluster_id)
    services.cancel_audit(audit=audit, actor=actor)
    messages.success(request, "The audit is being cancelled.")
    return redirect("audit", audit_id=audit.pk)
