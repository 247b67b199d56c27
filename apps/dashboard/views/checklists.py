"""The five validation steps of a run, and how a copy's bytes are cut for its ranks."""

from __future__ import annotations

from datetime import timedelta

from django.http import HttpRequest, HttpResponse
from django.urls import reverse

from apps.checkpoints.models import Placement, TrainingRun
from apps.core.units import duration, seconds_of
from apps.dashboard import pages
from apps.recovery.checklist import DEFAULT_MAX_AGE, Evidence
from apps.recovery.checklist_evidence import checklist
from apps.recovery.rank_shard_audit import rank_shard_audit

AGES = (("1d", "1 day"), ("7d", "7 days"), ("30d", "30 days"))
_PAGES = {"drill": "drill", "audit": "audit"}


@pages.page
def run_checklist(request: HttpRequest, run_id: str) -> HttpResponse:
    run: TrainingRun = pages.find(request, TrainingRun.objects.select_related("cluster"), "cluster", run_id)
    asked = seconds_of(request.GET.get("max_age", "")) or DEFAULT_MAX_AGE.total_seconds()
    found = checklist(run, timedelta(seconds=min(max(asked, 1.0), 3650 * 86_400.0)))
    context = {
        "run": run,
        "found": found,
        "max_age": duration(found.max_age_seconds),
        "ages": [(text, words, seconds_of(text) == found.max_age_seconds) for text, words in AGES],
        "steps": [(judged, _link(judged.evidence)) for judged in found.steps],
        "can_operate": pages.operates(request, run.cluster_id),
    }
    return pages.show(request, "dashboard/checklist.html", context)


@pages.page
def placement_shards(request: HttpRequest, placement_id: str) -> HttpResponse:
    """The rank-shard audit of one copy."""
    rows = Placement.objects.select_related("tier", "checkpoint__run")
    copy: Placement = pages.find(request, rows, "tier__cluster", placement_id)
    return pages.show(request, "dashboard/rank_shards.html", {"copy": copy, "audit": rank_shard_audit(copy)})


def _link(evidence: Evidence | None) -> str:
    """Where the evidence has a page of its own."""
    page = _PAGES.get(evidence.source_kind) if evidence else None
    return reverse(page, args=[evidence.source_id]) if evidence and page else ""
