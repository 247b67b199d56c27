"""A list as its URL says it: which rows, in which order, how many, from where."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlencode

from django.http import HttpRequest, QueryDict
from django.utils import timezone
from django.utils.dateparse import parse_datetime

from apps.accounts import saved_views
from apps.core.errors import InvalidInput
from apps.core.pagination import MAX_COUNT, Page, keyset_page
from apps.core.units import seconds_of
from apps.dashboard import pages
from apps.dashboard.bulk.verbs import verbs_of
from apps.dashboard.facets import Facet, Option
from apps.dashboard.lists.spec import Choices, ListSpec, Rows

SIZES = (25, 50, 100, 200)
DEFAULT_SIZE = 50
SPANS = (("1h", "last hour"), ("24h", "24 hours"), ("7d", "7 days"), ("30d", "30 days"))
MAX_SEARCH = 200
PASSING = ("cursor", "view", "tz")
"""Parameters that say nothing of which rows match."""


def matching(spec: ListSpec, request: HttpRequest, query: QueryDict, *, besides: str = "") -> Rows:
    """The rows in sight that the query's filters leave, bare; without the filter `besides`.

    Raises InvalidInput for a time that is none.
    """
    rows = spec.rows(request)
    for name, narrow in spec.links.items():
        if value := query.get(name, "")[:64]:
            rows = narrow(rows, value)
    for group in spec.choices:
        if group.name != besides and (value := chosen(group, query)):
            rows = group.narrow(rows, value)
    if text := search_of(spec, query):
        rows = spec.search(rows, text)
    return _within(spec, rows, query)


def chosen(group: Choices, query: QueryDict) -> str:
    """The group's value in the query; anything that is not a choice counts as none."""
    value = query.get(group.name, "")
    return value if value in dict(group.options) else ""


def search_of(spec: ListSpec, query: QueryDict) -> str:
    return query.get("q", "").strip()[:MAX_SEARCH] if spec.search_for else ""


def moment_of(text: str, name: str) -> datetime:
    """`24h` (so long ago), or an ISO time; without a zone UTC is meant."""
    seconds = seconds_of(text)
    if seconds is not None:
        return timezone.now() - timedelta(seconds=seconds)
    try:
        found = parse_datetime(text)
    except ValueError:
        found = None
    if found is None:
        raise InvalidInput(f"Give {name} as an age such as 24h or 7d, or as a time such as 2026-03-01T12:00Z.")
    return found if found.tzinfo else found.replace(tzinfo=timezone.get_default_timezone())


def _within(spec: ListSpec, rows: Rows, query: QueryDict) -> Rows:
    if not spec.time_field:
        return rows
    for name, lookup in (("since", "gte"), ("until", "lt")):
        if text := query.get(name, "")[:64]:
            rows = rows.filter(**{f"{spec.time_field}__{lookup}": moment_of(text, name)})
    return rows


def size_of(spec: ListSpec, query: QueryDict) -> int:
    """Rows of a page. Raises InvalidInput below 25, and above 200 or the list's own most."""
    text = query.get("limit", "")
    if not text:
        return DEFAULT_SIZE
    most = min(SIZES[-1], spec.most_rows)
    if not text.isascii() or not text.isdigit() or not SIZES[0] <= int(text[:9]) <= most:
        raise InvalidInput(f"Use a whole number from {SIZES[0]} to {most} as limit of this list.")
    return int(text)


def page_of(spec: ListSpec, rows: Rows, query: QueryDict, limit: int) -> Page:
    """The page of matching `rows` that the query's cursor names. Raises InvalidInput for a cursor of another list."""
    order = spec.sort(query).order
    try:
        return keyset_page(spec.dress(rows), order=order, limit=limit, cursor=query.get("cursor"))
    except ValueError as error:
        raise InvalidInput(str(error)) from error


