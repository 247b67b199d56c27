"""Public ids."""

from __future__ import annotations

import time

from apps.core.ids import ID_LENGTH, new_id


def test_ids_name_their_kind_fit_their_column_and_sort_by_time() -> None:
    first = new_id("drl")
    time.sleep(0.002)
    second = new_id("drl")
    assert first.startswith("drl_")
    assert len(first) == 30 <= ID_LENGTH
    assert first < second


def test_a_thousand_ids_made_at_once_differ() -> None:
    assert len({new_id("x") for _ in range(1000)}) == 1000
