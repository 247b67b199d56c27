"""A resume decision as a person reads it. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from muster_agent.decide.frameworks import number_of
from muster_agent.decide.model import PointerChoice, ResumeDecision, ResumeRequest
from muster_agent.formats.base import Finding, Severity, ShardMap, Status
from muster_agent.formats.times import duration
from muster_agent.formats.verdict import STATUS_REASONS

_OUTCOMES = {
    "no_checkpoints": "There are no checkpoints under {path}.",
    "step_absent": "There is no checkpoint of that step under {path}.",
    "nothing_resumable": "There are checkpoints under {path}, but none to resume from.",
    "unknown": "Not known: something under {path} could not be looked at, and it may be the checkpoint.",
}
_SOURCES = {
    "disk": "the files on disk",
    "disk+manifest": "the files on disk, and what Muster left beside them",
    "disk+server": "the files on disk, and what the server knows of them",
}
UNREAD = STATUS_REASONS[Status.UNREADABLE]
_SHOWN = 6
_ABOUT_THE_CHOICE = frozenset(
    {"step_mismatch", "duplicate_step", "state_shrank", "second_lineage", "sparse_hole", "world_size_mismatch"}
)


def decision_json(decision: ResumeDecision) -> dict[str, object]:
    """What `--json` prints."""
    pointer = decision.pointer
    return {
        **msgspec.to_builtins(decision),
        "pointer": None if pointer is None else {"path": pointer.path, "step": pointer.step},
    }


def decision_lines(decision: ResumeDecision, path: str) -> Iterator[str]:
    """The answer first, then what it rests on, then what was passed over and why."""
    if decision.outcome == "found":
        step = f"step {decision.step}" if decision.step is not None else "a checkpoint whose step is not known"
        yield f"Resume from {step}: {decision.path}"
        yield f"  trust: {decision.trust}, as of {decision.as_of}"
        yield f"  known from: {_SOURCES.get(decision.source, decision.source)}"
        if decision.tier:
            yield f"  tier: {decision.tier}"
        if decision.predicted_seconds is not None:
            yield f"  predicted time to resume: {duration(decision.predicted_seconds)}"
    else:
        yield (_SAVED_ONCE if _is_bare(decision) else _OUTCOMES[decision.outcome]).format(path=path)
        if decision.nearest_steps:
            yield f"  the nearest steps that are there: {_listed(decision.nearest_steps)}"
        yield "  Do not start from step 0 without asking why: `muster inventory` shows what lies there."
    if decision.pointer is not None and decision.pointer.step is not None:
        yield f"  the framework's own pointer names step {decision.pointer.step} ({decision.pointer.path})"
    if decision.pointer_choice is not None:
        yield f"  left to itself, the framework would load {_choice(decision.pointer_choice)}"
    if decision.skipped:
        yield "Passed over:"
    for one in decision.skipped:
        yield f"  step {'?' if one.step is None else one.step}: {one.path}"
        yield from (f"      {reason}" for reason in one.reasons)


_SAVED_ONCE = "There are no checkpoints under {path}, though a pointer says that there were."


def _is_bare(decision: ResumeDecision) -> bool:
    """Whether nothing but a pointer is there."""
    return decision.outcome == "nothing_resumable" and not decision.skipped


def _choice(choice: PointerChoice) -> str:
    if choice.path is None:
        return f"nothing: {choice.reason}"
    if choice.is_same:
        return f"the same ({choice.rule})"
    step = choice.path.rsplit("/", 1)[-1] if choice.step is None else f"step {choice.step}"
    return f"{step} ({choice.rule}); {choice.reason}"


def warning_lines(decision: ResumeDecision, chosen: ShardMap | None, about_folder: Sequence[Finding]) -> Iterator[str]:
    """What must not be missed although an answer was found: a framework that would do something else by itself, another
    history of training in the folder, and doubts about the chosen checkpoint."""
    choice = decision.pointer_choice
    if choice is not None and choice.path is None and not choice.is_same:
        yield f"muster: WARNING: without Muster this restart would not find its checkpoint: {choice.reason}"
        number = None if decision.path is None else number_of(decision.path, decision.step)
        if number is not None:
            yield f"  what to do: pass step {number} to the launcher explicitly, or write the pointer again"
    for found in about_folder:
        if found.code.startswith("pointer_") and found.code != "pointer_missing":
            yield f"muster: {found.code}: {found.detail}"
    if decision.outcome == "found" and (older := _of_older_histories(decision)):
        yield f"muster: WARNING: two histories of training lie here; step {decision.step} is of the one saved last"
        yield f"  by the storage's clock. Newer by number, older by time: step {_listed(older)}"
        yield "  what to do: pass --step to continue from one of those; keep each training in a folder of its own"
    unread = [one.step for one in decision.skipped if one.step is not None and UNREAD in "; ".join(one.reasons)]
    if decision.outcome == "found" and unread:
        yield f"muster: WARNING: newer by number and not readable here, so perhaps better: step {_listed(unread)}"
        yield "  what to do: run this as a user who may read them, or check the mount, before training goes on"
    for found in chosen.findings if chosen is not None else ():
        if found.code in _ABOUT_THE_CHOICE and found.severity is not Severity.NOTE:
            yield f"muster: {found.code}: {found.detail}"


def failure_lines(
    decision: ResumeDecision, path: str, request: ResumeRequest, unseen: Sequence[str] = ()
) -> Iterator[str]:
    """Why there is no point, as an error. `unseen` is what could not be looked at."""
    if decision.outcome == "no_checkpoints":
        yield f"muster: no checkpoints here: nothing under {path} is one"
        yield "  what to do: check the path; only if this run never saved, start from step 0"
    elif decision.outcome == "step_absent":
        nearest = _listed(decision.nearest_steps) or "none with a known step"
        yield f"muster: there is no step {request.step} under {path}; the nearest are {nearest}"
        yield "  what to do: name one of them with --step; do not start from step 0"
    elif decision.outcome == "unknown":
        yield f"muster: unknown: something under {path} could not be read, and it may be the checkpoint"
        yield from (f"  could not be looked at: {place}" for place in unseen[:_SHOWN])
        if len(unseen) > _SHOWN:
            yield f"  and {len(unseen) - _SHOWN} more"
        yield "  what to do: run this as a user who may read them, or check the mount; do not start from step 0"
    elif _is_bare(decision):
        yield f"muster: nothing resumable: a pointer says that this run saved, and no checkpoint lies under {path}"
        yield "  what to do: find out where its checkpoints went, or check the mount; do not start from step 0"
    else:
        yield f"muster: nothing resumable: there are checkpoints under {path}, and none can be resumed from"
        yield "  what to do: read why each was passed over; do not start from step 0"


def _of_older_histories(decision: ResumeDecision) -> list[int]:
    return [
        one.step
        for one in decision.skipped
        if one.step is not None and any("older history of training" in reason for reason in one.reasons)
    ]


def _listed(steps: Sequence[int]) -> str:
    return ", ".join(map(str, steps[:6])) + (f" and {len(steps) - 6} more" if len(steps) > 6 else "")
