"""Filters of lists: groups of links that keep the rest of the URL, so that a view can be pasted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from django.http import HttpRequest


@dataclass(frozen=True)
class Option:
    """One filter. `count`: rows that it would leave, None where they are not counted; `more`: at least so many."""

    label: str
    url: str
    current: bool
    count: int | None = None
    more: bool = False


@dataclass(frozen=True)
class Facet:
    label: str
    options: tuple[Option, ...]


def facet(request: HttpRequest, name: str, label: str, choices: Iterable[tuple[str, str]]) -> Facet:
    """One group: "any" and each of `choices` (value, label)."""
    value = request.GET.get(name, "")
    pairs: Sequence[tuple[str, str]] = [("", "any"), *choices]
    known = value if value in {pair[0] for pair in pairs} else ""
    return Facet(label, tuple(Option(text.lower(), _url(request, name, key), key == known) for key, text in pairs))


def _url(request: HttpRequest, name: str, value: str) -> str:
    query = request.GET.copy()
    for stale in (name, "cursor"):
        query.pop(stale, None)
    if value:
        query[name] = value
    return "?" + query.urlencode()
