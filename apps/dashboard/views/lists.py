"""What every list can do beside showing a page of itself."""

from __future__ import annotations

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase, QueryDict
from django.shortcuts import redirect

from apps.accounts import saved_views
from apps.accounts.access import global_role, require
from apps.accounts.models import Role, SavedView, User
from apps.core.errors import NotFound
from apps.dashboard import pages
from apps.dashboard.lists.catalogue import LISTS
from apps.dashboard.lists.export import FORMATS, export
from apps.dashboard.lists.state import matching, plain


@pages.action
def view_save(request: HttpRequest, list_name: str) -> HttpResponse:
    """Keep the list's query under a name."""
    if list_name not in LISTS:
        raise Http404(f"There is no list {list_name}.")
    assert isinstance(request.user, User)
    view = saved_views.save_view(
        owner=request.user,
        list_name=list_name,
        name=request.POST.get("name", ""),
        query=plain(QueryDict(request.POST.get("query", ""))),
        shared=request.POST.get("shared") == "yes",
    )
    messages.success(request, f"View {view.name} is kept{' for everybody' if view.shared else ''}.")
    return redirect(pages.back(request, list_name))


@pages.action
def view_delete(request: HttpRequest, view_id: str) -> HttpResponse:
    assert isinstance(request.user, User)
    view = find_view(request.user, view_id)
    name, list_name = view.name, view.list_name
    saved_views.delete_view(view=view, actor=request.user.username)
    messages.success(request, f"View {name} is deleted.")
    return redirect(pages.back(request, list_name))


def find_view(user: User, view_id: str) -> SavedView:
    """One that this user may change: one's own, for an admin also the shared ones."""
    view = saved_views.visible_to(user).filter(pk=view_id).first()
    if view is None:
        raise NotFound(f"There is no view {view_id}.")
    if view.owner_id != user.pk:
        require(global_role(user), Role.ADMIN)
    return view


@pages.page
def list_export(request: HttpRequest, name: str, kind: str) -> HttpResponseBase:
    """All rows that the URL's filters leave, as a file."""
    spec = LISTS.get(name)
    if spec is None or kind not in FORMATS:
        raise Http404(f"There is no list {name} as {kind}.")
    return export(spec, request, matching(spec, request, request.GET), kind)
