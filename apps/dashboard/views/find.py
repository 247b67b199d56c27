"""Going to anything by its name, its step or its id."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse

from apps.dashboard import pages
from apps.dashboard.context import MORE, NAVIGATION
from apps.dashboard.selectors.find import Found, Group, found


@pages.page
def find(request: HttpRequest) -> HttpResponse:
    return render(request, "dashboard/find.html", _context(request))


@pages.page
def find_part(request: HttpRequest) -> HttpResponse:
    """The very partial that the page includes, for the switcher."""
    return render(request, "dashboard/parts/found.html", _context(request))


def _context(request: HttpRequest) -> dict[str, Any]:
    search = request.GET.get("q", "").strip()[:200]
    entries = [*NAVIGATION, *MORE, ("alerts", "Alerts"), ("plan-grid", "Drills grid"), ("plan-calendar", "Calendar")]
    named = [(name, label) for name, label in entries if search.lower() in label.lower()]
    to_pages = Group("Pages", tuple(Found(label, "", reverse(name)) for name, label in named))
    groups = [*found(request, search), to_pages] if search else [to_pages]
    return {"search": search, "groups": [group for group in groups if group.items]}
