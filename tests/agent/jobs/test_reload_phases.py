"""The phases of a reload add up, whatever overlapped."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from muster_agent.jobs.reload import reload
from muster_agent.jobs.reload_phases import CpuMeter, Moments, busy_of, phases_of
from muster_agent.jobs.seal import seal
from muster_agent.protocol.phases import Phase
from muster_agent.reload.phase_clock import PhaseClock
from muster_agent.reload.totals import ReadTotals

from tests.agent.checkpoint_factory import write_checkpoint

TOTALS = ReadTotals(
    reading_seconds=7.0,
    placing_seconds=3.0,
    wall_seconds={Phase.READ: 1.5, Phase.ALLOCATE: 0.25},
    consuming_seconds=2.0,
    cpu_seconds=1.0,
    consuming_cpu_seconds=0.75,
)


@pytest.mark.parametrize("materialized_at", [None, 13.5])
def test_the_critical_path_adds_up_to_the_wall_time(materialized_at: float | None) -> None:
    moments = Moments(10.0, 10.5, 11.0, 13.0, materialized_at)
    phases = phases_of(moments, TOTALS, verifies=True)
    assert sum(phases.values()) == pytest.approx(moments.ended_at - 10.0)
    assert (phases["read"], phases["allocate"], phases["verify"]) == (1.5, 0.75, 0.25), "only where nobody waits"
    assert busy_of(TOTALS, verifies=True) == {"allocate": 3.0, "read": 7.0, "verify": 2.0}


def test_without_anything_to_compare_with_the_whole_pass_is_reading() -> None:
    phases = phases_of(Moments(0.0, 0.5, 1.0, 3.0), TOTALS, verifies=False)
    assert phases == {"resolve": 0.5, "allocate": 0.75, "read": 1.75}
    assert busy_of(TOTALS, verifies=False) == {"allocate": 3.0, "read": 7.0}


def test_the_readers_hashing_is_charged_to_verify_and_this_threads_laps_to_their_phases() -> None:
    meter, before = CpuMeter(), time.thread_time()
    sum(range(200_000))
    meter.lap(Phase.RESOLVE)
    meter.lap_reading(TOTALS, verifies=True)
    sum(range(200_000))
    meter.lap(Phase.VERIFY)
    own = time.thread_time() - before
    assert list(meter.seconds) == ["resolve", "read", "allocate", "verify"]
    assert meter.seconds["read"] >= 0.25 and meter.seconds["verify"] >= 0.75
    assert sum(meter.seconds.values()) == pytest.approx(own + TOTALS.cpu_seconds, abs=0.01)


def test_a_moment_in_two_phases_belongs_to_the_first_of_them() -> None:
    clock = PhaseClock((Phase.READ, Phase.ALLOCATE))
    began = time.monotonic()
    clock.enter(Phase.ALLOCATE)
    time.sleep(0.02)
    clock.enter(Phase.READ)
    time.sleep(0.02)
    clock.leave(Phase.ALLOCATE)
    clock.leave(Phase.READ)
    time.sleep(0.02)
    clock.enter(Phase.READ)
    clock.leave(Phase.READ)
    assert clock.seconds[Phase.ALLOCATE] >= 0.02 and clock.seconds[Phase.READ] >= 0.02
    assert sum(clock.seconds.values()) <= time.monotonic() - began - 0.02


def test_waiting_for_a_cap_on_the_rate_is_time_of_the_reads(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "run", 1, world_size=1, rank_bytes=3 << 20)
    assert seal(str(folder)).manifest is not None
    report = reload(str(folder), max_bytes_per_second=3 << 20)
    assert report.verified is True and report.seconds > 0.3
    assert report.phases["verify"] < report.phases["read"]
