"""What is advised follows from the inputs alone; vectors from the papers behind the formulas."""

from __future__ import annotations

from dataclasses import replace

import pytest

from apps.recovery.advice import Input, Inputs, Source, advise, given, missing

NOTHING = missing("nobody knows")
FLEET = Inputs(
    gpu_count=given(16_384),
    gpus_per_node=given(8),
    gpu_hour_cost=given(2.0),
    failures_per_node_day=Input(6.5e-3, Source.ASSUMED, "published"),
    mtbf_seconds=NOTHING,
    save_seconds=given(300),
    whole_save_seconds=NOTHING,
    interval_seconds=NOTHING,
    resume_seconds=given(1200),
    objective_seconds=given(120),
    repair_hours=given(24),
)


def test_16384_gpus_fail_every_1_8_hours_and_need_22_spares() -> None:
    found = advise(FLEET)
    assert found.node_count == 2048 and found.spare_node_count == 22
    assert found.mtbf.value == pytest.approx(1.80 * 3600, rel=0.005)
    assert (found.mtbf.source, found.failures_per_month) == (Source.ASSUMED, pytest.approx(399.4, abs=0.1))


@pytest.mark.parametrize(("save", "young", "daly"), [(300, 1971.8, 1776.9), (60, 881.8, 842.3), (10, 360.0, 353.4)])
def test_young_and_daly_from_a_measured_mean_time(save: float, young: float, daly: float) -> None:
    found = advise(replace(FLEET, save_seconds=given(save), mtbf_seconds=Input(6480, Source.MEASURED, "3 incidents")))
    assert found.interval.young_seconds == pytest.approx(young, abs=0.05)
    assert found.interval.daly_seconds == pytest.approx(daly, abs=0.05)
    assert found.mtbf.source == Source.MEASURED


def test_saves_come_no_more_often_than_one_whole_save_takes() -> None:
    found = advise(replace(FLEET, save_seconds=given(10), whole_save_seconds=given(900)))
    assert found.interval.daly_seconds is not None and found.interval.daly_seconds < 900
    assert (found.interval.advised_seconds, found.interval.is_held_by_save) == (900, True)


@pytest.mark.parametrize(("save", "resume", "ratio"), [(300, 1200, 0.576), (10, 120, 0.928)])
def test_the_share_that_trains_at_youngs_interval(save: float, resume: float, ratio: float) -> None:
    young = advise(replace(FLEET, save_seconds=given(save))).interval.young_seconds
    assert young is not None
    found = advise(
        replace(FLEET, save_seconds=given(save), resume_seconds=given(resume), interval_seconds=given(young))
    )
    assert found.today.training_ratio == pytest.approx(ratio, abs=0.0005)


def test_a_failure_costs_the_wait_and_half_an_interval_of_work_of_every_gpu() -> None:
    found = advise(replace(FLEET, interval_seconds=given(3600)))
    hours = 16_384 * (1200 + 1800) / 3600
    assert found.today.gpu_hours_per_failure == pytest.approx(hours)
    assert found.today.cost_per_failure == pytest.approx(2 * hours)
    assert found.today.cost_per_month == pytest.approx(2 * hours * 399.36, rel=1e-3)
    assert found.objective.gpu_hours_per_failure == pytest.approx(16_384 * (120 + 1800) / 3600)


def test_what_nobody_knows_stays_unknown_and_is_never_zero() -> None:
    found = advise(replace(FLEET, gpu_hour_cost=NOTHING, resume_seconds=NOTHING, save_seconds=NOTHING))
    assert found.interval.advised_seconds is None
    assert found.today.gpu_hours_per_failure is None and found.today.cost_per_month is None
    assert found.objective.training_ratio is None
    none = advise(replace(FLEET, gpu_count=NOTHING))
    assert (none.node_count, none.spare_node_count, none.mtbf.value) == (None, None, None)
