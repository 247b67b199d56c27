"""The server's time on the node's monotonic clock."""

from __future__ import annotations

from muster_agent.runtime.clock import ServerClock


class FakeClocks:
    def __init__(self) -> None:
        self.mono = 100.0
        self.wall = 5_000.0

    def clock(self) -> ServerClock:
        return ServerClock(monotonic=lambda: self.mono, wall=lambda: self.wall)


def test_without_a_sample_the_nodes_own_clock_is_used_and_said_to_be_unknown() -> None:
    clock = FakeClocks().clock()
    assert clock.server_now() == 5_000.0
    assert clock.offset_seconds() is None
    assert clock.needs_sample


def test_the_exchange_with_the_shortest_round_trip_decides() -> None:
    clocks = FakeClocks()
    clock = clocks.clock()
    clock.sample(99.0, 99.8, 9_999.0)  # 0.8 s: off by up to 0.4 s
    clock.sample(99.90, 99.92, 8_000.0)
    assert clock.server_now() == 8_000.0 + (100.0 - 99.91)


def test_a_held_poll_is_no_sample() -> None:
    clock = FakeClocks().clock()
    clock.sample(50.0, 99.0, 8_000.0)
    assert clock.needs_sample


def test_a_wall_clock_that_jumps_an_hour_in_mid_task_changes_no_time_and_no_duration() -> None:
    clocks = FakeClocks()
    clock = clocks.clock()
    clock.sample(99.99, 100.0, 5_000.0)
    begun = clock.server_now()
    for jump in (-3_600.0, 7_200.0):
        clocks.wall += jump
        clocks.mono += 1.0
        assert abs(clock.server_now() - begun - (clocks.mono - 100.0)) < 1e-6
    assert abs((clock.offset_seconds() or 0.0) - (-3_600.0 + 2.0)) < 0.01  # and the jump is shown
    assert abs(clock.to_mono(begun + 5.0) - 105.0) < 1e-6
    assert abs(clock.at_server(100.0) - begun) < 1e-6


def test_an_old_sample_asks_for_another() -> None:
    clocks = FakeClocks()
    clock = clocks.clock()
    clock.sample(99.99, 100.0, 5_000.0)
    assert not clock.needs_sample
    clocks.mono += 601.0
    assert clock.needs_sample
