"""A stale save: two steps that hold bit-identical trained state. Pure."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from muster_agent.formats.base import Finding
from muster_agent.formats.codes import finding
from muster_agent.manifest.model import Manifest


class StaleVerdict(StrEnum):
    STALE = "stale"
    CHANGED = "changed"
    NOT_DECIDABLE = "not_decidable"
    """One of the two names no tensors, or they hold different sets of tensors."""


class StaleComparison(msgspec.Struct, frozen=True, kw_only=True):
    verdict: StaleVerdict
    reason: str
    finding: Finding | None = None


def compare_steps(older: Manifest, newer: Manifest) -> StaleComparison:
    """Whether `newer` saved the same trained state as `older`. Where the tensors lie in the files does not matter;
    some equal tensors (frozen layers) are normal, all of them are not."""
    before, after = _by_tensor(older), _by_tensor(newer)
    if not before or not after:
        return StaleComparison(
            verdict=StaleVerdict.NOT_DECIDABLE, reason="the manifests do not record the digests of tensors"
        )
    if before.keys() != after.keys():
        return StaleComparison(verdict=StaleVerdict.NOT_DECIDABLE, reason="the two steps hold different tensors")
    if older.step == newer.step:
        return StaleComparison(verdict=StaleVerdict.NOT_DECIDABLE, reason="both manifests are of one step")
    if before != after:
        changed = sum(before[name] != after[name] for name in before)
        return StaleComparison(verdict=StaleVerdict.CHANGED, reason=f"{changed} of {len(before)} tensors changed")
    detail = f"all {len(after)} trained tensors of step {newer.step} are bit-identical to step {older.step}"
    stale = finding("stale_save", path="", detail=detail)
    return StaleComparison(verdict=StaleVerdict.STALE, reason=detail, finding=stale)


def _by_tensor(manifest: Manifest) -> dict[str, list[str]]:
    """Digests by tensor name; a tensor that is split over several shards has several."""
    digests: dict[str, list[str]] = {}
    for tensor in manifest.tensors:
        digests.setdefault(tensor.name, []).append(tensor.xxh3_64)
    return digests
