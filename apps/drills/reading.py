"""Reload and herd: from a chosen checkpoint to agents that read it together."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import msgspec
from django.db import transaction
from django.utils import timezone
from muster_agent.formats.base import Role
from muster_agent.manifest.model import Manifest
from muster_agent.manifest.seal import root_digest
from muster_agent.protocol.wire import ReloadParams, TaskKind

from apps.checkpoints import manifests, placements
from apps.checkpoints.models import Placement, Shard
from apps.core.errors import Conflict
from apps.core.transitions import transition
from apps.core.units import size
from apps.drills import reload, safety, selectors
from apps.drills.finish import OWNER_KIND
from apps.drills.herd import default_ladder
from apps.drills.models import CheckpointChoice, Drill, DrillKind, DrillRung
from apps.fleet import barrier, tasks
from apps.fleet import selectors as fleet
from apps.fleet.models import Agent
from apps.storage.selectors import best_ceilings

GATHER_SECONDS = 60
"""How long the clients of one rung may take to get ready before the barrier gives up."""


class CannotRun(Exception):
    """The drill cannot begin; the message says why and what to do."""


@dataclass(frozen=True)
class Preparation:
    """Everything that the first rung needs: share i is read by agent i."""

    placement: Placement
    shares: tuple[reload.Share, ...]
    agents: tuple[Agent, ...]
    ladder: tuple[int, ...]


def prepare(drill: Drill) -> Preparation:
    """Choose the copy, the agents and who reads what. Raises CannotRun."""
    placement = selectors.chosen_placement(drill)
    if placement is None:
        raise CannotRun(_nothing_to_read(drill))
    agents = [agent for agent in fleet.agents_reaching(placement.path, drill.cluster) if selectors.can_work(agent)]
    if not agents:
        raise CannotRun(
            f"No online agent of {drill.cluster.name} can read {placement.path}: start one on a node that mounts it, "
            "with a root that contains it."
        )
    files = files_by_rank(placement)
    width = _width(drill, len(agents), _client_limit(files))
    if width > len(agents):
        raise CannotRun(
            f"{width} nodes were asked for and {len(agents)} can read {placement.path} now: bring more online or "
            "ask for fewer."
        )
    shares = reload.split(files, width)
    ladder = _ladder(drill, len(shares))
    return Preparation(placement, shares, tuple(agents[: len(shares)]), ladder)


def begin(drill: Drill) -> bool:
    """Prepare, and in one transaction hold the copy, lay out the rungs and hand out the first. Raises CannotRun."""
    ready = prepare(drill)
    require_small_enough(drill, radius_of(drill, ready))
    try:
        return _begin(drill, ready)
    except Conflict as problem:  # a transfer was quicker, and removes the copy
        drill.refresh_from_db()
        raise CannotRun(problem.detail) from problem


def _begin(drill: Drill, ready: Preparation) -> bool:
    now = timezone.now()
    with transaction.atomic():
        moved = transition(
            drill,
            old=Drill.State.PREPARING,
            new=Drill.State.RUNNING,
            started_at=now,
            placement=ready.placement,
            checkpoint_step=ready.placement.checkpoint.step,
            deadline_at=now + timedelta(seconds=_deadline_seconds(drill, ready)),
            facts={**drill.facts, "clients": _client_facts(ready)},
        )
        if not moved:
            return False
        placements.hold(placement=ready.placement, source_kind=OWNER_KIND, source_id=drill.pk)
        rungs = [DrillRung(drill=drill, order=order, client_count=count) for order, count in enumerate(ready.ladder)]
        first = DrillRung.objects.bulk_create(rungs)[0]
        _hand_out(drill, first, ready.placement, ready.shares, ready.agents)
    return True


def radius_of(drill: Drill, ready: Preparation) -> safety.Radius:
    """The nodes that would read, how much, and what share of the tier's best measured rate that may take."""
    tier_id = ready.placement.tier_id
    ceiling = best_ceilings([tier_id]).get(tier_id)
    return safety.Radius(
        nodes=tuple(agent.node.name for agent in ready.agents),
        total_bytes=sum(share.total_bytes for share in ready.shares),
        tier_ratio=safety.tier_ratio(drill.max_bytes_per_second, len(ready.agents), ceiling),
    )


def require_small_enough(drill: Drill, radius: safety.Radius) -> None:
    """Raises CannotRun where the blast radius is too large, or the cluster only plans drills."""
    rules = safety.rules_of(drill.cluster)
    problem = safety.radius_problem(rules, radius)
    if problem:
        raise CannotRun(problem)
    if rules.plan_only:
        much = "" if radius.total_bytes is None else f", reading {size(radius.total_bytes)}"
        raise CannotRun(
            f"{drill.cluster.name} only plans drills: it would have touched {safety.described(radius)}{much}."
        )


def begin_rung(drill: Drill, rung: DrillRung) -> bool:
    """Hand out a later rung of the ladder, to the same agents as before. Raises CannotRun when one is gone."""
    if drill.placement is None:
        raise CannotRun("The checkpoint was removed from the inventory while the drill ran.")
    clients = drill.facts["clients"][: rung.client_count]
    by_id = {agent.pk: agent for agent in Agent.objects.filter(pk__in=[client["agent"] for client in clients])}
    gone = [client["node"] for client in clients if not _usable(by_id.get(client["agent"]))]
    if gone:
        raise CannotRun(f"{', '.join(gone)} went away before the round of {rung.client_count} clients.")
    shares = reload.split(files_by_rank(drill.placement), len(drill.facts["clients"]))
    agents = tuple(by_id[client["agent"]] for client in clients)
    with transaction.atomic():
        return _hand_out(drill, rung, drill.placement, shares, agents)


