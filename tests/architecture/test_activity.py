"""What changes something leaves an entry in the activity log: who, what, on which thing, where, and by which request.
A new operation that changes something fails here until its service logs it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from architecture.test_authorization import OPERATIONS, World, path_of, schema_operations
from architecture.test_authorization import world as world  # a fixture
from architecture.test_page_actions import OF_A_BROWSER, forms
from dashboard.scene import build
from dashboard.test_actions import actions_of
from django.db import transaction
from django.http import HttpResponse
from django.test import Client
from django.urls import resolve
from django.utils import timezone
from pytest_django.fixtures import Settings

from apps.accounts.models import ActivityEntry
from apps.alerts import channels
from apps.alerts.models import Channel, Delivery
from apps.audits.models import Audit
from apps.checkpoints.models import InventoryScan
from apps.drills.models import Drill, DrillRules
from apps.fleet.models import Agent, Cluster
from apps.transfers.models import Transfer

pytestmark = pytest.mark.django_db

NO_CHANGE = {
    "preview_drill": "it tells what a drill would do",
    "check_activity": "it reads the log, and keeps what it found in a row of its own",
}
ELSEWHERE = {"create_repair": "it needs a damaged copy on a disk: tests/audits/test_repairs.py"}
OF_NO_CLUSTER = {
    "allow_drills", "stop_drills", "pause_plans", "resume_plans", "create_user", "update_user", "create_token",
    "delete_token", "create_saved_view", "delete_saved_view", "create_bulk_operation", "cancel_bulk_operation",
    "create_channel", "update_channel", "delete_channel", "rotate_channel", "drop_channel_old_key", "test_channel",
    "replay_delivery",
}  # fmt: skip
TOLD = {"run": "r", "step": 5, "format": "dcp", "shards": [{"path": "a", "size_bytes": 1}], "path": "/ckpt/r/step-5"}
BODIES: dict[str, Callable[[dict[str, str]], dict[str, Any]]] = {
    "register_checkpoints": lambda ids: {"items": [{"tier": ids["tier"], **TOLD}]},
}


def _wait_for_approval() -> None:
    cluster = Cluster.objects.get(name="east")
    DrillRules.objects.update_or_create(cluster=cluster, defaults={"needs_approval": True})
    Drill.objects.update(kind="failover")


# What has to be so that the operation finds something to do.
BEFORE: dict[str, Callable[[], Any]] = {
    "approve_agent": lambda: Agent.objects.update(state="pending"),
    "approve_drill": _wait_for_approval,
    "create_node_action": lambda: Cluster.objects.update(scheduler="slurm"),
    "create_scan": lambda: InventoryScan.objects.update(state="cancelled"),
    "drop_channel_old_key": lambda: channels.rotate_signing_key(channel=Channel.objects.get(), actor="x"),
    "replay_delivery": lambda: Delivery.objects.update(state="failed"),
    "resume_agent": lambda: Agent.objects.update(drain_requested_at=timezone.now()),
    "resume_transfer": lambda: Transfer.objects.update(state="paused"),
    "create_transfer": lambda: Transfer.objects.update(state="cancelled"),
}


def entries_of(act: Callable[[], HttpResponse], before: Callable[[], Any] | None = None) -> tuple[Any, list[Any]]:
    """The answer, and the entries that its request left; both are rolled back."""
    with transaction.atomic():
        if before is not None:
            before()
        answer = act()
        made = list(ActivityEntry.objects.filter(request_id=answer["X-Request-Id"]))
        transaction.set_rollback(True)
    return answer, made


def problems(name: str, answer: Any, made: list[ActivityEntry], actor: str, everywhere: bool) -> list[str]:
    if answer.status_code >= 400:
        return [f"{name}: {answer.status_code} {answer.content[:200]!r}"]
    whole = [one for one in made if one.actor == actor and one.action and one.target_kind and one.target_id]
    placed = [one for one in whole if one.cluster_id or everywhere]
    return [] if placed else [f"{name}: no entry, or one without its cluster: {whole}"]


def test_every_operation_that_changes_something_leaves_its_entry(
    client: Client, world: World, settings: Settings
) -> None:
    settings.WORKER_ROOTS = ["/ckpt", "/nas"]
    changing = {name: method for name, (method, _path) in schema_operations().items() if method != "get"}
    assert (NO_CHANGE.keys() | ELSEWHERE.keys() | OF_NO_CLUSTER | BEFORE.keys()) <= changing.keys()
    headers = {"If-Match": "*", "Authorization": f"Bearer {world.callers['admin']}"}
    wrong = []
    for name, method in sorted(changing.items()):
        path, body = path_of(name, world.ids), BODIES.get(name, OPERATIONS[name].body)(world.ids)
        send = getattr(client, method)
        answer, made = entries_of(
            lambda: send(path, body, content_type="application/json", headers=headers),  # noqa: B023  (called at once)
            BEFORE.get(name),
        )
        if name in NO_CHANGE or name in ELSEWHERE:
            assert made == [], name
        else:
            wrong += problems(name, answer, made, "admin", name in OF_NO_CLUSTER)
    assert wrong == [], wrong


# Routes that are tried with their operations above only: each calls the service that the operation calls.
WITH_THEIR_OPERATION = {
    "breaker-reset", "bulk-cancel", "bulk-choose", "checkpoint-labels", "checkpoint-pin", "cluster-inventory",
    "drill-approve", "drills-compare", "first-steps", "objective-save", "plans-pause", "token-revoke", "view-delete",
    "view-save", "activity-check", "rate-limit-add", "rate-limit-remove",
}  # fmt: skip


def test_what_pages_do_leaves_an_entry_with_the_page_s_request() -> None:
    scene = build()
    client, wrong, tried = Client(), [], set()
    client.force_login(scene.users["admin"])
    hook = Channel.objects.get(name="fleet-events")
    before: dict[str, Callable[[], Any]] = {
        "audit": lambda: Audit.objects.update(state="cancelled"),
        "channel-drop": lambda: channels.rotate_signing_key(channel=hook, actor="x"),
        "delivery-replay": lambda: Channel.objects.update(enabled=True),
    }
    for name, (url, body) in actions_of(scene).items():
        tried.add(resolve(url.partition("?")[0]).url_name)
        answer, made = entries_of(lambda: client.post(url, body), before.get(name))  # noqa: B023  (called at once)
        wrong += problems(name, answer, made, scene.users["admin"].username, everywhere=True)
    assert wrong == [], wrong
    routes = {name for name in forms() if not name.endswith(".html")} - OF_A_BROWSER
    assert sorted(routes - tried - WITH_THEIR_OPERATION) == []


def test_signing_in_and_out_is_told() -> None:
    scene = build()
    user = scene.users["operator"]
    user.set_password("long enough and odd")
    user.save()
    client = Client()
    client.post("/sign-in/", {"username": user.username, "password": "long enough and odd"})
    client.post("/sign-out/")
    client.post("/sign-out/")
    told = ActivityEntry.objects.filter(actor=user.username, action__startswith="user.").order_by("pk")
    assert list(told.values_list("action", flat=True)) == ["user.sign_in", "user.sign_out"]
