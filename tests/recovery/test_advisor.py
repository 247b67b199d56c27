from __future__ import annotations

import pytest

from apps.recovery.advisor import (
    daly_interval_seconds,
    effective_training_ratio,
    failure_cost,
    mtbf_seconds,
    spares_needed,
    young_interval_seconds,
)

NODES = 16_384 // 8


@pytest.mark.parametrize(
    ("save", "mtbf", "young", "daly"),
    [(300, 6480, 1971.8, 1776.9), (60, 6480, 881.8, 842.3), (10, 6480, 360.0, 353.4)],
)
def test_young_and_daly(save: float, mtbf: float, young: float, daly: float) -> None:
    assert young_interval_seconds(save, mtbf) == pytest.approx(young, abs=0.05)
    assert daly_interval_seconds(save, mtbf) == pytest.approx(daly, abs=0.05)


def test_daly_gives_the_mean_time_where_a_save_takes_twice_that() -> None:
    assert daly_interval_seconds(200, 100) == 100


def test_16384_gpus_fail_every_1_8_hours() -> None:
    assert mtbf_seconds(NODES) / 3600 == pytest.approx(1.80, abs=0.005)


@pytest.mark.parametrize(("save", "restart", "ratio"), [(300, 1200, 0.576), (10, 120, 0.928)])
def test_effective_training_ratio(save: float, restart: float, ratio: float) -> None:
    assert effective_training_ratio(save, restart, mtbf_seconds(NODES)) == pytest.approx(ratio, abs=0.0005)


def test_a_restart_longer_than_the_time_between_failures_trains_nothing() -> None:
    assert effective_training_ratio(300, 10_000, 6480) == 0.0


def test_spares_for_16384_gpus_with_a_day_of_repair() -> None:
    assert spares_needed(NODES, 24) == 22


def test_a_failure_costs_every_gpu_the_wait_and_the_work() -> None:
    assert failure_cost(512, 41 * 60, 0, 4.9) == pytest.approx(1714.3, abs=0.1)
