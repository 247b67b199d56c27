"""Which checkpoint a restart should load: one pure decision for the CLI, the API and the pages."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence

from muster_agent.decide.fit import fit_reasons
from muster_agent.decide.frameworks import framework_choice
from muster_agent.decide.lineage import reasons_by_lineage
from muster_agent.decide.model import Candidate, Pointer, ResumeDecision, ResumeRequest, Skipped
from muster_agent.formats.names import is_set_aside, step_of_file, step_of_name
from muster_agent.formats.times import duration

Judged = tuple[Candidate, tuple[str, ...]]
_NEAREST = 4


def decide(candidates: Sequence[Candidate], request: ResumeRequest, pointer: Pointer | None = None) -> ResumeDecision:
    """The newest candidate that nothing speaks against; of several copies of one step the most trusted, then the one on
    the fastest tier. Each candidate passed over at that step or a newer one is named in `skipped` with its reasons, and
    so is what belongs to an older history of training in the same folder. A pointer proves that the run saved, so
    without a single checkpoint beside it there is something to look for, and not nothing."""
    if not candidates:
        outcome = "no_checkpoints" if pointer is None else "nothing_resumable"
        choice = framework_choice(candidates, pointer, None, {})
        return ResumeDecision(outcome=outcome, pointer=pointer, pointer_choice=choice)
    considered = [one for one in candidates if request.step is None or one.step == request.step]
    if not considered:
        hidden = [one for one in candidates if one.step is None and is_unseen(one)]
        return ResumeDecision(
            outcome="unknown" if hidden else "step_absent",
            pointer=pointer,
            skipped=_skipped(_judged(hidden, candidates, request, pointer)),
            nearest_steps=nearest_steps(candidates, request.step or 0),
        )
    judged = _judged(considered, candidates, request, pointer)
    good = [one for one, reasons in judged if not reasons]
    chosen = min(good, key=_preference, default=None) or _only_without_step(judged, candidates)
    against = {one.path: "; ".join(reasons) for one, reasons in judged if reasons and one is not chosen}
    choice = framework_choice(candidates, pointer, chosen, against)
    if chosen is None:
        outcome = "unknown" if any(map(is_unseen, considered)) else "nothing_resumable"
        return ResumeDecision(outcome=outcome, pointer=pointer, skipped=_skipped(judged), pointer_choice=choice)
    newer = [item for item in judged if item[0] is not chosen and _may_be_newer(item, chosen)]
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
        pointer_choice=choice,
    )


def _only_without_step(judged: Sequence[Judged], candidates: Sequence[Candidate]) -> Candidate | None:
    """Where no checkpoint has a step, the youngest of those that nothing else speaks against."""
    if any(one.step is not None for one in candidates):
        return None
    good = [item[0] for item in judged if _lacks_only_a_step(item)]
    return min(good, key=_youngest, default=None)


def _youngest(one: Candidate) -> tuple[float, int, int, bool, str]:
    return math.inf if one.age_seconds is None else one.age_seconds, *_preference(one)[1:]


def _may_be_newer(item: Judged, chosen: Candidate) -> bool:
    """What has no step may be newer too, where only that speaks against it."""
    step = item[0].step
    return _lacks_only_a_step(item) if step is None else step >= (chosen.step or 0)


def _lacks_only_a_step(item: Judged) -> bool:
    one, reasons = item
    return one.resumable and one.status == "complete" and reasons == (NO_STEP,)


NO_STEP = "its step is not known"


def is_unseen(one: Candidate) -> bool:
    """Whether it could not be looked at: it may be the very one that is asked for, since unknown is not gone."""
    return one.status == "unreadable"


def _judged(
    considered: Sequence[Candidate], candidates: Sequence[Candidate], request: ResumeRequest, pointer: Pointer | None
) -> list[Judged]:
    older = {} if request.step is not None else reasons_by_lineage(candidates)
    return [
        (one, (*reasons_against(one, request, pointer), *([older[one.path]] if one.path in older else [])))
        for one in considered
    ]


def nearest_steps(candidates: Sequence[Candidate], step: int) -> tuple[int, ...]:
    """Up to four existing steps around one that is absent, nearest first."""
    steps = {one.step for one in candidates if one.step is not None}
    return tuple(sorted(steps, key=lambda one: (abs(one - step), one))[:_NEAREST])


def _preference(one: Candidate) -> tuple[int, int, int, bool, str]:
    return -(one.step or 0), -one.trust.rung, one.tier_order, not _is_named_after_its_step(one), one.path


def _is_named_after_its_step(one: Candidate) -> bool:
    """Of two folders with one step inside, the one under another name is the copy."""
    name = os.path.basename(one.path)
    named = step_of_name(name)
    return one.step is not None and one.step == (step_of_file(name) if named is None else named)


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
    reasons.extend(fit_reasons(one, request))
    if pointer is not None and request.step is None:
        reasons.extend(_pointer_reasons(one, pointer))
    return tuple(reasons)


def _state_reasons(one: Candidate) -> list[str]:
    reasons = list(one.not_resumable_reasons)
    if one.step is None:
        reasons.append(NO_STEP)
    elif is_set_aside(os.path.basename(one.path)):
        reasons.append("its name says that it was set aside, as a copy or because it is bad")
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


def _pointer_reasons(one: Candidate, pointer: Pointer) -> list[str]:
    """Megatron's non-persistent copies have no tracker: they are newer than what it names by design."""
    if not pointer.binding or pointer.step is None or one.step is None or one.step <= pointer.step:
        return []
    if f"/{NON_PERSISTENT}/" in one.path:
        return []
    name = os.path.basename(pointer.path)
    return [f"{name} names step {pointer.step}, and it is written only after all ranks have finished"]


NON_PERSISTENT = "non_persistent"
