"""Muster's own health."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from apps.alerts import own_health
from apps.dashboard import pages


@pages.page
def health(request: HttpRequest) -> HttpResponse:
    context = {**_parts(), "dead_man": bool(settings.DEAD_MAN_URL), "has_live": True}
    return render(request, "dashboard/health.html", context)


@pages.page
def health_live(request: HttpRequest) -> HttpResponse:
    return render(request, "dashboard/parts/health_live.html", _parts())


def _parts() -> dict[str, Any]:
    parts = own_health.parts()
    still = [part.name for part in parts if not part.is_well]
    return {"parts": parts, "still": still, "watching": not still}
