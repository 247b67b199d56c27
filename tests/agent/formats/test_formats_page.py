"""docs/formats.md says of every format what it looks like, and what it cannot tell."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from muster_agent.decide import fit, frameworks
from muster_agent.formats import explain, registry, siblings
from muster_agent.formats.explain_words import FORMAT_WORDS

PAGE = (Path(__file__).parents[3] / "docs" / "formats.md").read_text(encoding="utf-8")
LAYOUTS = "| format | layout | commit marker | world size |"
LIMITS = "| format | step | what cannot be known |"
WORDS = sorted(registry.FORMATS | {"unknown"})


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


def test_words_are_kept_for_every_format_and_for_no_other() -> None:
    assert set(FORMAT_WORDS) == registry.FORMATS


def test_rules_by_format_name_formats_that_a_reader_produces() -> None:
    """A word that no reader gives would be a rule that never holds."""
    named = {word for written in frameworks.ALWAYS_WRITTEN for word in written.formats}
    named |= frameworks.HIGHEST_NUMBER.keys() | frameworks._OWN_NAMES.keys()
    named |= fit._LOADER_ONLY | fit._RESHARDS_BY_CONVERTING.keys()
    named |= explain._LOWER_BOUND | siblings._COMPRESSING | siblings._NUMBERS_ARE_PARTS
    assert named <= registry.FORMATS


def test_every_reader_is_in_the_tables() -> None:
    """A module with a format of its own that no table names would never read anything."""
    modules = Path(registry.__file__).parent.glob("*.py")
    own = {one.stem for one in modules if re.search(r"^def claims\(", one.read_text(), re.MULTILINE)}
    assert own <= {one.rsplit(".", 1)[-1] for one in vars(registry)}
