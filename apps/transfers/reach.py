"""Who can carry a transfer out: the workers below the places that their setting names, else an agent of the cluster."""

from __future__ import annotations

import os

from django.conf import settings

from apps.checkpoints.models import InventoryScan
from apps.fleet.models import Agent
from apps.fleet.selectors import agents_reaching
from apps.fleet.selectors import contains as reaches
from apps.storage.models import StorageTier
from apps.storage.paths import contains, is_posix
from apps.transfers.models import Transfer

_OF_ONE_NODE = (StorageTier.Kind.MEMORY, StorageTier.Kind.LOCAL_NVME)
_REMOVING = (Transfer.Kind.MOVE, Transfer.Kind.RETIRE, Transfer.Kind.EXPIRE)


def workers_reach(*paths: str) -> bool:
    """Whether the workers may touch all of these paths. By their text only: links are followed when the work begins
    (`why_led_out`)."""
    return all(any(contains(root, path) for root in settings.WORKER_ROOTS) for path in paths)


def agent_for(transfer: Transfer) -> Agent | None:
    """An agent that is online and may do it: the one that has begun it, if it can. A tier that each node has for itself
    is reached only by the agent that listed it last."""
    found = [agent for agent in agents_reaching(transfer.source.path, transfer.cluster_id) if _may(agent, transfer)]
    local = _node_bound(transfer)
    if local:
        found = [agent for agent in found if agent.pk in local]
    return next((agent for agent in found if agent.pk == transfer.agent_id), next(iter(found), None))


def _may(agent: Agent, transfer: Transfer) -> bool:
    roots = agent.node.facts.get("copy_roots", [])
    written = [transfer.target_path] if transfer.target_path else []
    removed = [transfer.source.path] if transfer.kind in _REMOVING else []
    return all(reaches(roots, path) for path in (*written, *removed))


def _node_bound(transfer: Transfer) -> set[str]:
    """The agents that see the same local folders as the last scan did; empty where all agents see the same."""
    tiers = [tier for tier in (transfer.source.tier, transfer.target_tier) if tier and tier.kind in _OF_ONE_NODE]
    scans = InventoryScan.objects.filter(state=InventoryScan.State.FINISHED).exclude(agent=None)
    last = [scans.filter(tier=tier).order_by("-created_at").values_list("agent", flat=True).first() for tier in tiers]
    return {agent for agent in last if agent is not None}


def why_led_out(path: str) -> str:
    """Why a path, its links followed, lies outside of what the workers may touch; empty where it does not. For a path
    that is not there yet the nearest folder above counts."""
    if not is_posix(path):
        led_out = not workers_reach(path)
        return f"workers move checkpoints only below MUSTER_WORKER_ROOTS, and {path} is in none of them" * led_out
    real = os.path.realpath(path)
    if any(contains(os.path.realpath(root), real) for root in settings.WORKER_ROOTS if is_posix(root)):
        return ""
    led = "" if real == path else f" (it leads to {real})"
    return f"workers move checkpoints only below MUSTER_WORKER_ROOTS, and {path}{led} is in none of them"
