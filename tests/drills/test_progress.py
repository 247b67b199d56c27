"""How far each client of a drill is, while it works."""

from __future__ import annotations

from pathlib import Path

import factories
import pytest
from django.test import Client
from drill_agents import Yard, advanced, tasks_of, work
from muster_agent.protocol.wire import EventBatch, TaskEvent

from apps.accounts.models import Role
from apps.drills import services
from apps.drills.progress import progress_of
from apps.fleet import events, tasks

pytestmark = pytest.mark.django_db


def test_each_client_shows_its_ranks_phase_bytes_and_rate_on_the_page_and_in_the_api(
    tmp_path: Path, client: Client
) -> None:
    yard = Yard(tmp_path, node_count=2)
    yard.checkpoint(world_size=4)
    drill = advanced(services.create_drill(run=yard.run, spec={"kind": "reload"}, actor="olga"))
    task = tasks_of(drill)[1]
    [claimed] = tasks.claim(agent=task.agent, slots=1)
    tasks.acknowledge(agent=task.agent, task_id=task.pk, attempt=claimed.attempt)
    moved = (
        TaskEvent(seq=1, kind="phase", phase="read", edge="begin", at_unix_seconds=100.0, mono_seconds=1.0),
        TaskEvent(
            seq=2, kind="progress", phase="read", done_bytes=50_000, total_bytes=120_000, at_unix_seconds=102.0,
            mono_seconds=3.0,
        ),
    )  # fmt: skip
    events.ingest(agent=task.agent, task_id=task.pk, batch=EventBatch(attempt=claimed.attempt, events=moved))
    olga = {"Authorization": f"Bearer {factories.token(factories.user('olga', Role.OPERATOR))}"}
    first, second = client.get(f"/api/v1/drills/{drill.pk}", headers=olga).json()["progress"]
    assert (first["node_name"], first["ranks"], first["state"]) == ("gpu-1", [0, 1], "queued")
    assert (first["phase"], first["done_bytes"], first["bytes_per_second"]) == ("", None, None)
    assert (second["ranks"], second["phase"]) == ([2, 3], "read")
    assert (second["done_bytes"], second["total_bytes"], second["bytes_per_second"]) == (50_000, 120_000, 25_000.0)


def test_only_the_round_at_work_is_shown_and_nothing_once_the_drill_has_finished(tmp_path: Path) -> None:
    yard = Yard(tmp_path, node_count=2)
    yard.checkpoint(world_size=2)
    drill = advanced(services.create_drill(run=yard.run, spec={"kind": "herd", "ladder": [1, 2]}, actor="olga"))
    assert [one.ranks for one in progress_of(drill)] == [(0,)]
    work(yard.agents)
    assert [one.ranks for one in progress_of(advanced(drill))] == [(0,), (1,)]
    work(yard.agents)
    assert advanced(drill).outcome == "passed"
    assert progress_of(drill) == []
