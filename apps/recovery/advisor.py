"""How often to save, how many spares to keep, what a failure costs: the published formulas, with their units. Pure.

Vectors are in tests/recovery/test_advisor.py, from the papers that the formulas come from.
"""

from __future__ import annotations

from math import exp, sqrt

SECONDS_PER_DAY = 86_400.0
FAILURES_PER_NODE_DAY = 6.5e-3
"""Measured on clusters of 8-GPU nodes where nothing was measured here."""


def mtbf_seconds(node_count: int, failures_per_node_day: float = FAILURES_PER_NODE_DAY) -> float:
    """The mean time between failures of a job over `node_count` nodes."""
    return SECONDS_PER_DAY / (node_count * failures_per_node_day)


def young_interval_seconds(save_seconds: float, mtbf: float) -> float:
    """Young's time between saves, from the blocking part of a save and the mean time between failures (seconds)."""
    return sqrt(2 * save_seconds * mtbf)


def daly_interval_seconds(save_seconds: float, mtbf: float) -> float:
    """Daly's higher-order form of it; the mean time itself where a save takes at least twice that."""
    if save_seconds >= 2 * mtbf:
        return mtbf
    share = save_seconds / (2 * mtbf)
    return sqrt(2 * save_seconds * mtbf) * (1 + sqrt(share) / 3 + share / 9) - save_seconds


def effective_training_ratio(
    save_seconds: float, restart_seconds: float, mtbf: float, interval_seconds: float | None = None
) -> float:
    """The share of wall time that trains (0..1) when saves come every `interval_seconds`; without one, at the best
    interval: sqrt(2 w M)."""
    interval = sqrt(2 * save_seconds * mtbf) if interval_seconds is None else interval_seconds
    useful = (1 - (restart_seconds + interval / 2) / mtbf) / (1 + save_seconds / interval)
    return max(0.0, useful)


def spares_needed(
    node_count: int, repair_hours: float, *, failures_per_node_day: float = FAILURES_PER_NODE_DAY, surety: float = 0.99
) -> int:
    """The fewest spare nodes that cover all nodes under repair at once, with probability `surety`."""
    expected = node_count * failures_per_node_day * repair_hours / 24
    term = total = exp(-expected)
    spares = 0
    while total < surety:
        spares += 1
        term *= expected / spares
        total += term
    return spares


def failure_cost(gpu_count: int, lost_seconds: float, resume_seconds: float, gpu_hour_cost: float) -> float:
    """What one failure costs, in the currency of `gpu_hour_cost`: every GPU waits and redoes the lost work."""
    return gpu_count * (lost_seconds + resume_seconds) / 3600 * gpu_hour_cost
