"""The node's own limits."""

from __future__ import annotations

import time

import pytest
from muster_agent.tasks.limits import LimitExceeded, LimitGuard, Limits


def never() -> bool:
    return False


def test_more_bytes_than_the_node_allows_end_the_task() -> None:
    guard = LimitGuard(Limits(max_bytes=100))
    guard.moved("read", 100, never)
    guard.moved("read", 60, never)  # a report that was overtaken by another
    with pytest.raises(LimitExceeded) as over:
        guard.moved("read", 101, never)
    assert over.value.code == "limit_bytes"


def test_more_minutes_than_the_node_allows_end_the_task() -> None:
    now = [0.0]
    guard = LimitGuard(Limits(max_minutes=1.5), monotonic=lambda: now[0])
    now[0] = 90.0
    guard.check_time()
    now[0] = 90.1
    with pytest.raises(LimitExceeded) as over:
        guard.check_time()
    assert over.value.code == "limit_minutes"


def test_reading_is_held_back_to_the_nodes_rate() -> None:
    guard = LimitGuard(Limits(max_bytes_per_second=1000))
    began_at = time.monotonic()
    for done_bytes in (100, 200, 300):
        guard.moved("read", done_bytes, never)
    assert 0.25 <= time.monotonic() - began_at < 1.0


def test_cancelling_does_not_wait_for_the_rate() -> None:
    guard = LimitGuard(Limits(max_bytes_per_second=1))
    began_at = time.monotonic()
    guard.moved("read", 1000, lambda: True)
    assert time.monotonic() - began_at < 0.5


def test_without_limits_nothing_is_held_back() -> None:
    guard = LimitGuard(Limits())
    guard.moved("read", 2**50, never)
    guard.check_time()
