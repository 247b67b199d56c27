"""Which pages the manual has, in which order, and where their text lies."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from django.conf import settings

GROUPS = (
    ("Start", ("deployment", "first-drill", "agent", "hooks", "slurm", "kubernetes", "s3")),
    (
        "Work with it",
        ("inventory", "readiness", "findings", "resume", "audits", "tiers", "drills", "alerts", "formats", "engine"),
    ),
    ("Run it", ("operations", "monitoring", "security", "settings")),
    ("Reference", ("api", "rest", "cli", "protocol")),
)
OTHERS = "More"


@dataclass(frozen=True)
class Page:
    slug: str
    title: str
    path: Path


@dataclass(frozen=True)
class Group:
    name: str
    pages: tuple[Page, ...]


def folder() -> Path:
    return Path(settings.BASE_DIR) / "docs"


def groups() -> tuple[Group, ...]:
    """Every Markdown file of docs/: those that have no place above come last. A page without its file is left out."""
    found = {path.stem: Page(path.stem, _title(path), path) for path in sorted(folder().glob("*.md"))}
    named = {slug for _name, slugs in GROUPS for slug in slugs}
    rest = tuple(slug for slug in found if slug not in named)
    made = [
        Group(name, tuple(found[slug] for slug in slugs if slug in found)) for name, slugs in (*GROUPS, (OTHERS, rest))
    ]
    return tuple(group for group in made if group.pages)


def pages() -> dict[str, Page]:
    """By slug, in the order of the contents."""
    return {page.slug: page for group in groups() for page in group.pages}


def _title(path: Path) -> str:
    with path.open(encoding="utf-8") as lines:
        first = next((line for line in lines if line.startswith("# ")), f"# {path.stem}")
    return first.removeprefix("# ").strip().replace("`", "")
