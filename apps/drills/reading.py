"""Reload and herd: from a chosen checkpoint to agents that read it together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import msgspec
from django.db import transaction
from django.utils import timezone
from muster_agent.formats.base import Role
from muster_agent.manifest.model import Manifest
from muster_agent.manifest.seal import root_digest
from muster_agent.protocol.measuring import BandwidthParams, LoaderCompareParams
from muster_agent.protocol.wire import ReloadParams, TaskKind

from apps.checkpoints import manifests, placements
from apps.checkpoints.models import Placement, Shard
from apps.core.errors import Conflict
from apps.core.transitions import transition
from apps.core.units import size
from apps.drills import reload, safety, selectors
from apps.drills.finish import OWNER_KIND
from apps.drills.herd import default_ladder
from apps.drills.models import CheckpointChoice, Drill, DrillKind, DrillRung, ReadMapping
from apps.fleet import barrier, tasks
from apps.fleet import selectors as fleet
from apps.fleet.models import Agent
from apps.storage.selectors import best_ceilings

MAX_CLIENTS = 16_384
GATHER_SECONDS = 60
"""How long the clients of one rung may take to get ready before the barrier gives up."""


class CannotRun(Exception):
    """The drill cannot begin; the message says why and what to do."""


@dataclass(frozen=True)
class Preparation:
    """Everything that the rungs need: share i is read by agent i. `placement`, the first of `copies`, was chosen."""

    placement: Placement
    copies: tuple[Placement, ...]
    shares: tuple[reload.Share, ...]
    agents: tuple[Agent, ...]
    ladder: tuple[int, ...]


def prepare(drill: Drill) -> Preparation:
    """Choose the copy, the agents and who reads what. Raises CannotRun."""
    placement = selectors.chosen_placement(drill)
    if placement is None:
        raise CannotRun(_nothing_to_read(drill))
    copies = (placement, *(selectors.other_copies(placement) if drill.every_tier else ()))
    reach = [{agent.pk for agent in fleet.agents_reaching(copy.path, drill.cluster)} for copy in copies]
    agents = [
        agent
        for agent in fleet.agents_reaching(placement.path, drill.cluster)
        if selectors.can_work(agent) and all(agent.pk in found for found in reach) and _has_loader(drill, agent)
    ]
    if not agents and drill.loader:
        raise CannotRun(
            f"No online agent that can read {placement.path} names a loader {drill.loader!r} in its config.json."
        )
    if not agents:
        raise CannotRun(
            f"No online agent of {drill.cluster.name} can read {placement.path}: start one on a node that mounts it, "
            "with a root that contains it."
        )
    files = files_by_rank(placement)
    width = _width(drill, len(agents), _client_limit(drill, files))
    if width > len(agents):
        raise CannotRun(
            f"{width} nodes were asked for and {len(agents)} can read {placement.path} now: bring more online or "
            "ask for fewer."
        )
    shares = _split(drill, files, width)
    ladder = _ladder(drill, len(shares))
    return Preparation(placement, copies, shares, tuple(agents[: len(shares)]), ladder)


def _has_loader(drill: Drill, agent: Agent) -> bool:
    return not drill.loader or drill.loader in (agent.node.facts.get("loaders") or ())


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
        for copy in ready.copies:
            placements.hold(placement=copy, source_kind=OWNER_KIND, source_id=drill.pk)
        first = DrillRung.objects.bulk_create(_rungs(drill, ready))[0]
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


def _rungs(drill: Drill, ready: Preparation) -> list[DrillRung]:
    """Copy after copy, few clients before many, each as often as was asked for."""
    rounds = [(copy, count) for copy in ready.copies for count in ready.ladder for _time in range(drill.repeats)]
    return [
        DrillRung(drill=drill, order=order, client_count=count, placement=copy)
        for order, (copy, count) in enumerate(rounds)
    ]


def _split(drill: Drill, files: dict[int | None, list[reload.File]], width: int) -> tuple[reload.Share, ...]:
    evenly = drill.mapping == ReadMapping.EVEN or drill.kind == DrillKind.BANDWIDTH
    return reload.split_evenly(files, width) if evenly else reload.split(files, width)


def begin_rung(drill: Drill, rung: DrillRung) -> bool:
    """Hand out a later rung of the ladder, to the same agents as before. Raises CannotRun when one is gone."""
    if rung.placement is None:
        raise CannotRun("The checkpoint was removed from the inventory while the drill ran.")
    clients = drill.facts["clients"][: rung.client_count]
    by_id = {agent.pk: agent for agent in Agent.objects.filter(pk__in=[client["agent"] for client in clients])}
    gone = [client["node"] for client in clients if not _usable(by_id.get(client["agent"]))]
    if gone:
        raise CannotRun(f"{', '.join(gone)} went away before the round of {rung.client_count} clients.")
    shares = _split(drill, files_by_rank(rung.placement), len(drill.facts["clients"]))
    agents = tuple(by_id[client["agent"]] for client in clients)
    with transaction.atomic():
        return _hand_out(drill, rung, rung.placement, shares, agents)


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
    kind, of_client = _work(drill, placement)
    for share, agent in list(zip(shares, agents, strict=False))[: rung.client_count]:
        tasks.create_task(
            agent=agent,
            kind=kind,
            params=of_client(drill, placement, share),
            owner_kind=OWNER_KIND,
            owner_id=drill.pk,
            group=group,
            # a second run alone, after the others, would measure something else: a lost client ends the drill
            idempotent=False,
        )
    return True


_Params = Callable[[Drill, Placement, reload.Share], Any]


def _reload_params(placement: Placement) -> _Params:
    """With the manifest loaded once for all clients."""
    manifest = manifests.load_manifest(placement.manifest) if placement.manifest else None
    return lambda drill, copy, share: _params(drill, copy, share, manifest)


def _work(drill: Drill, placement: Placement) -> tuple[TaskKind, _Params]:
    """What each client is asked to do, and how its parameters are made."""
    if drill.kind == DrillKind.BANDWIDTH:
        return TaskKind.BANDWIDTH, _bandwidth_params
    reading = _reload_params(placement)
    if drill.kind != DrillKind.LOADER_COMPARE:
        return TaskKind.RELOAD, reading
    return TaskKind.LOADER_COMPARE, lambda *of: LoaderCompareParams(loader=drill.loader, reload=reading(*of))


def _bandwidth_params(drill: Drill, placement: Placement, share: reload.Share) -> BandwidthParams:
    return BandwidthParams(
        root=placement.path,
        runner=drill.runner,
        seconds=float(drill.runner_seconds),
        gpu=_gpu(drill.device),
        evict=drill.evict,
        part=share.part or (0, 1),
    )


def _gpu(device: str) -> int | None:
    """The number in `cuda:N`; 0 where a GPU without a number was asked for, None for none."""
    return int(device.partition(":")[2] or 0) if device.startswith("cuda") else None


def _params(drill: Drill, placement: Placement, share: reload.Share, manifest: Manifest | None) -> ReloadParams:
    paths = tuple(file.path for file in share.files)
    return ReloadParams(
        path=placement.path,
        store=placement.tier.store,
        shards=paths,
        ranks=share.ranks,
        manifest=restricted(manifest, frozenset(paths)) if manifest else None,
        share=share.part,
        backend=drill.backend,
        device=drill.device,
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


def _client_limit(drill: Drill, files: dict[int | None, list[reload.File]]) -> int:
    """More clients than ranks (than files, where there are no ranks) would find nothing to read; an even split has no
    such end."""
    if drill.mapping == ReadMapping.EVEN or drill.kind == DrillKind.BANDWIDTH:
        return MAX_CLIENTS
    ranks = sum(1 for rank in files if rank is not None)
    return ranks or len(files.get(None, ()))


def _width(drill: Drill, agent_count: int, limit: int) -> int:
    if drill.kind == DrillKind.HERD and drill.ladder:
        return int(max(drill.ladder))
    if drill.kind == DrillKind.LOADER_COMPARE:
        return min(drill.node_count or 1, limit)
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
    return drill.deadline_seconds or one_rung * len(_rungs(drill, ready))


def _client_facts(ready: Preparation) -> list[dict[str, Any]]:
    return [
        {
            "agent": agent.pk,
            "node": agent.node.name,
            "version": agent.version,
            "ranks": list(share.ranks),
            "bytes": share.total_bytes,
        }
        for share, agent in zip(ready.shares, ready.agents, strict=True)
    ]
