"""From what the agents reported to the drill's own numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from django.utils import timezone
from muster_agent.formats.base import Finding, Severity
from muster_agent.formats.fingerprint import fingerprint
from muster_agent.manifest.rewrites import CHANGED
from muster_agent.protocol.wire import ReloadBody

from apps.checkpoints import evidence, placements
from apps.checkpoints.models import Placement
from apps.core.moments import utc_moment
from apps.core.units import rate
from apps.drills import reload
from apps.drills.finish import OWNER_KIND
from apps.drills.models import Drill, DrillKind, DrillRung, RankResult
from apps.drills.rounds import compared, ladder_facts, spread_of, tier_facts, typical
from apps.fleet import tasks
from apps.fleet.models import AgentTask
from apps.storage.models import TierCeiling
from apps.storage.selectors import ceiling_for
from apps.storage.services import record_ceiling as record_tier_ceiling

COLD_RATIO = 0.05
INTO_DEVICE = ("gds", "mixed", "unknown", "host_bounce")


@dataclass(frozen=True)
class Client:
    """One client's task with its result; `name` is its node's, `body` None unless it is done."""

    index: int
    name: str
    ranks: tuple[int, ...]
    task: AgentTask
    body: ReloadBody | None

    @property
    def who(self) -> str:
        """`gpu-2 (rank 1)`."""
        if not self.ranks:
            return self.name
        span = str(self.ranks[0]) if len(self.ranks) == 1 else f"{self.ranks[0]} to {self.ranks[-1]}"
        return f"{self.name} (rank {span})" if len(self.ranks) == 1 else f"{self.name} (ranks {span})"


def clients_of(drill: Drill, rung: DrillRung) -> list[Client]:
    """The rung's clients in order, as far as they have got."""
    rows = tasks.tasks_of(OWNER_KIND, drill.pk).filter(group_id=rung.group_id).select_related("agent__node")
    places = {client["agent"]: index for index, client in enumerate(drill.facts["clients"])}
    found = []
    for task in rows:
        index = places[task.agent_id]
        body = tasks.body(task, ReloadBody) if task.outcome == AgentTask.Outcome.DONE else None
        ranks = tuple(drill.facts["clients"][index]["ranks"])
        found.append(Client(index, task.agent.node.name, ranks, task, body))
    return sorted(found, key=lambda client: client.index)


def record(rung: DrillRung, clients: Sequence[Client]) -> None:
    """One row for each client that has ended. Recording again changes nothing."""
    rows = [_row(rung, client) for client in clients if client.task.outcome]
    RankResult.objects.bulk_create(rows, ignore_conflicts=True)


def close_rung(rung: DrillRung, clients: Sequence[Client]) -> reload.FleetFigures | None:
    """Store the round's figures; None when another worker closed it first."""
    figures = reload.combine([_figures(client) for client in clients if client.body])
    changed = DrillRung.objects.filter(pk=rung.pk, finished_at=None).update(
        finished_at=timezone.now(),
        seconds=figures.seconds,
        total_bytes=figures.total_bytes,
        bytes_per_second=figures.bytes_per_second,
        jain_index=figures.jain_index,
        start_skew_seconds=figures.start_skew_seconds,
    )
    return figures if changed == 1 else None


def drill_figures(drill: Drill) -> dict[str, Any]:
    """The drill's columns: of its widest rung, and for a herd the whole ladder in `facts`."""
    rungs = list(drill.rungs.select_related("placement__tier").order_by("order"))
    own = [rung for rung in rungs if rung.placement_id == drill.placement_id]
    widest = typical(own)[-1]
    stored = [_stored(result) for result in widest.results.select_related("node")]
    figures = reload.combine(stored)
    facts = {
        **drill.facts,
        "slowest": {"node": figures.slowest, "ranks": list(figures.slowest_ranks)},
        "stragglers": list(figures.stragglers),
        "blame": [asdict(late) for late in reload.blame(stored)],
        "balance": asdict(reload.balance(stored)),
        "agent_versions": _versions(widest),
        **_ceilings(drill, widest.client_count, figures.bytes_per_second, stored),
    }
    if drill.kind == DrillKind.LOADER_COMPARE:
        facts["loader_compare"] = compared(widest)
    if drill.repeats > 1:
        facts["repeats"] = asdict(spread_of(own, widest))
    if drill.every_tier:
        facts["tiers"] = tier_facts(rungs)
    if drill.kind == DrillKind.HERD:
        facts |= ladder_facts(typical(own))
    return {
        "total_bytes": figures.total_bytes,
        "seconds": figures.seconds,
        "bytes_per_second": figures.bytes_per_second,
        "phases": figures.phases,
        "unattributed_seconds": figures.unattributed_seconds,
        "start_skew_seconds": figures.start_skew_seconds,
        "jain_index": figures.jain_index,
        "cached_ratio_before": figures.cached_ratio_before,
        "verified": figures.verified,
        "facts": facts,
    }


