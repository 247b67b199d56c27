"""`/drills/ID/inside/`: what happened inside one drill's widest round: who finished when, and how fast they read."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse
from django.urls import reverse

from apps.dashboard import pages
from apps.dashboard.charts import finish, phase_map, ranks, throughput
from apps.dashboard.selectors import drills as rows_of
from apps.dashboard.selectors import inside
from apps.drills import selectors
from apps.drills.models import Drill
from apps.drills.titles import title_of


@pages.page
def drill_inside(request: HttpRequest, drill_id: str) -> HttpResponse:
    drill: Drill = pages.find(request, selectors.drills(), "cluster", drill_id)
    results = rows_of.results(drill)
    clients = rows_of.clients(results)
    context: dict[str, Any] = {"drill": drill, "run": drill.run, "title": title_of(drill), "drawn": []}
    if clients:
        found = [
            finish.chart(clients, _url("finish", drill)),
            throughput.chart(inside.tracks(results), _url("throughput", drill)),
            ranks.chart(clients, _url("ranks", drill)),
        ]
        if len(clients) > phase_map.FEWEST:
            found.append(phase_map.chart(clients, _url("phase-map", drill)))
        context |= {"drawn": [one for one in found if not one.is_empty], "clients": clients}
        context["has_throughput"] = not found[1].is_empty
    return pages.show(request, "dashboard/drill_inside.html", context, charts=bool(clients))


def _url(name: str, drill: Drill) -> str:
    return f"{reverse('chart', args=[name])}?{urlencode({'drill': drill.pk})}"
