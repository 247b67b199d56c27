"""A resume decision as a person reads it. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from muster_agent.decide.model import ResumeDecision
from muster_agent.decide.resume import duration

_OUTCOMES = {
    "no_checkpoints": "There are no checkpoints under {path}.",
    "step_absent": "There is no checkpoint of that step under {path}.",
    "nothing_resumable": "There are checkpoints under {path}, but none to resume from.",
}
_SOURCES = {
    "disk": "the files on disk",
    "disk+manifest": "the files on disk, and what Muster left beside them",
    "disk+server": "the files on disk, and what the server knows of them",
}


def decision_lines(decision: ResumeDecision, path: str) -> Iterator[str]:
    """The answer first, then what it rests on, then what was passed over and why."""
    if decision.outcome == "found":
        yield f"Resume from step {decision.step}: {decision.path}"
        yield f"  trust: {decision.trust}, as of {decision.as_of}"
        yield f"  known from: {_SOURCES.get(decision.source, decision.source)}"
        if decision.tier:
            yield f"  tier: {decision.tier}"
        if decision.predicted_seconds is not None:
            yield f"  predicted time to resume: {duration(decision.predicted_seconds)}"
    else:
        yield _OUTCOMES[decision.outcome].format(path=path)
        yield "  Do not start from step 0 without asking why: `muster inventory` shows what lies there."
    if decision.pointer is not None and decision.pointer.step is not None:
        yield f"  the framework's own pointer names step {decision.pointer.step} ({decision.pointer.path})"
    if decision.skipped:
        yield "Passed over:"
    for one in decision.skipped:
        yield f"  step {'?' if one.step is None else one.step}: {one.path}"
        yield from (f"      {reason}" for reason in one.reasons)
