"""Plans firing: once per occurrence, whatever happens to the beats."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import factories
import pytest
from django.db import connection

from apps.checkpoints.models import TrainingRun
from apps.core.schedules import MAX_MISSED_ROWS
from apps.drills import schedules, services
from apps.drills.models import Drill, DrillPlan, PlanOccurrence

NOON = datetime(2026, 5, 4, 12, tzinfo=UTC)
REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture
def run(db: None) -> TrainingRun:
    return factories.run(factories.cluster())


def plan(run: TrainingRun, name: str = "nightly", *, next_at: datetime = NOON, **spec: object) -> DrillPlan:
    values = {"name": name, "kind": "reload", "cron": "0 * * * *", **spec}
    row = services.create_plan(run=run, spec=values, actor="olga")
    DrillPlan.objects.filter(pk=row.pk).update(next_at=next_at)
    row.refresh_from_db()
    return row


def test_a_due_plan_starts_its_drill_and_moves_on(run: TrainingRun) -> None:
    row = plan(run, objective_seconds=90.0, choice="latest")
    assert schedules.fire_due(NOON + timedelta(seconds=1)) == 1
    drill = Drill.objects.get(plan=row)
    assert (drill.kind, drill.choice, drill.objective_seconds) == ("reload", "latest", 90.0)
    occurrence = PlanOccurrence.objects.get(plan=row)
    assert (occurrence.planned_at, occurrence.drill_id, occurrence.skipped_reason) == (NOON, drill.pk, "")
    row.refresh_from_db()
    assert row.next_at == NOON + timedelta(hours=1)


def test_nothing_fires_before_its_time_or_twice(run: TrainingRun) -> None:
    plan(run)
    assert schedules.fire_due(NOON - timedelta(seconds=1)) == 0
    assert schedules.fire_due(NOON) == 1
    assert schedules.fire_due(NOON) == 0
    assert Drill.objects.count() == 1


def test_a_plan_that_is_off_does_not_fire(run: TrainingRun) -> None:
    row = plan(run)
    services.update_plan(plan=row, changes={"enabled": False}, actor="olga")
    row.refresh_from_db()
    assert row.next_at is None
    assert schedules.fire_due(NOON + timedelta(days=3)) == 0


def test_two_beats_with_the_same_stale_row_start_one_drill(run: TrainingRun) -> None:
    row = plan(run)
    first, second = DrillPlan.objects.get(pk=row.pk), DrillPlan.objects.get(pk=row.pk)
    assert schedules.PLANS.fire(first, NOON) + schedules.PLANS.fire(second, NOON) == 1
    assert Drill.objects.count() == PlanOccurrence.objects.count() == 1


def test_a_beat_that_dies_in_the_middle_neither_drops_nor_doubles(
    run: TrainingRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = plan(run)

    class Killed(BaseException):
        pass

    def die(**_arguments: object) -> Drill:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(services, "create_drill", die)
        with pytest.raises(Killed):
            schedules.fire_due(NOON)
    row.refresh_from_db()
    assert row.next_at == NOON
    assert not PlanOccurrence.objects.exists()
    assert schedules.fire_due(NOON + timedelta(seconds=5)) == 1
    assert Drill.objects.count() == 1


def test_missed_occurrences_are_recorded_and_skipped_where_the_plan_says_so(run: TrainingRun) -> None:
    row = plan(run, missed="skip")
    assert schedules.fire_due(NOON + timedelta(hours=3, minutes=30)) == 0
    rows = list(PlanOccurrence.objects.filter(plan=row).order_by("planned_at"))
    assert [one.planned_at.hour for one in rows] == [12, 13, 14, 15]
    assert all(one.skipped_reason.startswith("Missed") and one.drill_id is None for one in rows)
    row.refresh_from_db()
    assert row.next_at == NOON + timedelta(hours=4)


def test_after_an_outage_run_once_starts_one_drill_for_all_that_was_missed(run: TrainingRun) -> None:
    row = plan(run, missed="run_once")
    assert schedules.fire_due(NOON + timedelta(hours=3, minutes=30)) == 1
    rows = list(PlanOccurrence.objects.filter(plan=row).order_by("planned_at"))
    assert [bool(one.drill_id) for one in rows] == [False, False, False, True]


def test_an_outage_of_weeks_leaves_a_bounded_number_of_rows_that_say_so(run: TrainingRun) -> None:
    row = plan(run, cron="* * * * *")
    began = time.monotonic()
    schedules.fire_due(NOON + timedelta(days=365))
    assert time.monotonic() - began < 5  # half a million due times must not hold up the tick
    rows = PlanOccurrence.objects.filter(plan=row).order_by("planned_at")
    assert rows.count() == MAX_MISSED_ROWS
    first = rows.first()
    assert first is not None
    assert first.skipped_reason.endswith("Earlier ones were missed too.")
    last = rows.last()
    assert last is not None and last.planned_at == NOON + timedelta(days=365)


def test_a_plan_whose_last_drill_still_runs_skips_with_its_name(run: TrainingRun) -> None:
    row = plan(run)
    schedules.fire_due(NOON)
    running = Drill.objects.get()
    assert schedules.fire_due(NOON + timedelta(hours=1)) == 0
    last = PlanOccurrence.objects.filter(plan=row).latest("planned_at")
    assert running.pk in last.skipped_reason


def test_a_drill_that_may_not_start_leaves_the_reason_on_its_occurrence(run: TrainingRun) -> None:
    row = plan(run)
    services.stop_all_drills(actor="ada", reason="maintenance")
    assert schedules.fire_due(NOON) == 0
    assert "stopped by ada: maintenance" in PlanOccurrence.objects.get(plan=row).skipped_reason


def test_a_stored_schedule_that_cannot_be_read_any_more_says_so_once(run: TrainingRun) -> None:
    row = plan(run)
    DrillPlan.objects.filter(pk=row.pk).update(time_zone="Mars/Olympus")
    assert schedules.fire_due(NOON) == 0
    row.refresh_from_db()
    assert row.next_at is None
    assert "Save the plan again" in PlanOccurrence.objects.get(plan=row).skipped_reason


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_concurrent_beats_start_exactly_one_drill_per_occurrence(tmp_path: Path) -> None:
    if connection.vendor == "postgresql":
        _beats_as_threads()
    else:
        _beats_as_processes(tmp_path)


def _beats_as_threads() -> None:
    run = factories.run(factories.cluster())
    for number in range(15):
        plan(run, f"plan-{number}")
    gate = threading.Barrier(4)
    problems: list[BaseException] = []

    def beat() -> None:
        try:
            gate.wait()
            schedules.fire_due(NOON)
        except BaseException as problem:
            problems.append(problem)
        finally:
            connection.close()

    beats = [threading.Thread(target=beat) for _ in range(4)]
    for thread in beats:
        thread.start()
    for thread in beats:
        thread.join()
    assert problems == []
    assert Drill.objects.count() == PlanOccurrence.objects.count() == 15
    assert Drill.objects.values("plan").distinct().count() == 15


_SETUP = """
import django; django.setup()
from django.core.management import call_command
call_command("migrate", verbosity=0)
import sys; sys.path.insert(0, "tests")
import factories
from datetime import UTC, datetime
from apps.drills import services
from apps.drills.models import DrillPlan
run = factories.run(factories.cluster())
for number in range(15):
    services.create_plan(run=run, spec={"name": f"p{number}", "kind": "reload", "cron": "0 * * * *"}, actor="olga")
