"""What a drill's figures mean and do not mean, in sentences. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from apps.core import units
from apps.core.phases import LABELS, not_measured
from apps.drills.reload import FROM_MEMORY_RATIO

ABOVE_RATIO = 1.02
"""Above this a rate beats its ceiling; below it is the ceiling within what a measurement wavers."""


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What the sentences look at: `effective` of all clients, `client_count` of the widest round, `world_size` of the
    checkpoint. Each None or empty is not known."""

    kind: str
    outcome: str
    phases: Mapping[str, float]
    verified: bool | None = None
    cached_ratio_before: float | None = None
    effective: Sequence[str] = ()
    device: str = "auto"
    max_bytes_per_second: int | None = None
    client_count: int | None = None
    world_size: int | None = None
    fault: str = ""
    evict: bool = True


def ceiling_words(ratio: float | None, ceiling: Mapping[str, Any] | None, cached_ratio: float | None) -> str:
    """How a rate stands to the tier's measured ceiling; one above it is no percentage but a question to the ceiling."""
    if ceiling is None:
        return "the tier's ceiling was not measured with as many clients"
    known = f"{units.rate(ceiling['bytes_per_second'])} with {_clients(ceiling.get('client_count'))}"
    if ratio is None and (cached_ratio or 0.0) > FROM_MEMORY_RATIO:
        return f"not judged against {known}: {units.percent(cached_ratio)} came from the nodes' memory"
    if ratio is None:
        return f"not measured, so not judged against {known}"
    if str(ceiling.get("method", "")).startswith("this drill"):
        return f"the most that was ever measured there ({known}); {ceiling['method'].partition('; ')[2]}"
    if ratio <= ABOVE_RATIO:
        return f"{units.percent(min(ratio, 1.0))} of {known}"
    memory = (
        "how much came from the nodes' memory is not known"
        if cached_ratio is None
        else "the storage's own cache may have helped"
    )
    return (
        f"{ratio:.2f} times the measured ceiling ({known}), so that was no upper limit: it was read with less "
        f"parallelism or in a worse moment, or {memory}. Measure the tier again"
    )


def _clients(count: int | None) -> str:
    return "an unknown number of clients" if count is None else f"{count:,} client{'' if count == 1 else 's'}"


def not_proven(told: Measured) -> list[str]:
    """What somebody might take this drill to show, and it does not, each with what would."""
    if told.outcome != "passed":
        return ["It did not pass, so it proves nothing about a recovery; what it measured until then still holds."]
    by_kind = {"failover": _of_failover, "standby": _of_standby, "bandwidth": _of_bandwidth}
    find = by_kind.get(told.kind, _of_reading)
    return [*find(told), "That the next one will be as fast: one drill is one sample."]


def _of_reading(told: Measured) -> list[str]:
    """Reload, herd and loader comparison: the storage part."""
    missing = ", ".join(LABELS[phase].lower() for phase in not_measured(told.phases))
    found = [f"A recovery: this is the storage part only. Not measured: {missing}. A failover drill times them all."]
    if told.verified is None:
        found.append("That the bytes are those that were saved: there was no manifest to compare with. Seal it first.")
    found += _of_cache(told)
    if told.effective and "gds" not in told.effective:
        found.append(f"GPUDirect Storage: the bytes went by {', '.join(told.effective)}.")
    if told.device == "cpu" or (told.effective and set(told.effective) <= {"host_direct", "host_buffered", "s3"}):
        found.append("That the bytes reach a GPU: they ended in the nodes' memory.")
    if told.max_bytes_per_second is not None:
        found.append(f"What the storage can do: each client was held to {units.rate(told.max_bytes_per_second)}.")
    if told.client_count and told.world_size and told.client_count < told.world_size:
        found.append(
            f"All {told.world_size:,} ranks reading at once, each in its own process: "
            f"{_clients(told.client_count)} read for them."
        )
    return found


def _of_cache(told: Measured) -> list[str]:
    if told.cached_ratio_before is None:
        return ["How fast the storage is when cold: what was cached before could not be told."]
    if told.cached_ratio_before > FROM_MEMORY_RATIO:
        cached = units.percent(told.cached_ratio_before)
        return [f"How fast the storage is: {cached} of the bytes lay in the nodes' memory before."]
    if not told.evict:
        return ["That nothing was warm: the page cache was not dropped first."]
    return ["How fast the storage's servers are when cold: their own caches cannot be seen or dropped from here."]


def _of_failover(told: Measured) -> list[str]:
    others = {"process": "a dead node or link", "node": "a dead link", "link": "a dead node"}.get(
        told.fault, "a dead process, node or link"
    )
    found = [f"A recovery from {others}: this fault was a {told.fault or 'process'}."]
    missing = [LABELS[phase].lower() for phase in not_measured(told.phases)]
    if missing:
        found.append(f"How long these take, which were not measured: {', '.join(missing)}.")
    found.append("That the state was right: a step was trained from it, and only the loss over many steps shows more.")
    return found


def _of_standby(_told: Measured) -> list[str]:
    return [
        "A recovery of a job: a spare was put in, and no training process was restarted on it.",
        "That the spare would read a checkpoint as fast as the others: a reload drill on it shows that.",
    ]


def _of_bandwidth(told: Measured) -> list[str]:
    return ["That any checkpoint can be restored: bytes were read, and none were compared.", *_of_cache(told)]
