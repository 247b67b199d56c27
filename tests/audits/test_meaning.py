"""What an audit proves, in numbers and words."""

from __future__ import annotations

import pytest

from apps.audits.meaning import coverage, sentence


def test_the_chance_of_a_sample_is_that_of_the_design() -> None:
    found = coverage([1] * 1024, 102, 102 / 1024, 0)
    assert found.one_chunk == pytest.approx(0.0996, abs=5e-5)
    text = sentence("verify", found)
    assert "102 of 1,024 chunks" in text and "10.0 %" in text and "proves nothing" in text


def test_a_whole_bad_shard_is_found_more_easily_than_one_bad_chunk() -> None:
    found = coverage([10, 10, 10, 10], 4, 0.1, 0)
    assert found.one_chunk == pytest.approx(0.1) and 0.6 < found.one_shard < 0.75
    assert "one shard of the 4" in sentence("verify", found)


def test_the_turns_of_a_rotation_add_up() -> None:
    found = coverage([100], 10, 0.1, 3)
    assert (found.turn, found.turns, found.covered_chunks, found.covered_ratio) == (3, 10, 40, 0.4)
    assert "turn 4 of a rotation of 10" in sentence("verify", found) and "40.0 %" in sentence("verify", found)


def test_certainty_is_said_only_where_every_byte_was_read() -> None:
    almost = coverage([10_000], 9_995, 0.9995, 0)
    assert ">99.9 %" in sentence("verify", almost)
    assert "Every byte was read again" in sentence("verify", coverage([5, 5], 10, 1.0, 0))
    assert "No data was read" in sentence("structure", coverage([5, 5], 0, 0.0, 0))
    assert coverage([], 0, 1.0, 0).read_ratio == 1.0


def test_what_was_read_through_the_page_cache_says_so() -> None:
    for found in (coverage([5, 5], 10, 1.0, 0), coverage([100], 10, 0.1, 3)):
        assert "nothing of the storage below" in sentence("verify", found, through_cache=True)
        assert "page cache" not in sentence("verify", found)
