"""Checkpoints: the list, and one checkpoint with its copies, shards, findings and evidence."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render

from apps.accounts.access import global_role, reaches
from apps.accounts.models import Role
from apps.audits import services as audits
from apps.audits.models import Audit, StaleCheck
from apps.checkpoints.explanations import roles_of
from apps.checkpoints.models import Checkpoint, Placement, SteplessCheckpoint, TrainingRun
from apps.checkpoints.tensors import tensors_page
from apps.core.errors import InvalidInput
from apps.core.pagination import Page
from apps.dashboard import pages
from apps.dashboard.forms import AuditForm
from apps.dashboard.lists.state import context_of
from apps.dashboard.lists.training import CHECKPOINTS
from apps.dashboard.selectors import checkpoints as rows_of
from apps.fleet.access import granted, scoped
from apps.transfers.marks import marks_of

SHARDS = 50
TENSORS = 100
STEPLESS = 50


@pages.page
def checkpoint_list(request: HttpRequest) -> HttpResponse:
    status = pages.chosen(request, "status", Placement.Status.values)
    run_id = request.GET.get("run", "")
    context = context_of(CHECKPOINTS, request)
    context["run"] = scoped(request, TrainingRun.objects.filter(pk=run_id), "cluster").first() if run_id else None
    elsewhere = {"trust", "cursor", "since", "until", "tier"} & set(request.GET)
    context["stepless"] = [] if elsewhere else _stepless(request, context["run"], status)
    context["stepless_shown"] = STEPLESS
    return render(request, "dashboard/checkpoints.html", context)


def _stepless(request: HttpRequest, run: TrainingRun | None, status: str) -> list[SteplessCheckpoint]:
    """One more than is shown, so that the page knows whether there are more."""
    search = request.GET.get("q", "")[:200]
    rows = rows_of.stepless(run=run, status=status, search=search)
    return list(scoped(request, rows, "tier__cluster").order_by("path", "pk")[: STEPLESS + 1])


@pages.page
def checkpoint_detail(request: HttpRequest, checkpoint_id: str) -> HttpResponse:
    rows = Checkpoint.objects.select_related("run__cluster", "pin")
    may_operate = granted(request, Role.OPERATOR, "run__cluster")
    checkpoint: Any = pages.find(request, rows.annotate(may_operate=may_operate), "run__cluster", checkpoint_id)
    copies = rows_of.placements_of(checkpoint)
    chosen = next((copy for copy in copies if copy.pk == request.GET.get("copy")), copies[0] if copies else None)
    findings, evidence = rows_of.open_findings(copies), rows_of.evidence(copies)
    roles = roles_of(chosen) if chosen else []
    for copy in copies:
        copy.checkpoint = checkpoint
    context: dict[str, Any] = {
        "checkpoint": checkpoint,
        "run": checkpoint.run,
        "copies": copies,
        "chosen": chosen,
        "shards": _shards(request, chosen, roles) if chosen else None,
        "skew": rows_of.shard_skew(roles),
        "findings": findings,
        "damage_count": sum(finding.severity == "damage" for finding in findings),
        "evidence": evidence,
        "explanations": {copy.pk: rows_of.explained(copy, findings, evidence) for copy in copies},
        "roles": roles,
        "stale": StaleCheck.objects.filter(manifest__in=[copy.manifest_id for copy in copies if copy.manifest_id])
        .select_related("compared_with__checkpoint")
        .defer("compared_with__body")
        .first(),
        "audits": list(
            Audit.objects.filter(placement__in=copies).select_related("placement__tier").order_by("-created_at")[:8]
        ),
        "can_operate": checkpoint.may_operate or reaches(global_role(request.user), Role.OPERATOR),
        "marks": marks_of(checkpoint),
        "can_drill": any(rows_of.is_readable(copy) for copy in copies),
    }
    return render(request, "dashboard/checkpoint.html", context)


def _shards(request: HttpRequest, copy: Placement, roles: list[dict[str, Any]]) -> Page:
    """A page of a copy's files; how many there are, their roles have told."""
    page = pages.listing(request, rows_of.shards(copy), order="path", limit=SHARDS, count=False)
    page.total = {"value": sum(role["expected"] for role in roles), "relation": "eq"}
    return page


@pages.page
def checkpoint_tensors(request: HttpRequest, checkpoint_id: str) -> HttpResponse:
    """The tensors of one sealed copy, by name."""
    rows = Checkpoint.objects.select_related("run__cluster")
    checkpoint: Checkpoint = pages.find(request, rows, "run__cluster", checkpoint_id)
    copies = [copy for copy in rows_of.placements_of(checkpoint) if copy.manifest and copy.manifest.tensor_count]
    chosen = next((copy for copy in copies if copy.pk == request.GET.get("copy")), copies[0] if copies else None)
    prefix = request.GET.get("prefix", "")[:1000]
    context: dict[str, Any] = {
        "checkpoint": checkpoint,
        "run": checkpoint.run,
        "copies": copies,
        "chosen": chosen,
        "prefix": prefix,
        "tensors": _tensors(chosen, prefix, request.GET.get("cursor")) if chosen else None,
    }
    return render(request, "dashboard/tensors.html", context)


def _tensors(copy: Placement, prefix: str, cursor: str | None) -> Page:
    """A cursor of another list begins at its beginning, as one that the address was cut in does."""
    manifest_id = str(copy.manifest_id)
    try:
        return tensors_page(manifest_id, prefix=prefix, limit=TENSORS, cursor=cursor)
    except ValueError:
        return tensors_page(manifest_id, prefix=prefix, limit=TENSORS, cursor=None)


@pages.page
def checkpoint_of_step(request: HttpRequest, run_id: str, step: int) -> HttpResponse:
    """To the checkpoint of a run at a step: sentences name steps, not ids."""
    rows = scoped(request, Checkpoint.objects.filter(run_id=run_id, step=step), "run__cluster")
    found = rows.values_list("pk", flat=True).first() if step < 2**63 else None
    if found is None:
        raise Http404(f"There is no checkpoint of step {step} here.")
    return redirect("checkpoint", checkpoint_id=found)


@pages.action
def checkpoint_audit(request: HttpRequest, checkpoint_id: str) -> HttpResponse:
    """Seal or verify one copy."""
    checkpoint: Checkpoint = pages.find(
        request, Checkpoint.objects.select_related("run"), "run__cluster", checkpoint_id
    )
    actor = pages.authorize(request, Role.OPERATOR, checkpoint.run.cluster_id)
    form = AuditForm(request.POST)
    placement = Placement.objects.filter(checkpoint=checkpoint, pk=request.POST.get("placement")).first()
    if not form.is_valid() or placement is None:
        raise InvalidInput("Choose one of this checkpoint's copies, and seal or verify.")
    audit = audits.request_audit(
        placement=placement, mode=form.cleaned_data["mode"], sample_ratio=form.sample_ratio, actor=actor
    )
    messages.success(request, f"{audit.get_mode_display()} of {placement.path} is on its way.")
    return redirect("audit", audit_id=audit.pk)
