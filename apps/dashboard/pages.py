"""What every page has in common: who is asking, lists in keyset pages, and errors that end in a sentence."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from typing import Any, Concatenate, ParamSpec

from django.conf import settings
from django.contrib import messages
from django.contrib.auth.views import redirect_to_login
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.utils import timezone
from django.utils.http import url_has_allowed_host_and_scheme

from apps.accounts.access import global_role, reaches
from apps.accounts.models import Role
from apps.core import zones
from apps.core.errors import ApplicationError, Forbidden, InvalidInput, NotFound, NotSignedIn
from apps.core.pagination import Page, keyset_page
from apps.fleet.access import clusters_with, granted, require_role, role_on, scoped, visible_clusters

P = ParamSpec("P")
View = Callable[Concatenate[HttpRequest, P], HttpResponseBase]
ROWS = 50


def page(view: View[P]) -> View[P]:
    """A page to read: signed in, with at least one cluster in sight; services' errors become error pages."""

    @wraps(view)
    def guarded(request: HttpRequest, /, *args: P.args, **kwargs: P.kwargs) -> HttpResponseBase:
        if not request.user.is_authenticated:
            return _ask_to_sign_in(request)
        try:
            _require_sight(request)
            zone = zones.choice_of(request)
            with timezone.override(zone.zone):
                response = view(request, *args, **kwargs)
        except ApplicationError as error:
            return fault(request, error)
        _remember(request, response, zone)
        response.headers.setdefault("Cache-Control", "private, no-cache")
        return response

    return guarded


def action(view: View[P]) -> View[P]:
    """A POST that changes something through a service, then returns to where it was asked from with a message."""

    @wraps(view)
    def guarded(request: HttpRequest, /, *args: P.args, **kwargs: P.kwargs) -> HttpResponseBase:
        if request.method != "POST":
            return HttpResponse("This address only takes forms from its page.", status=405, headers={"Allow": "POST"})
        if not request.user.is_authenticated:
            return redirect_to_login(back(request, settings.LOGIN_REDIRECT_URL))
        try:
            return view(request, *args, **kwargs)
        except (Forbidden, NotFound, NotSignedIn) as error:
            return fault(request, error)
        except ApplicationError as error:
            messages.error(request, error.detail)
            return redirect(back(request, "readiness"))

    return guarded


def _remember(request: HttpRequest, response: HttpResponseBase, zone: zones.Choice) -> None:
    """A zone that the URL names is the reader's from then on."""
    if zones.PARAMETER in request.GET:
        response.set_cookie(
            zones.COOKIE, zone.word, max_age=zones.COOKIE_SECONDS, samesite="Lax", secure=request.is_secure()
        )


def back(request: HttpRequest, fallback: str) -> str:
    """The page that the form was on, if it is ours; else `fallback`."""
    for target in (request.POST.get("next", ""), request.headers.get("Referer", "")):
        if target and url_has_allowed_host_and_scheme(target, {request.get_host()}, require_https=request.is_secure()):
            return target
    return fallback


def fault(request: HttpRequest, error: ApplicationError) -> HttpResponse:
    """The error page of one sentence, with the request id that finds it in the log."""
    context = {"status": error.status, "title": error.title, "detail": error.detail}
    return render(request, "dashboard/fault.html", context, status=error.status)


def find(request: HttpRequest, rows: QuerySet[Any], cluster_path: str, pk: str) -> Any:
    """One row by its id; one of a cluster out of sight does not exist."""
    row = scoped(request, rows, cluster_path).filter(pk=pk).first()
    if row is None:
        raise Http404(f"There is no {rows.model._meta.verbose_name} {pk} here.")
    return row


def authorize(request: HttpRequest, needed: Role, cluster_id: str) -> str:
    """The acting user's name, once it is certain that they may; raises `Forbidden` otherwise."""
    require_role(request, needed, cluster_id)
    return request.user.get_username()


def operates(request: HttpRequest, cluster_id: str, needed: Role = Role.OPERATOR) -> bool:
    """Whether to show the buttons; the services' door is `authorize`."""
    if reaches(global_role(request.user), needed):
        return True
    return reaches(role_on(request, cluster_id), needed)


def operates_everywhere(request: HttpRequest, needed: Role = Role.OPERATOR) -> bool:
    """For what belongs to no single cluster; the services' door is `require_role` without one."""
    return reaches(global_role(request.user), needed)


def operable(request: HttpRequest, cluster_ids: Iterable[str], needed: Role = Role.OPERATOR) -> set[str]:
    """Of these clusters, the ones where buttons show."""
    return clusters_with(request, needed, cluster_ids)


def listing(request: HttpRequest, rows: QuerySet[Any], *, order: str, limit: int = ROWS, count: bool = True) -> Page:
    """The page of `rows` that the URL's cursor names."""
    try:
        return keyset_page(rows, order=order, limit=limit, cursor=request.GET.get("cursor"), count=count)
    except ValueError as error:
        raise InvalidInput(str(error)) from error


def chosen(request: HttpRequest, name: str, allowed: Iterable[str]) -> str:
    """A filter's value from the URL; anything that is not a choice counts as none."""
    value = request.GET.get(name, "")
    return value if value in set(allowed) else ""


def choices_of(enum: Any) -> list[tuple[str, str]]:
    return [(value, label) for value, label in enum.choices if value]


def show(request: HttpRequest, template: str, context: Mapping[str, Any], *, charts: bool = False) -> HttpResponse:
    """Render a page; one with charts lets plotly's own style element through."""
    response = render(request, template, {**context, "has_charts": charts})
    if charts:
        response["Content-Security-Policy"] = settings.CONTENT_SECURITY_POLICY_STYLE
    return response


def _ask_to_sign_in(request: HttpRequest) -> HttpResponse:
    if getattr(request, "htmx", False):
        return HttpResponse("Signed out.", status=401)
    return redirect_to_login(request.get_full_path())


def _require_sight(request: HttpRequest) -> None:
    if reaches(global_role(request.user), Role.VIEWER) or visible_clusters(request).exists():
        return
    raise Forbidden("Your account has no role on any cluster yet. Ask an admin for one.")


def may_operate_somewhere(request: HttpRequest) -> bool:
    """Whether any cluster in sight lets this user start things."""
    if reaches(global_role(request.user), Role.OPERATOR):
        return True
    return visible_clusters(request).filter(granted(request, Role.OPERATOR, "pk")).exists()
