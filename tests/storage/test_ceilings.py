"""A tier's read ceiling, measured by an agent's real reader on real files."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import factories
import msgspec
import pytest
from django.utils import timezone
from listings import answer, start
from muster_agent.jobs import ceiling as ceiling_job
from muster_agent.jobs import ceiling_sources
from muster_agent.jobs.ceiling import Setting, measure_ceiling
from muster_agent.protocol.wire import CeilingBody, CeilingParams

from apps.accounts.models import ActivityEntry
from apps.core.errors import Conflict
from apps.fleet.models import AgentTask
from apps.fleet.tasks import tasks_of
from apps.storage import ceilings
from apps.storage.models import CeilingRun, StorageTier, TierCeiling
from apps.storage.selectors import ceiling_for

pytestmark = pytest.mark.django_db


@pytest.fixture
def tier(tmp_path: Path) -> StorageTier:
    (tmp_path / "shard").write_bytes(bytes(3 << 20))
    cluster = factories.cluster()
    factories.agent(factories.node(cluster), roots=[str(tmp_path)])
    tier: StorageTier = factories.tier(cluster, uri=str(tmp_path))
    return tier


def ended(run: CeilingRun, body: CeilingBody | None, **fields: Any) -> CeilingRun:
    task: AgentTask = tasks_of("ceiling", run.pk).get()
    start(task)
    task.refresh_from_db()
    ceilings.advance(run.pk)
    answer(task, body, **fields)
    ceilings.advance(run.pk)
    ceilings.advance(run.pk)
    run.refresh_from_db()
    return run


def body_from(run: CeilingRun, monkeypatch: pytest.MonkeyPatch, cached: float = 0.0) -> CeilingBody:
    monkeypatch.setattr(ceiling_job, "SETTINGS", (Setting("muster", 1 << 20, 2),))
    monkeypatch.setattr(ceiling_sources, "cached_ratio", lambda _paths: cached)
    params = msgspec.convert(tasks_of("ceiling", run.pk).get().params, CeilingParams)
    return CeilingBody(report=measure_ceiling(params.root, seconds_per_try=params.seconds_per_try, with_fio=False))


def test_what_an_agent_measured_is_kept_with_its_method_and_date(
    tier: StorageTier, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = ceilings.request_measurement(tier=tier, actor="olga")
    run = ended(run, body_from(run, monkeypatch))
    assert (run.state, run.outcome, run.next_attempt_at) == ("finished", "measured", None)
    kept = TierCeiling.objects.get()
    assert (kept.bytes_per_second, kept.client_count) == (run.bytes_per_second, 1)
    assert kept.method.startswith("ceiling: muster 1 MiB x 2")
    assert run.tries[0]["read_bytes"] == 3 << 20
    assert ceiling_for(tier.pk, 1, timezone.now()) == kept and ceiling_for(tier.pk, 2, timezone.now()) is None
    assert ceiling_for(tier.pk, 1, timezone.now() + timedelta(days=91)) is None
    assert ActivityEntry.objects.get(action="tier.measure").target_id == tier.pk


def test_a_rate_that_came_from_memory_is_no_ceiling(tier: StorageTier, monkeypatch: pytest.MonkeyPatch) -> None:
    run = ceilings.request_measurement(tier=tier, actor="olga")
    run = ended(run, body_from(run, monkeypatch, cached=0.9))
    assert run.outcome == "failed" and "the storage was not measured" in run.reason
    assert not TierCeiling.objects.exists()


@pytest.mark.parametrize(
    ("outcome", "expected"), [("failed", "failed"), ("lost", "failed"), ("cancelled", "cancelled")]
)
def test_a_task_that_did_not_succeed_ends_it_with_its_reason(tier: StorageTier, outcome: str, expected: str) -> None:
    run = ended(ceilings.request_measurement(tier=tier, actor="olga"), None, outcome=outcome, error="no file has 1 MiB")
    assert (run.outcome, run.reason) == (expected, "no file has 1 MiB")


def test_one_at_a_time_and_only_where_an_agent_reaches(tier: StorageTier) -> None:
    ceilings.request_measurement(tier=tier, actor="olga")
    with pytest.raises(Conflict, match="measured already"):
        ceilings.request_measurement(tier=tier, actor="olga")
    with pytest.raises(Conflict, match="No agent"):
        ceilings.request_measurement(tier=factories.tier(tier.cluster, "nas", "/elsewhere"), actor="olga")


def test_a_bucket_is_measured_by_an_agent_with_its_tiers_endpoint(tier: StorageTier) -> None:
    factories.agent(factories.node(tier.cluster, "near"), roots=["s3://bucket"])
    where = {"kind": "object_store", "endpoint_url": "https://s3.example", "credentials_profile": "ckpt"}
    bucket = factories.tier(tier.cluster, "cold", "s3://bucket/x", **where)
    run = ceilings.request_measurement(tier=bucket, actor="olga")
    params = msgspec.convert(tasks_of("ceiling", run.pk).get().params, CeilingParams)
    assert (params.root, params.store) == ("s3://bucket/x", bucket.store)


def test_the_schedule_measures_what_is_old_and_nothing_by_default(tier: StorageTier, settings: Any) -> None:
    ceilings.request_overdue()
    assert not CeilingRun.objects.exists(), "reading at full speed is nothing to do unasked"
    settings.CEILING_DAYS = 7
    factories.tier(tier.cluster, "away", "/elsewhere")
    ceilings.request_overdue()
    ceilings.request_overdue()
    run = CeilingRun.objects.get()
    assert (run.tier_id, run.requested_by) == (tier.pk, "schedule")
    ended(run, None, outcome="failed", error="x")
    ceilings.request_overdue()
    assert CeilingRun.objects.count() == 1, "a failed try is not repeated every ten seconds"
    CeilingRun.objects.update(created_at=timezone.now() - timedelta(days=8))
    ceilings.request_overdue()
    assert CeilingRun.objects.count() == 2


def test_a_lost_message_is_made_up_for_by_the_sweeper(tier: StorageTier) -> None:
    run = ceilings.request_measurement(tier=tier, actor="olga")
    assert ceilings.due() == []
    CeilingRun.objects.update(next_attempt_at=timezone.now() - timedelta(seconds=1))
    assert ceilings.due() == [run.pk]
