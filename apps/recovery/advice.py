"""From inputs that say where they come from to advice: how often to save, what a failure costs, how many spares. Pure.

An input that nobody measured or gave and that cannot be assumed makes what depends on it None: never 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from math import ceil

from apps.recovery import advisor

SECONDS_PER_MONTH = 30 * 86_400.0
GPUS_PER_NODE = 8
REPAIR_HOURS = 24.0


class Source(StrEnum):
    MEASURED = "measured"
    GIVEN = "given"
    ASSUMED = "assumed"
    MISSING = "missing"


@dataclass(frozen=True)
class Input:
    """`how` says in a few words what was measured, who gave it, or what is assumed and why."""

    value: float | None
    source: Source
    how: str


def given(value: float, how: str = "in the question") -> Input:
    return Input(value, Source.GIVEN, how)


def missing(how: str) -> Input:
    return Input(None, Source.MISSING, how)


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """`save_seconds` is what a save holds training up, `whole_save_seconds` until it is complete; `interval_seconds` is
    the time between saves today; `resume_seconds` from a fault to the first new step."""

    gpu_count: Input
    gpus_per_node: Input
    gpu_hour_cost: Input
    failures_per_node_day: Input
    mtbf_seconds: Input
    save_seconds: Input
    whole_save_seconds: Input
    interval_seconds: Input
    resume_seconds: Input
    objective_seconds: Input
    repair_hours: Input


@dataclass(frozen=True, kw_only=True)
class Interval:
    """Seconds between saves. `is_held_by_save`: the formula's own is shorter than one whole save, so that stands."""

    young_seconds: float | None
    daly_seconds: float | None
    advised_seconds: float | None
    is_held_by_save: bool = False


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """What failures cost with one time to resume. Lost work is half the time between saves; where today's is not known,
    half the advised one. Money is in the currency of the GPU-hour cost."""

    name: str
    resume_seconds: float | None
    interval_seconds: float | None
    training_ratio: float | None
    best_training_ratio: float | None
    gpu_hours_per_failure: float | None
    gpu_hours_per_month: float | None
    cost_per_failure: float | None
    cost_per_month: float | None


@dataclass(frozen=True, kw_only=True)
class Advice:
    inputs: Inputs
    node_count: int | None
    mtbf: Input
    failures_per_month: float | None
    interval: Interval
    today: Scenario
    objective: Scenario
    spare_node_count: int | None


def advise(inputs: Inputs) -> Advice:
    nodes = _node_count(inputs)
    mtbf = _mtbf(inputs, nodes)
    interval = _interval(inputs, mtbf.value)
    rate = inputs.failures_per_node_day.value or advisor.FAILURES_PER_NODE_DAY
    spares = None
    if nodes and inputs.repair_hours.value:
        spares = advisor.spares_needed(nodes, inputs.repair_hours.value, failures_per_node_day=rate)
    return Advice(
        inputs=inputs,
        node_count=nodes,
        mtbf=mtbf,
        failures_per_month=SECONDS_PER_MONTH / mtbf.value if mtbf.value else None,
        interval=interval,
        today=_scenario("today", inputs.resume_seconds.value, inputs, interval, mtbf.value),
        objective=_scenario("objective", inputs.objective_seconds.value, inputs, interval, mtbf.value),
        spare_node_count=spares,
    )


def _node_count(inputs: Inputs) -> int | None:
    gpus, each = inputs.gpu_count.value, inputs.gpus_per_node.value
    return ceil(gpus / each) if gpus and each else None


def _mtbf(inputs: Inputs, nodes: int | None) -> Input:
    """Measured or given where it is; else from the nodes and their failure rate."""
    rate = inputs.failures_per_node_day
    if inputs.mtbf_seconds.value is not None or nodes is None or not rate.value:
        return inputs.mtbf_seconds
    source = Source.ASSUMED if rate.source == Source.ASSUMED else Source.GIVEN
    return Input(advisor.mtbf_seconds(nodes, rate.value), source, f"{nodes:,} nodes x {rate.value:g} failures a day")


def _interval(inputs: Inputs, mtbf: float | None) -> Interval:
    save = inputs.save_seconds.value
    if not save or not mtbf:
        return Interval(young_seconds=None, daly_seconds=None, advised_seconds=None)
    young, daly = advisor.young_interval_seconds(save, mtbf), advisor.daly_interval_seconds(save, mtbf)
    least = inputs.whole_save_seconds.value or save
    return Interval(
        young_seconds=young, daly_seconds=daly, advised_seconds=max(daly, least), is_held_by_save=daly < least
    )


def _scenario(name: str, resume: float | None, inputs: Inputs, interval: Interval, mtbf: float | None) -> Scenario:
    save, every = inputs.save_seconds.value, inputs.interval_seconds.value or interval.advised_seconds
    gpus, price = inputs.gpu_count.value, inputs.gpu_hour_cost.value
    hours = None
    if gpus and resume is not None and every is not None:
        hours = gpus * (resume + every / 2) / 3600
    ratio = best = None
    if save and mtbf and resume is not None and every and interval.advised_seconds:
        if inputs.interval_seconds.value:
            ratio = advisor.effective_training_ratio(save, resume, mtbf, every)
        best = advisor.effective_training_ratio(save, resume, mtbf, interval.advised_seconds)
    monthly = SECONDS_PER_MONTH / mtbf if mtbf else None
    return Scenario(
        name=name,
        resume_seconds=resume,
        interval_seconds=every,
        training_ratio=ratio,
        best_training_ratio=best,
        gpu_hours_per_failure=hours,
        gpu_hours_per_month=_times(hours, monthly),
        cost_per_failure=_times(hours, price),
        cost_per_month=_times(_times(hours, monthly), price),
    )


def _times(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one * other
