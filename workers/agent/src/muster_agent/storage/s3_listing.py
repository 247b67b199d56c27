"""Whole listings from pages: one after the other, or several at once, by dividing the keys where folders begin."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

from muster_agent.formats.object_store import Listing
from muster_agent.storage.s3_pages import Page

STREAMS = 8
"""Pages that are asked for at once, where a listing has many."""
PAGES_BEFORE_DIVIDING = 2

Ask = Callable[[dict[str, Any]], Page]
"""One page of ListObjectsV2, asked for as boto3 takes it. Raises OSError."""


def list_in_turn(ask: Ask, asked: dict[str, Any], check: Callable[[], None]) -> Listing:
    """Every page, one after the other; `check` between them may raise. Raises OSError."""
    found = Listing([], [])
    for page in _pages(ask, asked):
        check()
        found.objects.extend(one for one in page.objects if one.key.startswith(asked["Prefix"]))
        found.prefixes.extend(page.prefixes)
        found = found._replace(server_unix_seconds=found.server_unix_seconds or page.server_unix_seconds)
    return found


def _pages(ask: Ask, asked: dict[str, Any]) -> Iterator[Page]:
    seen: set[str] = set()
    more: dict[str, Any] = {}
    while True:
        page = ask({**asked, **more})
        yield page
        if page.token is None:
            return
        if page.token in seen:
            raise _nowhere()
        seen.add(page.token)
        more = {"ContinuationToken": page.token}


def _nowhere() -> OSError:
    return OSError(errno.EIO, "the store says that its listing goes on, but not where")


def list_below(ask: Ask, asked: dict[str, Any], check: Callable[[], None]) -> Listing:
    """Every key below the prefix, in order; a listing of many pages by several at once. Raises OSError."""
    return _Division(ask, asked, check).run()


@dataclass(slots=True)
class _Range:
    """Keys above `after` and, unless `end` is empty, up to it. `token` is where its own listing goes on."""

    after: str = ""
    end: str = ""
    token: str = ""
    tokens: set[str] = field(default_factory=set)
    """All so far."""
    pages: int = 0
    divide_at: int = PAGES_BEFORE_DIVIDING
    """From so many pages on: later, each time that no place to divide it was found."""


class _Division:
    """Only the calling thread keeps books. A range is divided while fewer are under way than could be: where few large
    folders lie among many small ones, whoever is done first so takes from the others."""

    def __init__(self, ask: Ask, asked: dict[str, Any], check: Callable[[], None]) -> None:
        self._ask, self._asked, self._check = ask, asked, check
        self._prefix: str = asked["Prefix"]
        self._found = Listing([], [])
        self._waiting: dict[Future[Any], Callable[[Any], None]] = {}

    def run(self) -> Listing:
        with ThreadPoolExecutor(STREAMS, thread_name_prefix="muster-list") as self._pool:
            try:
                self._go_on(_Range())
                while self._waiting:
                    done, _ = wait(self._waiting, return_when=FIRST_COMPLETED)
                    for future in done:
                        self._check()
                        self._waiting.pop(future)(future.result())
            except BaseException:
                for future in self._waiting:
                    future.cancel()
                raise
        self._found.objects.sort(key=attrgetter("key"))
        return self._found

    def _submit(self, work: Callable[[], Any], take: Callable[[Any], None]) -> None:
        self._waiting[self._pool.submit(work)] = take

    def _go_on(self, part: _Range) -> None:
        where = {"ContinuationToken": part.token} if part.token else {"StartAfter": part.after} if part.after else {}
        self._submit(lambda: self._ask({**self._asked, **where}), lambda page: self._took(part, page))

    def _took(self, part: _Range, page: Page) -> None:
        part.pages += 1
        self._found = self._found._replace(
            server_unix_seconds=self._found.server_unix_seconds or page.server_unix_seconds
        )
        # A store that does not know where to start begins anew: then much comes twice, but nothing is counted twice.
        self._found.objects.extend(
            one
            for one in page.objects
            if part.after < one.key and (not part.end or one.key <= part.end) and one.key.startswith(self._prefix)
        )
        last = page.objects[-1].key if page.objects else ""
        if page.token is None or (part.end and last >= part.end):
            return
        if not page.token or page.token in part.tokens:
            raise _nowhere()
        part.tokens.add(page.token)
        part.token, part.after = page.token, max(last, part.after)
        if part.pages >= part.divide_at and len(self._waiting) < STREAMS:
            self._submit(lambda: self._borders(part), lambda borders: self._divide(part, borders))
        else:
            self._go_on(part)

    def _divide(self, part: _Range, borders: list[str]) -> None:
        part.pages = 0
        if not borders:
            part.divide_at *= 2
        for begin, end in zip(borders, [*borders[1:], part.end], strict=False):
            self._go_on(_Range(after=begin, end=end))
        part.end = borders[0] if borders else part.end
        self._go_on(part)

    def _borders(self, part: _Range) -> list[str]:
        """Where folders begin within what is left of the range, evenly chosen among those that one request shows; at
        the uppermost level that has any."""
        prefix = self._prefix
        while True:
            page = self._ask({**self._asked, "Prefix": prefix, "Delimiter": "/", "StartAfter": part.after})
            folders = sorted(one for one in page.prefixes if part.after < one and (not part.end or one < part.end))
            if folders:
                count = min(len(folders), STREAMS - 1)
                return [folders[number * len(folders) // count] for number in range(count)]
            inner, slash, _ = part.after[len(prefix) :].partition("/")
            if not slash or not part.after.startswith(prefix):
                return []
            prefix += inner + slash
