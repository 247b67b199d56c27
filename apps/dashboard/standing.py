"""If a run died now: one word and one sentence, from the resume decision, the launches and the last drill. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from muster_agent.decide.model import ResumeDecision, Skipped
from muster_agent.protocol.trust import Trust

from apps.core import units

STALE_PROOF = timedelta(days=7)
STALE_DRILL = timedelta(days=30)
MAX_REASON = 220
# "(audit aud_01... at ...)": the page links to it; the sentence does without.
_SOURCE = re.compile(r" \((?:audit|drill|scan) [a-z]+_[0-9a-z]+ at [^)]*\)")
_LARGE = re.compile(r"(?<![\w.-])[0-9]{5,18}(?![\w.-])")
WORST_FIRST = ("nothing", "damaged", "failed_drill", "unproven", "late", "undrilled", "stale", "ready")


@dataclass(frozen=True)
class Part:
    """A piece of a sentence: a link, bold, code or plain."""

    text: str
    url: str = ""
    strong: bool = False
    code: bool = False


@dataclass(frozen=True, kw_only=True)
class Known:
    """What is known of one run beside the decision. `drill` is its newest drill that ended with a result; times are
    None where nothing was reported; `checkpoint_urls` leads from steps to pages."""

    now: datetime
    rto_objective_seconds: float | None = None
    drill: Any = None
    drill_url: str = ""
    last_step: int | None = None
    lost_seconds: float | None = None
    saved_at: datetime | None = None
    checkpoint_urls: Mapping[int, str] = field(default_factory=dict)
    gpu_count: int | None = None
    gpu_hour_cost: float | None = None


@dataclass(frozen=True, kw_only=True)
class Standing:
    """`word` is a key of the looks of `readiness`; `rank` sorts the worst first."""

    word: str
    sentence: tuple[Part, ...]
    step: int | None
    tier: str | None
    trust: str | None
    as_of: datetime | None
    lost_steps: int | None
    lost_seconds: float | None
    predicted_seconds: float | None
    skipped: tuple[Skipped, ...]

    @property
    def rank(self) -> int:
        return WORST_FIRST.index(self.word)


def standing(decision: ResumeDecision, known: Known) -> Standing:
    found = decision.outcome == "found"
    lost_steps = None
    if found and known.last_step is not None and decision.step is not None:
        lost_steps = max(0, known.last_step - decision.step)
    return Standing(
        word=_word(decision, known),
        sentence=tuple(_sentence(decision, known)),
        step=decision.step,
        tier=decision.tier,
        trust=decision.trust,
        as_of=_time(decision.as_of),
        lost_steps=lost_steps,
        lost_seconds=known.lost_seconds if found else None,
        predicted_seconds=decision.predicted_seconds,
        skipped=decision.skipped,
    )


def _word(decision: ResumeDecision, known: Known) -> str:
    if decision.outcome != "found":
        return "nothing"
    checks = (
        ("damaged", bool(newer_skipped(decision))),
        ("failed_drill", known.drill is not None and known.drill.outcome in ("failed", "lost")),
        ("unproven", decision.trust is None or Trust(decision.trust).rung < Trust.VERIFIED.rung),
        ("late", _is_late(decision, known)),
        ("undrilled", known.drill is None),
        ("stale", _is_stale(decision, known)),
    )
    return next((word for word, applies in checks if applies), "ready")


def newer_skipped(decision: ResumeDecision) -> Skipped | None:
    """The newest step that was passed over, if it is newer than the answer."""
    newer = [s for s in decision.skipped if s.step is not None and (decision.step is None or s.step > decision.step)]
    return max(newer, key=lambda skipped: skipped.step or 0, default=None)


def _is_late(decision: ResumeDecision, known: Known) -> bool:
    objective = known.rto_objective_seconds
    predicted = decision.predicted_seconds
    breached = known.drill is not None and known.drill.objective_state == "breached"
    return breached or bool(objective and predicted and predicted > objective)


def _is_stale(decision: ResumeDecision, known: Known) -> bool:
    as_of = _time(decision.as_of)
    old_proof = as_of is not None and known.now - as_of > STALE_PROOF
    drilled_at = known.drill.finished_at if known.drill else None
    return old_proof or (drilled_at is not None and known.now - drilled_at > STALE_DRILL)


def _time(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None


# -- the sentence ------------------------------------------------------------------------------------------------------
def _sentence(decision: ResumeDecision, known: Known) -> list[Part]:
    if decision.outcome == "no_checkpoints":
        return [Part("No checkpoint of it is known. Scan the tier that it saves to.")]
    skipped = newer_skipped(decision)
    begin = _passed_over(skipped, known) if skipped else []
    if decision.outcome != "found":
        return [*begin, Part("Nothing could be resumed from", strong=True), Part(": it would start over.")]
    return [*begin, *_resumes(decision, known, follows=bool(skipped)), *_loses(decision, known), *_drilled(known)]


def _passed_over(skipped: Skipped, known: Known) -> list[Part]:
    reason = _SOURCE.sub("", "; ".join(skipped.reasons)) or "no reason is recorded"
    reason = _LARGE.sub(lambda found: f"{int(found.group()):,}", reason)
    short = reason if len(reason) <= MAX_REASON else reason[: MAX_REASON - 1].rstrip() + "…"
    return [Part("Its newest, "), _step(skipped.step, known), Part(f", is passed over: {short}. ")]


def _resumes(decision: ResumeDecision, known: Known, *, follows: bool) -> list[Part]:
    parts = [Part("It would resume at " if follows else "Resumes at "), _step(decision.step, known)]
    if decision.trust:
        when = _time(decision.as_of)
        since = f" {units.age(when, known.now)}" if when else ""
        parts.append(Part(f", {decision.trust}{since}"))
    if decision.tier:
        parts += [Part(" on "), Part(decision.tier, strong=True)]
    if decision.predicted_seconds is not None:
        parts += [Part("; reading is predicted at "), Part(units.duration(decision.predicted_seconds), strong=True)]
    return parts


def _loses(decision: ResumeDecision, known: Known) -> list[Part]:
    if known.lost_seconds is None:
        if known.saved_at is None:
            return [Part(".")]
        return [Part(f", saved {units.age(known.saved_at, known.now)}; the work lost since is not measured.")]
    parts = [Part(", loses "), Part(units.duration(known.lost_seconds), strong=True), Part(" of work")]
    if known.gpu_count and known.gpu_hour_cost:
        cost = known.gpu_count * known.gpu_hour_cost * known.lost_seconds / 3600
        parts.append(Part(f", about {cost:,.0f} at the cluster's cost of a GPU hour"))
    return [*parts, Part(".")]


def _drilled(known: Known) -> list[Part]:
    if known.drill is None:
        return [Part(" It was never drilled, so its time to resume is "), Part("not measured", strong=True), Part(".")]
    if known.drill.outcome in ("failed", "lost"):
        link = Part("last drill", url=known.drill_url)
        return [Part(" Its "), link, Part(f" {'failed' if known.drill.outcome == 'failed' else 'was lost'}.")]
    return []


def _step(step: int | None, known: Known) -> Part:
    if step is None:
        return Part("a checkpoint of unknown step")
    return Part(f"step {step:,}", url=known.checkpoint_urls.get(step, ""))


def worst_first(rows: Sequence[Any]) -> list[Any]:
    """Rows with a `standing` and a `run`, the worst at the top, then by name."""
    return sorted(rows, key=lambda row: (row.standing.rank, row.run.name))
