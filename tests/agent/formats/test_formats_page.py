"""docs/formats.md says of every format what it looks like, and what it cannot tell."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from muster_agent.formats import registry, torchtitan
from muster_agent.formats.explain_words import FORMAT_WORDS

PAGE = (Path(__file__).parents[3] / "docs" / "formats.md").read_text(encoding="utf-8")
LAYOUTS = "| format | layout | commit marker | world size |"
LIMITS = "| format | step | what cannot be known |"
TABLES = (registry.FOLDER_FORMATS, registry.FAMILY_FORMATS, registry.FILE_FORMATS)
WORDS = sorted({one.name for table in TABLES for one in table} | {torchtitan.FORMAT})


def rows(head: str) -> dict[str, list[str]]:
    """The table's cells beside each format word."""
    lines = PAGE.split(head, 1)[1].split("\n\n", 1)[0].splitlines()[2:]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {word: rest for first, *rest in cells for word in re.findall(r"`(\w+)`", first)}


@pytest.mark.parametrize("word", WORDS)
def test_every_format_is_on_the_page_with_what_it_tells_and_what_it_cannot(word: str) -> None:
    layouts, limits = rows(LAYOUTS), rows(LIMITS)
    assert len(layouts[word]) == 3 and (all(layouts[word]) or word == "unknown")
    assert len(limits[word]) == 2 and all(limits[word])


def test_the_page_names_no_format_that_there_is_not() -> None:
    assert {*rows(LAYOUTS), *rows(LIMITS)} == set(WORDS)


@pytest.mark.parametrize("word", [word for word in WORDS if word != "unknown"])
def test_every_format_can_be_explained(word: str) -> None:
    assert word in FORMAT_WORDS