def _versions(rung: DrillRung) -> dict[str, str]:
    """The agents' versions by node, as they are while their drill ends: a later comparison must not see newer ones."""
    tasks_of_rung = AgentTask.objects.filter(pk__in=rung.results.values("task_id"))
    return dict(tasks_of_rung.order_by("agent__node__name").values_list("agent__node__name", "agent__version"))


def damage(clients: Sequence[Client]) -> list[tuple[Client, tuple[Finding, ...]]]:
    """The clients whose bytes were not those that were sealed, each with its findings of damage."""
    found = []
    for client in clients:
        if client.body and client.body.report.verified is False:
            findings = tuple(f for f in client.body.report.findings if f.severity == Severity.DAMAGE)
            found.append((client, findings))
    return found


def changed_since_sealing(clients: Sequence[Client]) -> str | None:
    """Why a drill proves nothing whose files were written again since they were sealed; that is no damage."""
    for client in clients:
        for found in client.body.report.findings if client.body else ():
            if found.code == CHANGED:
                return f"{client.who} found that {found.detail}. {found.cure}"
    return None


def wrong_backend(drill: Drill, clients: Sequence[Client]) -> str | None:
    """Why a drill that asked for GPUDirect Storage, or for a GPU, did not measure it."""
    wanted = "GDS" if drill.backend == "gds" else drill.device if drill.device.startswith("cuda") else ""
    reaching = ("gds",) if drill.backend == "gds" else INTO_DEVICE
    for client in clients if wanted else ():
        if client.body and client.body.report.effective not in reaching:
            report = client.body.report
            return f"{wanted} was asked for, but {client.who} read by {report.effective}: {report.reason}"
    return None


def unchanged_since_scan(placement: Placement, clients: Sequence[Client]) -> bool:
    """Whether every client read the very files (sizes and times) that the inventory knows; evidence is about those."""
    shards = {shard.path: shard for found in placements.shards_by_rank(placement).values() for shard in found}
    for client in clients:
        read = [
            shards[path] for path in client.task.params.get("reload", client.task.params)["shards"] if path in shards
        ]
        expected = fingerprint((shard.path, shard.size_bytes or 0, shard.mtime_ns or 0) for shard in read)
        if client.body is None or client.body.fingerprint != expected:
            return False
    return True


def record_proof(drill: Drill) -> None:
    """What a passed drill proves of every copy that it read, and of its tier."""
    copies = {rung.placement_id: rung for rung in drill.rungs.select_related("placement__tier").order_by("order")}
    for widest in copies.values():  # the last round on each copy is its widest
        if widest.placement is not None:
            record_evidence(drill, widest.placement, clients_of(drill, widest))
            record_ceiling(drill, widest.placement)


def record_evidence(drill: Drill, placement: Placement, clients: Sequence[Client]) -> None:
    """A checkpoint that agents loaded whole and found equal to its manifest has the rung `reloaded`."""
    reports = [client.body.report for client in clients if client.body]
    total_bytes = sum(report.bytes for report in reports)
    if reload.all_verified([report.verified for report in reports]) is not True:
        return
    if total_bytes < sum(client["bytes"] for client in drill.facts["clients"]):
        return
    if not unchanged_since_scan(placement, clients):
        return
    evidence.add_evidence(
        placement=placement,
        rung=Placement.Trust.RELOADED,
        source_kind=OWNER_KIND,
        source_id=drill.pk,
        fingerprint=placement.fingerprint,
        detail={"bytes": total_bytes, "nodes": [client.name for client in clients]},
    )


def record_ceiling(drill: Drill, placement: Placement) -> None:
    """The best cold rate of this drill, where it beats what was measured of the tier with as many clients in the last
    90 days. A capped drill measures its cap."""
    if drill.max_bytes_per_second is not None:
        return
    rungs = list(drill.rungs.filter(placement=placement).order_by("order").prefetch_related("results"))
    best = max(filter(_is_cold, rungs), key=lambda rung: rung.bytes_per_second or 0.0, default=None)
    if best is None or not best.bytes_per_second:
        return
    known = ceiling_for(placement.tier_id, best.client_count, timezone.now())
    if known is None or known.bytes_per_second < best.bytes_per_second:
        record_tier_ceiling(
            tier=placement.tier,
            bytes_per_second=best.bytes_per_second,
            client_count=best.client_count,
            method=_method(drill, best),
        )


