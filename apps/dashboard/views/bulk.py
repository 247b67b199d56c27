"""Acting on many rows: the preview, the operation as it goes, and stopping it."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse

from apps.accounts.access import global_role, reaches
from apps.accounts.models import Role
from apps.core.errors import ApplicationError, Conflict, InvalidInput
from apps.core.models import BulkItem, BulkOperation
from apps.dashboard import pages
from apps.dashboard.bulk import services
from apps.dashboard.bulk.verbs import find_verb
from apps.dashboard.lists.catalogue import LISTS

SHOWN = 20
ITEMS = 100
LIVE_SECONDS = 2


@pages.page
def bulk_choose(request: HttpRequest, list_name: str) -> HttpResponse:
    """What a verb would do to the ticked rows or to all that match; and, once confirmed, the operation."""
    if list_name not in LISTS:
        raise Http404(f"There is no list {list_name}.")
    if request.method != "POST":
        return redirect(list_name)
    matching = request.POST.get("scope") == "matching"
    query = request.POST.get("query", "")[:2000]
    try:
        chosen = services.choose(
            request,
            list_name=list_name,
            verb_name=request.POST.get("verb", ""),
            ids=request.POST.getlist("id"),
            query=query if matching else None,
        )
    except InvalidInput as error:
        messages.error(request, error.detail)
        return redirect(pages.back(request, list_name))
    if request.POST.get("confirmed") != "yes":
        return _preview(request, chosen, matching, query)
    try:
        operation = _start(request, chosen)
    except (InvalidInput, Conflict) as error:
        return _preview(request, chosen, matching, query, error)
    return redirect("bulk", operation_id=operation.pk)


def _start(request: HttpRequest, chosen: services.Chosen) -> BulkOperation:
    """Raises InvalidInput for a number that was not typed as it is."""
    if chosen.count > services.TYPED_ABOVE:
        typed = request.POST.get("typed", "").replace(",", "").strip()
        if typed != str(chosen.count):
            raise InvalidInput(f"Type {chosen.count} to go on: so many rows are meant.")
    expected = request.POST.get("expected_count", "")
    return services.start(
        chosen=chosen,
        parameters={field.name: request.POST.get(field.name, "") for field in chosen.verb.fields},
        expected_count=int(expected) if expected.isascii() and expected.isdigit() else -1,
        actor=request.user.get_username(),
    )


def _preview(
    request: HttpRequest,
    chosen: services.Chosen,
    matching: bool,
    query: str,
    error: ApplicationError | None = None,
) -> HttpResponse:
    spec, verb = LISTS[chosen.verb.list_name], chosen.verb
    context = {
        "spec": spec,
        "verb": verb,
        "chosen": chosen,
        "noun": spec.noun if chosen.count == 1 else spec.plural,
        "shown": [verb.label_of(row) for row in chosen.allowed[:SHOWN]],
        "more": max(0, len(chosen.allowed) - SHOWN),
        "ids": [] if matching else [row.pk for row in (*chosen.allowed, *chosen.refused)],
        "matching": matching,
        "list_query": query,
        "must_type": chosen.count > services.TYPED_ABOVE,
        "fields": [(field, request.POST.get(field.name, "")) for field in verb.fields],
        "problem": error.detail if error else "",
        "back_url": pages.back(request, reverse(spec.name)),
    }
    return render(request, "dashboard/bulk_preview.html", context, status=422 if error else 200)


@pages.page
def bulk_detail(request: HttpRequest, operation_id: str) -> HttpResponse:
    operation = _operation(request, operation_id)
    context = _live_context(request, operation)
    return render(request, "dashboard/bulk.html", {**context, "has_live": not context["finished"]})


@pages.page
def bulk_live(request: HttpRequest, operation_id: str) -> HttpResponse:
    """The very partial that the operation's page includes."""
    return render(request, "dashboard/parts/bulk_live.html", _live_context(request, _operation(request, operation_id)))


@pages.action
def bulk_cancel(request: HttpRequest, operation_id: str) -> HttpResponse:
    services.cancel(operation=_operation(request, operation_id), actor=request.user.get_username())
    messages.success(request, "Stopped: what waited stays as it is.")
    return redirect("bulk", operation_id=operation_id)


def _operation(request: HttpRequest, operation_id: str) -> BulkOperation:
    """One's own; an admin sees everybody's."""
    rows = BulkOperation.objects.filter(pk=operation_id)
    if not reaches(global_role(request.user), Role.ADMIN):
        rows = rows.filter(actor=request.user.get_username())
    found = rows.first()
    if found is None:
        raise Http404(f"There is no operation {operation_id} here.")
    return found


def _live_context(request: HttpRequest, operation: BulkOperation) -> dict[str, Any]:
    items = BulkItem.objects.filter(operation=operation)
    outcome = request.GET.get("outcome", "")
    shown = items.filter(outcome=outcome) if outcome in BulkItem.Outcome.values and "outcome" in request.GET else items
    finished = operation.state not in services.UNFINISHED
    spec = LISTS[operation.list_name]
    through = operation.done_count + operation.refused_count
    return {
        "operation": operation,
        "spec_name": spec.name,
        "noun": spec.noun if operation.total_count == 1 else spec.plural,
        "verb": find_verb(operation.list_name, operation.verb),
        "finished": finished,
        "live_seconds": 0 if finished else LIVE_SECONDS,
        "through": through,
        "waiting_count": operation.total_count - through,
        "percent": f"{100 * through / max(1, operation.total_count):.0f}",
        "page": pages.listing(request, shown, order="id", limit=ITEMS),
        "live_query": request.GET.urlencode(),
    }
