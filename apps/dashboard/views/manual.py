"""The manual, for everybody: who sets Muster up has no account yet, and nothing of an installation is in it."""

from __future__ import annotations

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.safestring import SafeString
from django.views.decorators.http import require_safe

from apps.dashboard.manual import contents, library
from apps.dashboard.manual.search import search


@require_safe
def manual(request: HttpRequest) -> HttpResponse:
    """The contents; with `?q=` the sections that have these words."""
    query = request.GET.get("q", "").strip()
    context = {"groups": contents.groups(), "query": query, "results": search(library.entries(), query)}
    return render(request, "dashboard/manual.html", context)


@require_safe
def manual_page(request: HttpRequest, slug: str) -> HttpResponse:
    page = contents.pages().get(slug)
    if page is None:
        raise Http404(f"The manual has no page {slug!r}.")
    rendered = library.rendered(page)
    # Our own files, rendered without passing any HTML of theirs on.
    context = {"groups": contents.groups(), "page": page, "rendered": rendered, "html": SafeString(rendered.html)}
    return render(request, "dashboard/manual_page.html", context)
