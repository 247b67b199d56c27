"""Which checkpoint a restart should load: one pure decision for the CLI, the API and the pages."""

from __future__ import annotations

import math
from collections.abc import Sequence

from muster_agent.decide.model import Candidate, Pointer, ResumeDecision, ResumeRequest, Skipped

RANK_BOUND_FORMATS = frozenset({"safetensors"})
"""Where a known world size means that each rank loads the very shard it saved; DCP and the others reshard."""

Judged = tuple[Candidate, tuple[str, ...]]


def decide(candidates: Sequence[Candidate], request: ResumeRequest, pointer: Pointer | None = None) -> ResumeDecision:
    """The newest candidate that nothing speaks against; of several copies of one step the most trusted, then the one on
    the fastest tier. Each candidate passed over at that step or a newer one is named in `skipped` with its reasons."""
    if not candidates:
        return ResumeDecision(outcome="no_checkpoints", pointer=pointer)
    considered = [one for one in candidates if request.step is None or one.step == request.step]
    if not considered:
        return ResumeDecision(outcome="step_absent", pointer=pointer)
    judged = [(one, reasons_against(one, request, pointer)) for one in considered]
    good = [one for one, reasons in judged if not reasons]
    if not good:
        return ResumeDecision(outcome="nothing_resumable", pointer=pointer, skipped=_skipped(judged))
    chosen = min(good, key=_preference)
    newer = [item for item in judged if item[0].step is not None and item[0].step >= (chosen.step or 0)]
    return ResumeDecision(
        outcome="found",
        path=chosen.path,
        step=chosen.step,
        tier=chosen.tier,
        status=chosen.status,
        trust=chosen.trust.value,
        as_of=chosen.as_of,
        source=chosen.source,
        pointer=pointer,
        skipped=_skipped(newer),
    )


def _preference(one: Candidate) -> tuple[int, int, int, str]:
    return -(one.step or 0), -one.trust.rung, one.tier_order, one.path


def _skipped(judged: Sequence[Judged]) -> tuple[Skipped, ...]:
    passed_over = [Skipped(path=one.path, step=one.step, reasons=reasons) for one, reasons in judged if reasons]
    return tuple(
        sorted(passed_over, key=lambda item: (-1 if item.step is None else item.step, item.path), reverse=True)
    )


def reasons_against(one: Candidate, request: ResumeRequest, pointer: Pointer | None = None) -> tuple[str, ...]:
    """Every reason not to resume from the candidate, each half a sentence; none when it can be chosen."""
    reasons = [*_state_reasons(one), *(f"an audit found damage: {sentence}" for sentence in one.damage)]
    if one.status == "complete" and one.trust.rung < request.require.rung:
        reasons.append(f"it is only {one.trust.value}, and {request.require.value} is required")
    reasons.extend(_age_reasons(one, request.max_age_seconds))
    if request.format is not None and one.format != request.format:
        reasons.append(f"its format is {one.format}, and {request.format} is required")
    reasons.extend(_fit_reasons(one, request))
    if pointer is not None and request.step is None:
        reasons.extend(_pointer_reasons(one, pointer))
    return tuple(reasons)


def _state_reasons(one: Candidate) -> list[str]:
    reasons = list(one.not_resumable_reasons)
    if one.step is None:
        reasons.append("its step is not known")
    if one.status != "complete" and not reasons:
        reasons.append(f"its status is {one.status}")
    if not one.resumable and not reasons:
        reasons.append("training cannot be resumed from it")
    return reasons


def _age_reasons(one: Candidate, max_age_seconds: float | None) -> list[str]:
    if max_age_seconds is None:
        return []
    if one.age_seconds is None:
        return ["its age is not known"]
    if one.age_seconds <= max_age_seconds:
        return []
    return [f"it is {duration(one.age_seconds)} old, and at most {duration(max_age_seconds)} is allowed"]


def _fit_reasons(one: Candidate, request: ResumeRequest) -> list[str]:
    """Whether the asking job has the ranks that the checkpoint needs, as far as both are known."""
    reasons = []
    wanted = wanted_world_size(request)
    if one.format in RANK_BOUND_FORMATS and one.world_size is not None and wanted not in (None, one.world_size):
        reasons.append(f"it was saved by {one.world_size} ranks that each load their own shard, not by {wanted}")
    if one.dp is not None and request.dp not in (None, one.dp):
        reasons.append(f"its data-loader state is for {one.dp} data-parallel ranks, not for {request.dp}")
    return reasons


def wanted_world_size(request: ResumeRequest) -> int | None:
    """The job's world size: as given, else the product of all three degrees of parallelism."""
    if request.world_size is not None:
        return request.world_size
    degrees = (request.dp, request.tp, request.pp)
    return math.prod(degree for degree in degrees if degree) if all(degrees) else None


def _pointer_reasons(one: Candidate, pointer: Pointer) -> list[str]:
    if not pointer.binding or pointer.step is None or one.step is None or one.step <= pointer.step:
        return []
    name = pointer.path.rsplit("/", 1)[-1]
    return [f"{name} names step {pointer.step}, and it is written only after all ranks have finished"]


def duration(seconds: float) -> str:
    """Seconds as a person says them: `45 s`, `12 min`, `3 h`, `2.5 d`."""
    for limit, unit, size in ((120, "s", 1), (7200, "min", 60), (172_800, "h", 3600)):
        if seconds < limit:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds / 86_400:.1f} d"
