"""Where the evidence of each part of a run's sentence lies: a kind of object and its id."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from apps.recovery.readiness import ReadinessRow
from apps.recovery.sentence import About, Part


@dataclass(frozen=True)
class Evidence:
    """`kind`: audit, checkpoint, cluster, drill, incident, rto_history (of the run `id`), run, step (of the run `id`),
    tier, or whatever else proved a copy (attempt, transfer)."""

    kind: str
    id: str
    step: int | None = None


def evidence_of(row: ReadinessRow, part: Part) -> Evidence | None:
    """None for a part that only connects, or whose evidence is gone."""
    find = _OF.get(part.about)
    return find(row, part) if find else None


def _step(row: ReadinessRow, part: Part) -> Evidence | None:
    return None if part.step is None else Evidence("step", row.run.pk, part.step)


def _checkpoint(row: ReadinessRow, _part: Part) -> Evidence | None:
    if row.placement is not None:
        return Evidence("checkpoint", row.placement.checkpoint_id)
    return None if row.decision.step is None else Evidence("step", row.run.pk, row.decision.step)


def _proof(row: ReadinessRow, part: Part) -> Evidence | None:
    kind, found = getattr(row.placement, "proof_kind", None), getattr(row.placement, "proof_id", None)
    if kind == "attempt":  # a launch has no page of its own: its run lists it
        return _run(row, part)
    return Evidence(kind, found) if kind and found else _checkpoint(row, part)


def _tier(row: ReadinessRow, _part: Part) -> Evidence | None:
    return Evidence("tier", row.placement.tier_id) if row.placement else None


def _history(row: ReadinessRow, _part: Part) -> Evidence | None:
    return Evidence("rto_history", row.run.pk)


def _restart(row: ReadinessRow, part: Part) -> Evidence | None:
    restart = row.restart
    return Evidence(restart.source_kind, restart.source_id) if restart else _history(row, part)


def _drill(row: ReadinessRow, _part: Part) -> Evidence | None:
    return Evidence("drill", row.drill.pk) if row.drill else None


def _run(row: ReadinessRow, _part: Part) -> Evidence | None:
    return Evidence("run", row.run.pk)


def _cluster(row: ReadinessRow, _part: Part) -> Evidence | None:
    return Evidence("cluster", row.run.cluster_id)


_OF: dict[About, Callable[[ReadinessRow, Part], Evidence | None]] = {
    About.PASSED_OVER: _step,
    About.NEWEST_PROVEN: _step,
    About.CHECKPOINT: _checkpoint,
    About.PROOF: _proof,
    About.TIER: _tier,
    About.INVENTORY: _tier,
    About.TIME: _history,
    About.RESTART: _restart,
    About.LOSS: _run,
    About.SAVE: _run,
    About.COST: _cluster,
    About.DRILL: _drill,
}
