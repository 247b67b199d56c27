"""The rendered pages and the index, made once for each state of the files."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from django.urls import reverse

from apps.dashboard.manual import contents
from apps.dashboard.manual.rendering import Rendered, render
from apps.dashboard.manual.search import Entry


def rendered(page: contents.Page) -> Rendered:
    status = page.path.stat()
    return _rendered(page.path, status.st_mtime_ns, status.st_size, frozenset(contents.pages()))


def entries() -> tuple[Entry, ...]:
    """Every section of every page, for the search."""
    return tuple(
        Entry(page.slug, page.title, section)
        for page in contents.pages().values()
        for section in rendered(page).sections
    )


@lru_cache(maxsize=128)
def _rendered(path: Path, _changed_ns: int, _size_bytes: int, slugs: frozenset[str]) -> Rendered:
    return render(path.read_text(encoding="utf-8"), slugs=slugs, prefix=reverse("manual"))
