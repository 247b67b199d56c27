"""Runs inside the live server's database: reads one JSON call a line from stdin, answers one JSON value a line.

Started by `conftest.LiveServer`; its functions are what tests may do behind the server's back.
"""

# ruff: noqa: E402  (Django is set up before its models are imported)
from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.contract.live_settings")

import django

django.setup()

from datetime import timedelta

import msgspec
from django.core.management import call_command
from django.db import connection
from django.utils import timezone
from muster_agent.protocol import wire

from apps.accounts import services as accounts
from apps.accounts.models import Role, User
from apps.checkpoints.models import RunAttempt, ScanMemory
from apps.core.models import Transition
from apps.core.wakeups import announce
from apps.fleet import barrier, services, tasks, upkeep
from apps.fleet.models import Agent, AgentEvent, AgentTask, Cluster, JoinToken, TaskGroup

PARAMS: dict[str, type[msgspec.Struct]] = {
    "inventory": wire.InventoryParams,
    "seal": wire.SealParams,
    "verify": wire.VerifyParams,
    "reload": wire.ReloadParams,
    "disrupt": wire.DisruptParams,
}


def migrate() -> None:
    call_command("migrate", verbosity=0, skip_checks=True)


def api_token(username: str, role: str) -> str:
    """A REST token of a user of that role, made if need be."""
    user = User.objects.filter(username=username).first()
    user = user or accounts.create_user(username=username, password="correct horse battery", role=Role(role))
    return accounts.create_token(user=user, name="contract", role=Role(role), days=1, actor="tests")[1]


def cluster(name: str) -> str:
    found = Cluster.objects.filter(name=name).first()
    return (found or services.create_cluster(name=name, actor="tests")).pk


def remembered_bytes(tier_id: str) -> int:
    """What the workers' scans of the tier have kept between their slices."""
    memory = ScanMemory.objects.filter(tier=tier_id).first()
    return len(memory.body) if memory else 0


def join_token(cluster_id: str, **fields: Any) -> str:
    return services.create_join_token(cluster=Cluster.objects.get(pk=cluster_id), actor="tests", **fields)[1]


def expire_join_tokens() -> None:
    JoinToken.objects.update(expires_at=timezone.now() - timedelta(seconds=1))


def revoke_join_tokens() -> None:
    for token in JoinToken.objects.filter(revoked_at=None):
        services.revoke_join_token(token=token, actor="tests")


def create_task(agent_id: str, kind: str, params: dict[str, Any], **fields: Any) -> str:
    group = TaskGroup.objects.get(pk=fields.pop("group_id")) if "group_id" in fields else None
    task = tasks.create_task(
        agent=Agent.objects.get(pk=agent_id),
        kind=wire.TaskKind(kind),
        params=msgspec.convert(params, PARAMS[kind]),
        owner_kind=fields.pop("owner_kind", "scan"),
        owner_id=fields.pop("owner_id", "none"),
        group=group,
        **fields,
    )
    return task.pk


def create_raw_task(agent_id: str, kind: str, params: dict[str, Any]) -> str:
    """A task that no service would make: of an unknown kind, say."""
    row = AgentTask.objects.create(
        agent_id=agent_id, kind=kind, params=params, owner_kind="scan", owner_id="none", created_at=timezone.now()
    )
    announce(f"agent:{agent_id}")
    return row.pk


def create_group(quorum: int, seconds: float = 30) -> str:
    deadline_at = timezone.now() + timedelta(seconds=seconds)
    return barrier.create_group(owner_kind="drill", owner_id="none", quorum=quorum, deadline_at=deadline_at).pk


def task(task_id: str) -> dict[str, Any]:
    row = AgentTask.objects.get(pk=task_id)
    names = ("state", "outcome", "attempt", "runs", "error", "error_code", "result", "progress", "late_results")
    found = {name: getattr(row, name) for name in (*names, "dropped_events")}
    return {**found, "events": AgentEvent.objects.filter(task=row).count()}


def events(task_id: str) -> list[dict[str, Any]]:
    rows = AgentEvent.objects.filter(task_id=task_id).order_by("attempt", "seq")
    names = ("attempt", "seq", "kind", "phase", "edge", "mono_seconds", "data")
    return [{**{name: getattr(row, name) for name in names}, "at": row.at.timestamp()} for row in rows]


def agent(agent_id: str) -> dict[str, Any]:
    row = Agent.objects.get(pk=agent_id)
    names = ("state", "boot_id", "roots", "free_slots", "clock_offset_seconds", "node_id")
    return {name: getattr(row, name) for name in names}


def agents() -> list[str]:
    return list(Agent.objects.values_list("pk", flat=True))


def run_attempts(run: str) -> int:
    """Launches of a run that training hooks reported."""
    return RunAttempt.objects.filter(run__name=run).count()


def cancel(task_id: str) -> bool:
    return tasks.request_cancel(task=AgentTask.objects.get(pk=task_id), reason="a test asked for it")


def revoke(agent_id: str) -> None:
    services.revoke_agent(agent=Agent.objects.get(pk=agent_id), actor="tests")


def approve(agent_id: str) -> None:
    services.approve_agent(agent=Agent.objects.get(pk=agent_id), actor="tests")


def drain(agent_id: str) -> None:
    services.drain_agent(agent=Agent.objects.get(pk=agent_id), actor="tests")


def resume(agent_id: str) -> None:
    services.resume_agent(agent=Agent.objects.get(pk=agent_id), actor="tests")


def sweep() -> None:
    upkeep.expire_leases()
    upkeep.mark_silent_agents()


def transitions(owner_id: str) -> list[list[str]]:
    rows = Transition.objects.filter(owner_id=owner_id).order_by("pk")
    return [[row.old, row.new, row.reason] for row in rows]


FUNCTIONS: dict[str, Callable[..., Any]] = {
    function.__name__: function
    for function in (
        migrate, api_token, cluster, join_token, expire_join_tokens, revoke_join_tokens, create_task, create_raw_task,
        create_group, task, events, agent, agents, run_attempts, cancel, revoke, approve, drain, resume, sweep,
        transitions, remembered_bytes,
    )
}  # fmt: skip


def main() -> None:
    for line in sys.stdin:
        call = json.loads(line)
        try:
            answer = {"value": FUNCTIONS[call["function"]](*call["args"], **call["kwargs"])}
        except Exception:  # noqa: BLE001  (the test shows it)
            answer = {"error": traceback.format_exc()}
        connection.close()
        print(json.dumps(answer, default=str), flush=True)


if __name__ == "__main__":
    main()