DrillPlan.objects.update(next_at=datetime(2026, 5, 4, 12, tzinfo=UTC))
"""
_BEAT = """
import django; django.setup()
import sys
from datetime import UTC, datetime
from apps.drills import schedules
print("up", flush=True); sys.stdin.readline()
print(schedules.fire_due(datetime(2026, 5, 4, 12, tzinfo=UTC)))
"""
_COUNT = """
import django; django.setup()
from apps.drills.models import Drill, PlanOccurrence
print(Drill.objects.count(), PlanOccurrence.objects.count(), Drill.objects.values("plan").distinct().count())
"""


def _beats_as_processes(tmp_path: Path) -> None:
    """SQLite's test database lives in memory, where threads meet other locks than processes do on a file."""
    environment = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "controlplane.settings",
        "DATABASE_URL": f"sqlite:///{tmp_path}/muster.sqlite3",
        "MUSTER_LOG_LEVEL": "ERROR",
    }

    def start(script: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", script]
        return subprocess.Popen(
            command, env=environment, cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    assert start(_SETUP).wait(timeout=60) == 0
    beats = [start(_BEAT) for _ in range(3)]
    for beat in beats:
        assert beat.stdout is not None and beat.stdout.readline() == "up\n"
    for beat in beats:
        assert beat.stdin is not None
        beat.stdin.write("go\n")
        beat.stdin.flush()
    started = [int(beat.communicate(timeout=60)[0]) for beat in beats]
    assert [beat.returncode for beat in beats] == [0, 0, 0]
    assert sum(started) == 15
    assert start(_COUNT).communicate(timeout=60)[0].split() == ["15", "15", "15"]
