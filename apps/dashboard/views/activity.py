"""The activity log, and whether its chain holds."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render

from apps.accounts import activity
from apps.accounts.models import Role
from apps.dashboard import pages
from apps.dashboard.lists.log import ACTIVITY
from apps.dashboard.lists.state import context_of
from apps.fleet.access import require_role


@pages.page
def activity_log(request: HttpRequest) -> HttpResponse:
    """Who did what."""
    context = context_of(ACTIVITY, request)
    context |= {"check": activity.last_check(), "is_admin": pages.operates_everywhere(request, Role.ADMIN)}
    return render(request, "dashboard/activity.html", context)


@pages.action
def activity_check(request: HttpRequest) -> HttpResponse:
    require_role(request, Role.ADMIN)
    found = activity.check()
    if found.broken_id is None:
        messages.success(request, f"The chain holds up to entry {found.up_to_id}.")
    else:
        messages.error(request, found.problem)
    return redirect(pages.back(request, "activity"))
