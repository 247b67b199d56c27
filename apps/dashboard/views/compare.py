"""`/drills/compare/?ids=A,B`: two to eight drills side by side; a POST of ticked rows leads there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse

from apps.core.errors import InvalidInput
from apps.dashboard import pages
from apps.dashboard.bars import Bar, bar, scale_of
from apps.dashboard.facets import facet
from apps.drills import comparing, selectors
from apps.drills.comparing import Comparison
from apps.drills.differences import LETTERS, MOST_DRILLS, Difference, Topic
from apps.drills.models import Drill
from apps.fleet.access import scoped

TOPICS = {
    Topic.RESULT: "What came of it",
    Topic.PHASES: "Phase by phase",
    Topic.DONE: "What was really done",
    Topic.ASKED: "What was asked",
}


@dataclass(frozen=True)
class Column:
    letter: str
    drill: Drill
    bar: Bar | None


@dataclass(frozen=True)
class Group:
    title: str
    lines: list[Difference]


@pages.page
def compare(request: HttpRequest) -> HttpResponse:
    if request.method == "POST":  # rows that were ticked in a list; the comparison itself has an address to keep
        ticked = [pk for pk in request.POST.getlist("id") if pk]
        return redirect(f"{reverse('drills-compare')}?{urlencode({'ids': ','.join(ticked[: 2 * MOST_DRILLS])})}")
    ids = ids_of(request)
    if len(set(ids)) < 2:
        return render(request, "dashboard/compare.html", {"asked": ids, "most": MOST_DRILLS})
    found = comparing.comparison(scoped(request, selectors.drills(), "cluster"), ids)
    shown = pages.chosen(request, "show", ["all"]) or "differences"
    lines = [one for one in found.differences if shown == "all" or one.differs]
    context = {
        "asked": ids,
        "verdict": found.verdict,
        "columns": _columns(found),
        "groups": [Group(title, [one for one in lines if one.field.topic is topic]) for topic, title in TOPICS.items()],
        "same_count": len(found.differences) - sum(one.differs for one in found.differences),
        "shown": shown,
        "facet": facet(request, "show", "Show", [("all", "everything")]),
    }
    return render(request, "dashboard/compare.html", context)


def ids_of(request: HttpRequest) -> list[str]:
    """`?ids=A,B` and `?ids=A&ids=B`, as ticked rows send it."""
    parts = [part.strip() for text in request.GET.getlist("ids") for part in text.split(",")]
    ids = [part for part in dict.fromkeys(parts) if part]
    if len(ids) > MOST_DRILLS:
        raise InvalidInput(f"At most {MOST_DRILLS} drills fit side by side; {len(ids)} were ticked.")
    return ids


def _columns(found: Comparison) -> list[Column]:
    drills: Sequence[Drill] = found.drills
    scale = max(scale_of(drill.seconds, drill.objective_seconds) for drill in drills)
    return [
        Column(letter, drill, bar(drill.phases, drill.seconds, drill.objective_seconds, scale))
        for letter, drill in zip(LETTERS, drills, strict=False)
    ]
