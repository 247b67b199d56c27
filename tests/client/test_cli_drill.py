"""`muster drill` against the real application."""

from __future__ import annotations

import json
from typing import Any

import factories
import pytest
from django.utils import timezone
from muster_agent.cli import watching

from apps.checkpoints.models import Placement
from apps.drills.models import Drill
from tests.agent.cli.asking import muster


@pytest.fixture
def placement(operator: str) -> Placement:
    east = factories.cluster(allows_disruption=True)
    tier = factories.tier(east)
    factories.agent(factories.node(east))
    return factories.placement(factories.run(east), tier, trust="verified")


def drill_of(placement: Placement, **fields: Any) -> Drill:
    run = placement.checkpoint.run
    return Drill.objects.create(
        cluster=run.cluster, run=run, kind="reload", requested_by="x", created_at=timezone.now(), **fields
    )


def finished(placement: Placement, outcome: str = "passed", objective: str = "none", **fields: Any) -> Drill:
    values: dict[str, Any] = {"seconds": 4.0, "phases": {"read": 3.0, "verify": 1.0}, "bytes_per_second": 1000.0}
    ended = {"finished_at": timezone.now(), "started_at": timezone.now()}
    return drill_of(
        placement, state="finished", outcome=outcome, objective_state=objective, **{**values, **ended, **fields}
    )


def test_a_drill_is_started_and_its_id_is_all_that_a_script_gets(placement: Placement) -> None:
    done = muster("drill", "run", "llama-70b", "--objective", "15min", "-o", "name")
    assert done.exit_code == 0
    drill = Drill.objects.get(pk=done.stdout.strip())
    assert (drill.kind, drill.objective_seconds) == ("reload", 900)


def test_any_field_of_the_api_can_be_set_and_a_bad_one_is_named(placement: Placement) -> None:
    done = muster("drill", "run", "llama-70b", "--kind", "herd", "--set", "ladder=[1]", "-o", "json")
    assert json.loads(done.stdout)["ladder"] == [1]
    wrong = muster("drill", "run", "llama-70b", "--set", "colour=red")
    assert wrong.exit_code == 2 and "colour" in wrong.stderr


def test_a_preview_starts_nothing(placement: Placement) -> None:
    done = muster("drill", "run", "llama-70b", "--preview")
    assert done.exit_code == 0 and "only reads" in done.stdout and "gpu-1" in done.stdout
    assert Drill.objects.count() == 0


def test_a_drill_that_disrupts_is_never_started_by_a_slip(placement: Placement) -> None:
    refused = muster("drill", "run", "llama-70b", "--kind", "failover")
    assert refused.exit_code == 2 and "--yes" in refused.stderr
    assert Drill.objects.count() == 0


@pytest.mark.parametrize(
    ("outcome", "objective", "code"),
    [
        ("passed", "none", 0),
        ("passed", "met", 0),
        ("passed", "breached", 8),
        ("failed", "none", 7),
        ("lost", "none", 7),
    ],
)
def test_how_a_drill_ended_is_the_exit_code(placement: Placement, outcome: str, objective: str, code: int) -> None:
    drill = finished(placement, outcome, objective, objective_seconds=3.0)
    for verb in ("watch", "report"):
        done = muster("drill", verb, drill.pk)
        assert done.exit_code == code
        assert "4.0 s" in done.stdout and outcome in done.stdout


def test_a_cancelled_drill_is_neither_passed_nor_failed(placement: Placement) -> None:
    assert muster("drill", "watch", finished(placement, "cancelled").pk).exit_code == 1


def test_a_drill_that_is_not_done_in_time_exits_6_and_says_how_to_stop_it(placement: Placement) -> None:
    drill = drill_of(placement, state="running")
    late = muster("drill", "watch", drill.pk, "--timeout", "0")
    assert late.exit_code == 6 and f"muster drill cancel {drill.pk}" in late.stderr


def test_ctrl_c_leaves_the_drill_running_and_says_how_to_cancel(
    placement: Placement, monkeypatch: pytest.MonkeyPatch
) -> None:
    drill = drill_of(placement, state="running")

    def interrupted(_seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(watching.time, "sleep", interrupted)
    monkeypatch.setitem(watching.watch.__kwdefaults__, "sleep", interrupted)  # type: ignore[arg-type]
    left = muster("drill", "watch", drill.pk)
    assert left.exit_code == 130 and f"muster drill cancel {drill.pk}" in left.stderr
    assert Drill.objects.get(pk=drill.pk).cancel_requested_at is None


def test_watching_follows_the_states_and_ends_with_the_drill(
    placement: Placement, monkeypatch: pytest.MonkeyPatch
) -> None:
    drill = drill_of(placement, state="running")

    def pass_time(_seconds: float) -> None:
        Drill.objects.filter(pk=drill.pk).update(state="finished", outcome="passed", finished_at=timezone.now())

    monkeypatch.setitem(watching.watch.__kwdefaults__, "sleep", pass_time)  # type: ignore[arg-type]
    done = muster("drill", "watch", drill.pk)
    assert done.exit_code == 0
    assert done.stderr.splitlines() == ["running", "finished"], "no progress bar where there is no terminal"


def test_cancelling_is_heard(placement: Placement) -> None:
    drill = drill_of(placement, state="running", started_at=timezone.now())
    assert muster("drill", "cancel", drill.pk).exit_code == 0
    stopped = Drill.objects.get(pk=drill.pk)
    assert stopped.cancel_requested_at is not None or stopped.outcome == "cancelled"


def test_drills_are_compared_figure_by_figure_against_the_first(placement: Placement) -> None:
    first, second = finished(placement), finished(placement, seconds=8.0, phases={"read": 6.0})
    table = muster("drill", "compare", first.pk, second.pk).stdout
    assert "8.0 s (2.00x)" in table and "6.0 s (2.00x)" in table
    verify = next(line for line in table.splitlines() if "verify" in line)
    assert verify.split()[-1] == "-", "a phase that was not measured is not 0"
    assert len(json.loads(muster("drill", "compare", first.pk, second.pk, "-o", "json").stdout)) == 2
    assert muster("drill", "compare", first.pk).exit_code == 2
