"""What a list is: its rows, and what its URL may say of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from django.db.models import Count, Q, QuerySet
from django.http import HttpRequest, QueryDict

from apps.core.pagination import MAX_COUNT

Rows = QuerySet[Any]
Narrow = Callable[[Rows, str], Rows]
Tally = Callable[[Rows], Mapping[str, int]]


@dataclass(frozen=True)
class Sort:
    """`order` is a field that is never null, `-` for descending."""

    key: str
    label: str
    order: str


@dataclass(frozen=True)
class Choices:
    """A group of filters of which one holds at a time. `tally` counts the rows of each choice; None: not counted."""

    name: str
    label: str
    options: tuple[tuple[str, str], ...]
    narrow: Narrow
    tally: Tally | None = None


@dataclass(frozen=True)
class ListSpec:
    """One list. `rows` are all that the request's user may see, bare; `dress` adds what a page of them shows."""

    name: str
    noun: str
    plural: str
    rows: Callable[[HttpRequest], Rows]
    sorts: tuple[Sort, ...]
    columns: tuple[tuple[str, str | Callable[[Any], Any]], ...]
    """Of the exported file: name with its unit, and the path of attributes or the function that gives the value."""
    dress: Callable[[Rows], Rows] = lambda rows: rows
    choices: tuple[Choices, ...] = ()
    search_for: str = ""
    search: Narrow = lambda rows, _text: rows
    time_field: str = ""
    """What `since` and `until` compare; empty: the list knows no times."""
    most_rows: int = 200
    """Of one page. Fewer where a row is so much HTML that 200 of them would make a heavy page."""
    links: Mapping[str, Narrow] = field(default_factory=dict)
    """Narrowings that other pages link to, such as `run`: a parameter with an id."""
    sorts_of_links: Mapping[str, str] = field(default_factory=dict)
    """The sort that a list narrowed by such a link begins with, where it is not the first one."""

    def sort(self, query: QueryDict) -> Sort:
        """The chosen one; where none or an unknown one is named, the one it begins with."""
        return self._sort_of(query.get("sort", "")) or self.first_sort(query)

    def first_sort(self, query: QueryDict) -> Sort:
        keys = [key for name, key in self.sorts_of_links.items() if query.get(name)]
        return (self._sort_of(keys[0]) if keys else None) or self.sorts[0]

    def _sort_of(self, key: str) -> Sort | None:
        return next((one for one in self.sorts if one.key == key), None)


def bounded(rows: Rows) -> Rows:
    """At most one row more than lists count, bare: counting stays cheap however many there are."""
    found: Rows = rows.model._default_manager.filter(pk__in=rows.order_by().values("pk")[: MAX_COUNT + 1])
    return found


def by_field(name: str, label: str, options: Iterable[tuple[str, str]], column: str = "") -> Choices:
    """The values of one column, which may lie in a row that each row names."""
    path = column or name
    return Choices(
        name,
        label,
        tuple((str(value), str(text)) for value, text in options if value),
        lambda rows, value: rows.filter(**{path: value}),
        lambda rows: dict(bounded(rows).order_by().values_list(path).annotate(Count("pk"))),
    )


def by_text(*paths: str) -> Narrow:
    """Rows with the text in any of these columns."""

    def narrow(rows: Rows, text: str) -> Rows:
        found = Q()
        for path in paths:
            found |= Q(**{f"{path}__icontains": text})
        return rows.filter(found)

    return narrow


def by_id(path: str) -> Narrow:
    return lambda rows, value: rows.filter(**{path: value})


def by_half(name: str, label: str, options: tuple[tuple[str, str], tuple[str, str]], condition: Q) -> Choices:
    """Two choices: rows of which `condition` holds, and the others."""
    yes, no = options[0][0], options[1][0]

    def narrow(rows: Rows, value: str) -> Rows:
        return rows.filter(condition) if value == yes else rows.exclude(condition)

    def tally(rows: Rows) -> dict[str, int]:
        counts = bounded(rows).aggregate(all=Count("pk"), some=Count("pk", filter=condition))
        return {yes: counts["some"], no: counts["all"] - counts["some"]}

    return Choices(name, label, options, narrow, tally)


NEWEST = (Sort("newest", "newest", "-created_at"), Sort("oldest", "oldest", "created_at"))
BY_NAME = Sort("name", "name", "name")
