"""The sentence of a run as a page shows it: the same words, each part a link to its evidence. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from django.urls import reverse

from apps.recovery import sentence
from apps.recovery.evidence import Evidence
from apps.recovery.next_action import Action, NextAction

# "(audit aud_01... at 2026-...)": the linked checkpoint's page has it; the sentence does without.
_SOURCE = re.compile(r" \((?:audit|drill|scan) [a-z]+_[0-9a-zA-Z_]+ at [^)]*\)")
_LARGE = re.compile(r"(?<![\w.,-])[0-9]{5,18}(?![\w-]|[.,]\d)")
_UNIT = re.compile(r"(\d) (s|min|h|d|%|[kMGTP]?B(?:/s)?|ms)(?!\w)")
_PAGES = {
    "audit": "audit",
    "checkpoint": "checkpoint",
    "cluster": "cluster",
    "drill": "drill",
    "incident": "incident",
    "run": "run",
    "tier": "tier",
    "transfer": "transfer",
}


@dataclass(frozen=True)
class Part:
    """A piece of a sentence: plain, or a link. `known` says how its figure is known."""

    text: str
    url: str = ""
    known: str = ""


def linked(parts: Iterable[sentence.Part], find: Callable[[sentence.Part], Evidence | None]) -> tuple[Part, ...]:
    """The parts with grouped numbers and without ids, each with the address of its evidence."""
    return tuple(Part(_plain(part.text), address(find(part)), part.known) for part in parts)


def address(evidence: Evidence | None) -> str:
    """Empty where no page shows it."""
    if evidence is None:
        return ""
    if evidence.kind == "step":
        return reverse("step", args=[evidence.id, evidence.step])
    if evidence.kind == "rto_history":
        return f"{reverse('analysis')}?run={evidence.id}"
    page = _PAGES.get(evidence.kind)
    return reverse(page, args=[evidence.id]) if page else ""


def _plain(text: str) -> str:
    return bound(_LARGE.sub(lambda found: f"{int(found.group()):,}", _SOURCE.sub("", text)))


def bound(text: str) -> str:
    """Numbers and their units on one line: `80 s` never ends a line with 80."""
    return _UNIT.sub("\\1\N{NO-BREAK SPACE}\\2", text)


@dataclass(frozen=True)
class Button:
    """The next action of a run on a page: a link, or a form that posts `mode` for `placement`."""

    words: str
    url: str
    mode: str = ""
    placement: str = ""


def button(
    action: NextAction, *, run: str, drill: str, checkpoint: str, placement: str, may_operate: bool
) -> Button | None:
    """`checkpoint` and `placement` are the answer's, empty without one. None for who may not do it: the page then says
    what somebody else could do."""
    if action.action in (Action.SEAL, Action.VERIFY):
        if not may_operate or not placement:
            return None
        mode = "seal" if action.action is Action.SEAL else "verify"
        return Button(action.words, reverse("checkpoint-audit", args=[checkpoint]), mode, placement)
    if action.action in (Action.DRILL_RELOAD, Action.DRILL_FAILOVER):
        kind = "reload" if action.action is Action.DRILL_RELOAD else "failover"
        return Button(action.words, f"{reverse('drill-start')}?run={run}&kind={kind}") if may_operate else None
    places = {
        Action.SCAN: reverse("tiers"),
        Action.LOOK_AT_CHECKPOINT: reverse("step", args=[run, action.step or 0]),
        Action.LOOK_AT_DRILL: reverse("drill", args=[drill]) if drill else reverse("drills"),
        Action.SHORTEN_RESTART: f"{reverse('analysis')}?run={run}",
        Action.SAVE_MORE_OFTEN: f"{reverse('analysis-advice')}?run={run}",
        Action.SET_OBJECTIVE: f"{reverse('run', args=[run])}#objectives",
    }
    return Button(action.words, places[action.action])
