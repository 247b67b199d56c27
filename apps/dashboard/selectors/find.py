"""Anything by its name, its step or its id."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django.db.models import QuerySet
from django.http import HttpRequest
from django.urls import reverse

from apps.alerts.models import Alert
from apps.audits.models import Audit, AuditPolicy, Repair
from apps.checkpoints.models import Checkpoint, InventoryScan, TrainingRun
from apps.drills.models import Drill, DrillPlan
from apps.fleet.access import scoped
from apps.fleet.models import Cluster, Node
from apps.recovery.models import Incident
from apps.storage.models import StorageTier
from apps.transfers.models import RetentionPolicy, Transfer

SHOWN = 6
MAX_STEP = 2**63 - 1


@dataclass(frozen=True)
class Found:
    name: str
    detail: str
    url: str


@dataclass(frozen=True)
class Group:
    label: str
    items: tuple[Found, ...]


def found(request: HttpRequest, search: str) -> list[Group]:
    """What is called so, in at most seven queries; nothing for no text."""
    text = search.strip()[:200]
    if not text:
        return []
    if by_id := _by_id(request, text):
        return [Group("By its id", (by_id,))]
    groups = [_named(request, text, *kind) for kind in _KINDS]
    return [group for group in (*groups, _by_step(request, text)) if group.items]


Details = Callable[[Any], str]
_KINDS: tuple[tuple[str, QuerySet[Any], str, str, Details], ...] = (
    ("Runs", TrainingRun.objects.select_related("cluster"), "cluster", "run", lambda row: row.cluster.name),
    ("Plans", DrillPlan.objects.select_related("run"), "run__cluster", "plan", lambda row: row.run.name),
    ("Nodes", Node.objects.select_related("cluster"), "cluster", "node", lambda row: row.cluster.name),
    ("Tiers", StorageTier.objects.select_related("cluster"), "cluster", "tier", lambda row: row.cluster.name),
    ("Clusters", Cluster.objects.all(), "pk", "cluster", lambda _row: ""),
)


def _named(
    request: HttpRequest, text: str, label: str, rows: QuerySet[Any], path: str, route: str, detail: Details
) -> Group:
    named = scoped(request, rows.filter(name__icontains=text), path).order_by("name", "pk")[:SHOWN]
    return Group(label, tuple(Found(row.name, detail(row), reverse(route, args=[row.pk])) for row in named))


def _by_step(request: HttpRequest, text: str) -> Group:
    digits = text.lower().removeprefix("step").strip(" -").replace(",", "")
    rows: list[Checkpoint] = []
    if digits.isascii() and digits.isdigit() and int(digits[:20]) <= MAX_STEP:
        there = Checkpoint.objects.filter(step=int(digits)).select_related("run")
        rows = list(scoped(request, there, "run__cluster").order_by("-created_at", "-pk")[:SHOWN])
    return Group(
        "Checkpoints",
        tuple(Found(f"step {row.step:,}", row.run.name, reverse("checkpoint", args=[row.pk])) for row in rows),
    )


_IDS: dict[str, tuple[QuerySet[Any], str, str]] = {
    "drl": (Drill.objects.all(), "cluster", "drill"),
    "ckp": (Checkpoint.objects.all(), "run__cluster", "checkpoint"),
    "run": (TrainingRun.objects.all(), "cluster", "run"),
    "pln": (DrillPlan.objects.all(), "run__cluster", "plan"),
    "nod": (Node.objects.all(), "cluster", "node"),
    "cls": (Cluster.objects.all(), "pk", "cluster"),
    "tir": (StorageTier.objects.all(), "cluster", "tier"),
    "scn": (InventoryScan.objects.all(), "tier__cluster", "scan"),
    "aud": (Audit.objects.all(), "placement__tier__cluster", "audit"),
    "aup": (AuditPolicy.objects.all(), "cluster", "audit-policy"),
    "rep": (Repair.objects.all(), "placement__tier__cluster", "repair"),
    "trf": (Transfer.objects.all(), "cluster", "transfer"),
    "pol": (RetentionPolicy.objects.all(), "cluster", "policy"),
    "inc": (Incident.objects.all(), "run__cluster", "incident"),
    "alr": (Alert.objects.all(), "cluster", ""),
}


def _by_id(request: HttpRequest, text: str) -> Found | None:
    kind, separator, _rest = text.partition("_")
    if not separator or kind not in _IDS:
        return None
    rows, path, route = _IDS[kind]
    row = scoped(request, rows.filter(pk=text), path).first()
    if row is None:
        return None
    url = reverse(route, args=[row.pk]) if route else reverse("alerts") + f"?q={text}"
    return Found(str(row), text, url)