def context_of(spec: ListSpec, request: Any, size: int | None = None) -> dict[str, Any]:
    """What a list's template needs: the page of rows, its filters with how many rows each leaves, sorts and sizes.

    `size`: a page's rows where the URL does not say it.
    """
    query = request.GET
    rows, verbs = matching(spec, request, query), verbs_of(spec.name)
    return {
        "spec": spec,
        "page": page_of(spec, rows, query, size or size_of(spec, query)),
        "facets": [facet_of(spec, request, group) for group in spec.choices],
        "narrowed": _narrowed(spec, query),
        "spans": _spans(spec, query),
        "sorts": _sorts(spec, query),
        "sizes": _sizes(spec, query),
        "search": search_of(spec, query) if spec.search_for else None,
        "search_for": spec.search_for,
        "kept": [(name, value) for name, value in query.items() if name not in ("q", "cursor")],
        "filtered": bool(set(query) - {*PASSING, "sort", "limit"}),
        "query": plain(query),
        "verbs": verbs if verbs and pages.may_operate_somewhere(request) else [],
        "saved_views": list(saved_views.visible_to(request.user, spec.name).order_by("name", "pk")[:100]),
    }


def facet_of(spec: ListSpec, request: HttpRequest, group: Choices) -> Facet:
    """One group's choices, each with how many of the rows that all other filters leave it would keep."""
    query = request.GET
    counts: Mapping[str, int] | None = None
    if group.tally is not None:
        counts = group.tally(matching(spec, request, query, besides=group.name))
    more = counts is not None and sum(counts.values()) > MAX_COUNT
    current = chosen(group, query)
    options = [Option("any", url_with(query, **{group.name: ""}), current == "")]
    for value, label in group.options:
        count = None if counts is None else counts.get(value, 0)
        options.append(Option(label.lower(), url_with(query, **{group.name: value}), current == value, count, more))
    return Facet(group.label, tuple(options))


def url_with(query: QueryDict, **changes: str) -> str:
    """The query with some parameters changed; an empty value drops one. The cursor never survives a change."""
    changed = query.copy()
    changed.pop("cursor", None)
    for name, value in changes.items():
        changed.pop(name, None)
        if value:
            changed[name] = value
    return "?" + changed.urlencode()


def plain(query: QueryDict) -> str:
    """The query without where in the list it is: what a saved view keeps, and an export and a batch go by."""
    return urlencode([(name, value) for name, value in query.items() if name not in PASSING and value])


def _spans(spec: ListSpec, query: QueryDict) -> Facet | None:
    if not spec.time_field:
        return None
    since, until = query.get("since", ""), query.get("until", "")
    options = [Option("any time", url_with(query, since="", until=""), not since and not until)]
    options += [Option(words, url_with(query, since=age, until=""), since == age and not until) for age, words in SPANS]
    if (since and since not in dict(SPANS)) or until:
        words = " ".join(word for word in (since and f"from {since}", until and f"until {until}") if word)
        options.append(Option(words[:80], url_with(query), True))
    return Facet("When", tuple(options))


def _sorts(spec: ListSpec, query: QueryDict) -> Facet | None:
    if len(spec.sorts) < 2:
        return None
    now = spec.sort(query)
    first = spec.first_sort(query)
    return Facet(
        "Sort",
        tuple(
            Option(one.label, url_with(query, sort="" if one == first else one.key), one == now) for one in spec.sorts
        ),
    )


def _sizes(spec: ListSpec, query: QueryDict) -> Facet:
    now = size_of(spec, query)
    return Facet(
        "Rows",
        tuple(
            Option(str(size), url_with(query, limit="" if size == DEFAULT_SIZE else str(size)), size == now)
            for size in SIZES
            if size <= spec.most_rows
        ),
    )


def _narrowed(spec: ListSpec, query: QueryDict) -> list[tuple[str, str, str]]:
    """What a link from another page narrows the list by: name, value, and the URL without it."""
    return [
        (name.replace("_", " "), query.get(name, "")[:64], url_with(query, **{name: ""}))
        for name in spec.links
        if query.get(name)
    ]
