"""What several rounds of one drill tell together, in numbers and in a sentence."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from apps.core.units import duration, percent, rate
from apps.drills import herd, reload
from apps.drills.models import Drill, DrillKind, DrillRung


def typical(rungs: Sequence[DrillRung]) -> list[DrillRung]:
    """For each client count the median round of its repeats (the slower one of an even number), few clients first."""
    by_count: dict[int, list[DrillRung]] = defaultdict(list)
    for rung in rungs:
        by_count[rung.client_count].append(rung)
    return [
        sorted(found, key=lambda rung: rung.seconds or 0.0)[len(found) // 2]
        for _count, found in sorted(by_count.items())
    ]


def spread_of(rungs: Sequence[DrillRung], widest: DrillRung) -> reload.Spread:
    return reload.spread([rung.seconds or 0.0 for rung in rungs if rung.client_count == widest.client_count])


def tier_facts(rungs: Sequence[DrillRung]) -> list[dict[str, Any]]:
    """The widest round on each tier, fastest first, with the spread of its repeats."""
    by_copy: dict[str, list[DrillRung]] = defaultdict(list)
    for rung in rungs:
        by_copy[rung.placement_id or ""].append(rung)
    rows = [
        {
            "tier": widest.placement.tier_id if widest.placement else None,
            "tier_name": widest.placement.tier.name if widest.placement else "removed",
            "client_count": widest.client_count,
            "seconds": widest.seconds,
            "bytes_per_second": widest.bytes_per_second,
            "spread_ratio": spread_of(found, widest).spread_ratio,
        }
        for found in by_copy.values()
        for widest in (typical(found)[-1],)
    ]
    return sorted(rows, key=lambda row: -(row["bytes_per_second"] or 0.0))


def compared(rung: DrillRung) -> dict[str, Any]:
    """The team's loader beside the engine, as the first client measured both."""
    first = rung.results.order_by("rank").first()
    told: dict[str, Any] = first.evidence.get("loader_compare", {}) if first else {}
    return {**told, "engine_cpu_by_phase": first.cpu_by_phase if first else {}}


def _compared_words(drill: Drill, told: dict[str, Any]) -> str:
    own, engine = told.get("own_cpu_seconds_per_gb"), told.get("engine_cpu_seconds_per_gb")
    if own is None or engine is None:
        return f" What {drill.loader} costs was not measured."
    ratio = f", {told['cpu_ratio']:.1f} times as much" if told.get("cpu_ratio") else ""
    return f" {drill.loader} took {own:.2f} CPU s/GB against {engine:.2f} of the engine{ratio}."


def summary(drill: Drill, figures: dict[str, Any]) -> str:
    """One sentence on how a passed drill went, made from its numbers."""
    proof = {True: "every byte verified", None: "not verified (no manifest)"}.get(figures["verified"], "")
    cached = percent(figures["cached_ratio_before"])
    sentence = f"{rate(figures['bytes_per_second'])} together, {proof}, {cached} cached before."
    if drill.kind == DrillKind.BANDWIDTH:
        low, high = (rate(figures["facts"]["balance"][name]) for name in ("min_rate", "max_rate"))
        sentence = f"{rate(figures['bytes_per_second'])} together, {low} to {high} per node, {cached} cached before."
    knee = figures["facts"].get("knee")
    facts = figures["facts"]
    if drill.kind == DrillKind.LOADER_COMPARE:
        sentence += _compared_words(drill, facts["loader_compare"])
    if facts["blame"]:
        late = facts["blame"][0]
        rank = f" (rank {late['ranks'][0]})" if late["ranks"] else ""
        excess = f"{duration(late['excess_seconds'])} more than the others in {late['phase']}"
        sentence += f" {late['name']}{rank} came last: {excess}."
    if "repeats" in facts:
        sentence += f" {drill.repeats} times, {percent(facts['repeats']['spread_ratio'])} apart."
    if drill.every_tier and len(facts["tiers"]) > 1:
        best, rest = facts["tiers"][0], facts["tiers"][1:]
        others = ", ".join(f"{row['tier_name']} {rate(row['bytes_per_second'])}" for row in rest)
        sentence += f" Fastest on {best['tier_name']}, {rate(best['bytes_per_second'])}; {others}."
    if drill.kind != DrillKind.HERD:
        return sentence
    if knee is None:
        return f"{sentence} Still scaling at {figures['facts']['ladder'][-1]['client_count']} clients."
    gain = percent(max(0.0, knee["gain_per_doubling_ratio"]))
    return f"{sentence} Stops scaling at {knee['client_count']} clients: {gain} more per doubling."


def ladder_facts(rungs: Sequence[DrillRung]) -> dict[str, Any]:
    ladder = [
        {"client_count": rung.client_count, "bytes_per_second": rung.bytes_per_second, "jain_index": rung.jain_index}
        for rung in rungs
    ]
    measured = [herd.Rung(r.client_count, r.bytes_per_second) for r in rungs if r.bytes_per_second]
    knee = herd.knee(measured)
    described = None
    if knee is not None:
        described = {
            "client_count": knee.client_count,
            "previous_count": knee.previous_count,
            "gain_per_doubling_ratio": knee.gain_per_doubling_ratio,
        }
    return {"ladder": ladder, "knee": described}