def files_by_rank(placement: Placement) -> dict[int | None, list[reload.File]]:
    shards = placements.shards_by_rank(placement)
    return {rank: [_file(shard) for shard in found if shard.size_bytes is not None] for rank, found in shards.items()}


def _file(shard: Shard) -> reload.File:
    return reload.File(shard.path, shard.size_bytes or 0, for_every_reader=shard.role == Role.METADATA)


def _usable(agent: Agent | None) -> bool:
    return agent is not None and selectors.can_work(agent)


def _hand_out(
    drill: Drill,
    rung: DrillRung,
    placement: Placement,
    shares: tuple[reload.Share, ...],
    agents: tuple[Agent, ...],
) -> bool:
    """Create the rung's barrier and its tasks, once. The caller's transaction makes it all or nothing."""
    now = timezone.now()
    if DrillRung.objects.filter(pk=rung.pk, started_at=None).update(started_at=now) != 1:
        return False
    group = barrier.create_group(
        owner_kind=OWNER_KIND,
        owner_id=drill.pk,
        quorum=rung.client_count,
        deadline_at=now + timedelta(seconds=GATHER_SECONDS),
    )
    DrillRung.objects.filter(pk=rung.pk).update(group=group)
    manifest = manifests.load_manifest(placement.manifest) if placement.manifest else None
    for share, agent in list(zip(shares, agents, strict=False))[: rung.client_count]:
        tasks.create_task(
            agent=agent,
            kind=TaskKind.RELOAD,
            params=_params(drill, placement, share, manifest),
            owner_kind=OWNER_KIND,
            owner_id=drill.pk,
            group=group,
            # a second run alone, after the others, would measure something else: a lost client ends the drill
            idempotent=False,
        )
    return True


def _params(drill: Drill, placement: Placement, share: reload.Share, manifest: Manifest | None) -> ReloadParams:
    paths = tuple(file.path for file in share.files)
    return ReloadParams(
        path=placement.path,
        store=placement.tier.store,
        shards=paths,
        ranks=share.ranks,
        manifest=restricted(manifest, frozenset(paths)) if manifest else None,
        backend=drill.backend,
        evict=drill.evict,
        max_bytes_per_second=drill.max_bytes_per_second,
    )


def restricted(manifest: Manifest, paths: frozenset[str]) -> Manifest:
    """The part of `manifest` that speaks of `paths`, a sound manifest of its own (its root digest is theirs)."""
    shards = tuple(shard for shard in manifest.shards if shard.path in paths)
    tensors = tuple(tensor for tensor in manifest.tensors if tensor.shard in paths)
    return msgspec.structs.replace(manifest, shards=shards, tensors=tensors, root_xxh3_128=root_digest(shards))


def _nothing_to_read(drill: Drill) -> str:
    """Why no copy was chosen, with the next action."""
    where = f" on the tier {drill.tier.name}" if drill.tier else ""
    run = drill.run.name
    if not selectors.candidate_placements(drill).exists():
        return f"{run} has no complete, resumable checkpoint{where}: scan its folder, or see what was found in it."
    if drill.choice == CheckpointChoice.LATEST_VERIFIED:
        return f"{run} has no verified checkpoint{where}: audit one, or choose latest."
    if drill.choice == CheckpointChoice.NAMED:
        return f"Step {drill.step} of {run} is not complete and resumable{where}: choose another step."
    return f"{run} has no resumable checkpoint of the last {drill.window_days} days{where}: widen window_days."


def _client_limit(files: dict[int | None, list[reload.File]]) -> int:
    """More clients than ranks (than files, where there are no ranks) would find nothing to read."""
    ranks = sum(1 for rank in files if rank is not None)
    return ranks or len(files.get(None, ()))


def _width(drill: Drill, agent_count: int, limit: int) -> int:
    if drill.kind == DrillKind.HERD and drill.ladder:
        return int(max(drill.ladder))
    return min(drill.node_count or agent_count, limit)


def _ladder(drill: Drill, share_count: int) -> tuple[int, ...]:
    if drill.kind != DrillKind.HERD:
        return (share_count,)
    ladder = tuple(drill.ladder) or tuple(default_ladder(share_count))
    if max(ladder) > share_count:
        raise CannotRun(
            f"The checkpoint splits into {share_count} parts, so at most {share_count} clients can read it."
        )
    return ladder


def _deadline_seconds(drill: Drill, ready: Preparation) -> float:
    one_rung = GATHER_SECONDS + reload.deadline_seconds(ready.shares, drill.max_bytes_per_second)
    return drill.deadline_seconds or one_rung * len(ready.ladder)


def _client_facts(ready: Preparation) -> list[dict[str, Any]]:
    return [
        {"agent": agent.pk, "node": agent.node.name, "ranks": list(share.ranks), "bytes": share.total_bytes}
        for share, agent in zip(ready.shares, ready.agents, strict=True)
    ]
