"""What differs between two looks, and what many differences come to."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from apps.checkpoints.differences import difference, fold

COMPLETE = {"status": "complete", "total_bytes": 100, "shard_count": 2, "fingerprint": "aa"}
AGAIN = {**COMPLETE, "fingerprint": "bb"}
LARGER = {**AGAIN, "total_bytes": 200}
MISSING = {**COMPLETE, "status": "missing"}


@dataclass
class Row:
    kind: str
    before: dict[str, Any] = field(default_factory=dict)
    after: dict[str, Any] = field(default_factory=dict)
    placement_id: str = "plc_1"


def rows(*looks: dict[str, Any] | None) -> list[Row]:
    """The rows that scans write which see the copy like this, one after the other."""
    pairs = zip(looks, looks[1:], strict=False)
    return [Row(**found) for one, other in pairs if (found := difference(one, other)) is not None]


def test_a_new_copy_appears_and_one_that_is_missing_vanishes() -> None:
    assert difference(None, COMPLETE) == {"kind": "appeared", "before": {}, "after": COMPLETE}
    assert difference(COMPLETE, MISSING) == {"kind": "vanished", "before": COMPLETE, "after": {}}
    assert difference(MISSING, COMPLETE) == {"kind": "appeared", "before": {}, "after": COMPLETE}


def test_of_a_change_only_what_differs_is_kept() -> None:
    assert difference(COMPLETE, LARGER) == {
        "kind": "changed",
        "before": {"fingerprint": "aa", "total_bytes": 100},
        "after": {"fingerprint": "bb", "total_bytes": 200},
    }
    assert difference(COMPLETE, dict(COMPLETE)) is None and difference(None, MISSING) is None


@pytest.mark.parametrize(
    "looks",
    [
        (None, COMPLETE), (COMPLETE, AGAIN), (COMPLETE, AGAIN, LARGER), (COMPLETE, AGAIN, COMPLETE),
        (None, COMPLETE, MISSING), (None, COMPLETE, LARGER), (COMPLETE, MISSING, COMPLETE), (COMPLETE, MISSING, AGAIN),
        (COMPLETE, AGAIN, MISSING), (COMPLETE, MISSING, AGAIN, MISSING), (MISSING, COMPLETE, AGAIN),
        (COMPLETE, COMPLETE), (None, COMPLETE, MISSING, LARGER),
    ],
)  # fmt: skip
def test_many_changes_come_to_the_difference_of_the_ends(looks: tuple[dict[str, Any] | None, ...]) -> None:
    expected = difference(looks[0], looks[-1])
    assert fold(rows(*looks)) == ({} if expected is None else {"plc_1": expected})


def test_copies_are_folded_each_for_itself() -> None:
    other = [Row("vanished", COMPLETE, {}, "plc_2")]
    assert {pk: found["kind"] for pk, found in fold([*rows(None, COMPLETE), *other]).items()} == {
        "plc_1": "appeared",
        "plc_2": "vanished",
    }
