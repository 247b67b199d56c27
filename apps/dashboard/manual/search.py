"""Finding sections by words. Every word has to be there; where it stands decides the order. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from apps.dashboard.manual.rendering import Section

MAX_QUERY_CHARACTERS = 200
MAX_RESULTS = 30
SNIPPET_CHARACTERS = 220
_WORD = re.compile(r"[\w.:-]+")


@dataclass(frozen=True)
class Entry:
    slug: str
    title: str
    section: Section


@dataclass(frozen=True)
class Result:
    entry: Entry
    snippet: tuple[tuple[str, bool], ...]
    """Pieces of text, each with whether it is one of the words that were asked for."""


def words_of(query: str) -> list[str]:
    return list(dict.fromkeys(_WORD.findall(query[:MAX_QUERY_CHARACTERS].lower())))


def search(entries: Iterable[Entry], query: str) -> list[Result]:
    """The best sections first."""
    words = words_of(query)
    if not words:
        return []
    scored = [(score(entry, words), entry) for entry in entries]
    best = sorted((one for one in scored if one[0] > 0), key=lambda one: -one[0])[:MAX_RESULTS]
    return [Result(entry, snippet(entry.section.text, words)) for _score, entry in best]


def score(entry: Entry, words: Sequence[str]) -> float:
    """0 where a word is missing. A name itself counts most, then headings, titles, and how often the text has it."""
    heading, title, text = entry.section.heading.lower(), entry.title.lower(), entry.section.text.lower()
    total = 0.0
    for word in words:
        found = 100.0 if heading == word else 10.0 if word in heading else 0.0
        found += 3.0 if word in title else 0.0
        found += min(text.count(word), 5)
        if not found:
            return 0.0
        total += found
    return total


def snippet(text: str, words: Sequence[str]) -> tuple[tuple[str, bool], ...]:
    """The part of the text around the first word that it has."""
    flat = " ".join(text.split())
    places = [place for word in words if (place := flat.lower().find(word)) >= 0]
    start = max(min(places, default=0) - 60, 0)
    shown = flat[start : start + SNIPPET_CHARACTERS]
    shown = ("… " if start else "") + shown + (" …" if start + SNIPPET_CHARACTERS < len(flat) else "")
    pattern = "|".join(re.escape(word) for word in sorted(words, key=len, reverse=True))
    pieces = re.split(f"(?i)({pattern})", shown) if pattern else [shown]
    return tuple((piece, number % 2 == 1) for number, piece in enumerate(pieces) if piece)
