"""What a placement is called and how far it is trusted, as a table."""

from __future__ import annotations

import pytest

from apps.checkpoints.trust import effective_status, highest_rung


@pytest.mark.parametrize(
    ("listed", "damaged", "rungs", "trust"),
    [
        ("complete", False, [], "complete"),
        ("complete", False, ["sealed"], "sealed"),
        ("complete", False, ["sealed", "resumed", "verified"], "resumed"),
        ("complete", True, ["sealed", "verified"], "complete"),
        ("incomplete", False, ["sealed"], "listed"),
        ("uncommitted", False, [], "listed"),
        ("in_progress", False, ["verified"], "listed"),
        ("corrupt", False, ["verified"], "listed"),
        ("unreadable", False, ["verified"], "verified"),
        ("unreadable", False, [], "listed"),
        ("missing", False, ["verified"], "listed"),
        ("missing", True, ["verified"], "listed"),
        ("archived", False, ["sealed"], "sealed"),
    ],
)
def test_the_highest_rung_that_holds_shows(listed: str, damaged: bool, rungs: list[str], trust: str) -> None:
    assert highest_rung(listed, damaged=damaged, rungs=rungs) == trust


@pytest.mark.parametrize(
    ("listed", "damaged", "status"),
    [
        ("complete", False, "complete"),
        ("complete", True, "corrupt"),
        ("uncommitted", True, "corrupt"),
        ("missing", True, "missing"),
        ("unreadable", True, "unreadable"),
        ("incomplete", True, "incomplete"),
    ],
)
def test_damage_shows_where_a_listing_cannot_see_it(listed: str, damaged: bool, status: str) -> None:
    assert effective_status(listed, damaged=damaged) == status