def _method(drill: Drill, rung: DrillRung) -> str:
    """`bandwidth drill drl_1, fio io_uring 4 MiB x 16`."""
    first = next(iter(rung.results.all()), None)
    how = first.evidence.get("method", "") if first else ""
    return f"{drill.kind} drill {drill.pk}{f', {how}' if how else ''}"[:100]


def _ceilings(
    drill: Drill, client_count: int, together: float | None, clients: Sequence[reload.ClientFigures]
) -> dict[str, Any]:
    """What the tier can do with as many clients and with one, as known before this drill adds its own figure; where it
    was faster, that figure: nothing reaches more than all of a ceiling."""
    if drill.placement is None:
        return {}
    tier_id, now = drill.placement.tier_id, timezone.now()
    fastest = max((one.bytes / one.seconds for one in clients if one.seconds > 0), default=None)
    reached = {"ceiling": (client_count, together), "client_ceiling": (1, fastest)}
    found = {name: (ceiling_for(tier_id, count, now), rate) for name, (count, rate) in reached.items()}
    return {name: _held_against(ceiling, rate) for name, (ceiling, rate) in found.items() if ceiling is not None}


def _held_against(ceiling: TierCeiling, reached: float | None) -> dict[str, Any]:
    known = _described(ceiling)
    if reached is None or reached <= ceiling.bytes_per_second:
        return known
    method = f"this drill, the best that was measured; before it {rate(ceiling.bytes_per_second)} by {ceiling.method}"
    return {**known, "bytes_per_second": reached, "method": method, "measured_at": timezone.now().isoformat()}


def _described(ceiling: TierCeiling) -> dict[str, Any]:
    return {
        "bytes_per_second": ceiling.bytes_per_second,
        "client_count": ceiling.client_count,
        "method": ceiling.method,
        "measured_at": ceiling.measured_at.isoformat(),
    }


def _is_cold(rung: DrillRung) -> bool:
    """Known to have been read from the storage, not from the clients' memory."""
    parts = [(result.bytes or 0, result.cached_ratio_before) for result in rung.results.all()]
    ratio = reload.weighted_ratio(parts)
    return ratio is not None and ratio < COLD_RATIO


def record_damage(drill: Drill, placement: Placement, damaged: Sequence[tuple[Client, tuple[Finding, ...]]]) -> str:
    """Mark the copy as damaged and give the sentence that names the first place. Also where the files changed since
    the last scan: nothing may resume from them meanwhile, and the next scan looks again."""
    findings = [found for _client, part in damaged for found in part]
    evidence.mark_damage(
        placement=placement,
        findings=findings,
        source_kind=OWNER_KIND,
        source_id=drill.pk,
        fingerprint=placement.fingerprint,
    )
    client, part = damaged[0]
    what = part[0].detail if part else "its bytes are not those that were sealed"
    more = f" ({len(findings) - 1} more findings)" if len(findings) > 1 else ""
    return f"Damage: {client.who} found that {what}{more}."


def _figures(client: Client) -> reload.ClientFigures:
    assert client.body is not None
    report = client.body.report
    return reload.ClientFigures(
        name=client.name,
        ranks=client.ranks,
        bytes=report.bytes,
        seconds=report.seconds,
        started_seconds=client.body.started_unix_seconds,
        phases=report.phases,
        cached_ratio_before=report.cached_ratio_before,
        verified=report.verified,
    )


def _stored(result: RankResult) -> reload.ClientFigures:
    return reload.ClientFigures(
        name=result.node.name if result.node else f"rank {result.rank}",
        ranks=tuple(result.ranks),
        bytes=result.bytes or 0,
        seconds=result.seconds or 0.0,
        started_seconds=result.started_at.timestamp() if result.started_at else 0.0,
        phases=result.phases,
        cached_ratio_before=result.cached_ratio_before,
        verified=result.verified,
    )


def _row(rung: DrillRung, client: Client) -> RankResult:
    row = RankResult(
        rung=rung,
        rank=client.ranks[0] if client.ranks else client.index,
        ranks=list(client.ranks),
        node=client.task.agent.node,
        task_id=client.task.pk,
        outcome=client.task.outcome,
        error=client.task.error,
    )
    if client.body is None:
        return row
    report = client.body.report
    for name in _REPORT_FIELDS:
        setattr(row, name, getattr(report, name))
    row.started_at = utc_moment(client.body.started_unix_seconds)
    return row


_REPORT_FIELDS = (
    "bytes",
    "seconds",
    "bytes_per_second",
    "phases",
    "busy",
    "requested",
    "effective",
    "evidence",
    "reason",
    "cache_state",
    "cached_ratio_before",
    "cpu_seconds",
    "cpu_by_phase",
    "peak_rss_bytes",
    "verified",
)
