"""A drill's story and report from real rows."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import factories
import pytest
from django.utils import timezone
from recovery.test_api_recovery import client, stranger

from apps.checkpoints.models import Placement
from apps.drills.comparing import held_against, last_comparable
from apps.drills.models import Drill, DrillRung, RankResult
from apps.drills.report import report
from apps.drills.story import story_of

pytestmark = pytest.mark.django_db
GB = 1_000_000_000


@pytest.fixture
def copy() -> Placement:
    cluster = factories.cluster()
    return factories.placement(factories.run(cluster), factories.tier(cluster), 20, world_size=4)


def herd(copy: Placement, ago: timedelta, seconds: float = 12.0, **fields: Any) -> Drill:
    """A passed drill of four clients, the third of them slower."""
    at = timezone.now() - ago
    names = fields.pop("nodes", ["gpu-1", "gpu-2", "gpu-3", "gpu-4"])
    values: dict[str, Any] = {
        "kind": "herd",
        "state": "finished",
        "outcome": "passed",
        "seconds": seconds,
        "objective_seconds": 90.0,
        "objective_state": "met",
        "total_bytes": 64 * GB,
        "bytes_per_second": 64 * GB / seconds,
        "phases": {"read": seconds - 2.0, "verify": 2.0},
        "cached_ratio_before": 0.0,
        "verified": True,
        "checkpoint_step": 20,
        "facts": {"clients": [{"node": name, "ranks": [0], "bytes": 1, "version": "0.1.0"} for name in names]},
        "requested_by": "olga",
        "created_at": at,
        "finished_at": at,
    }
    run = copy.checkpoint.run
    drill = Drill.objects.create(cluster=run.cluster, run=run, placement=copy, **{**values, **fields})
    rung = DrillRung.objects.create(drill=drill, placement=copy, order=0, client_count=len(names), seconds=seconds)
    for rank, name in enumerate(names):
        node, _ = run.cluster.nodes.get_or_create(name=name, defaults={"created_at": at})
        read = seconds - 2.0 if rank == 2 else 5.0
        RankResult.objects.create(
            rung=rung, rank=rank, ranks=[rank], node=node, task_id=f"t{rank}", outcome="done", bytes=16 * GB,
            seconds=read + 2.0, started_at=at, phases={"read": read, "verify": 2.0}, requested="auto",
            effective="host_direct", reason="nvidia-fs is not loaded", cached_ratio_before=0.0, verified=True,
        )  # fmt: skip
    return drill


def test_the_story_tells_what_was_asked_done_and_who_was_last(copy: Placement) -> None:
    drill = herd(copy, timedelta(hours=1))
    told = report(Drill.objects.select_related("placement__tier", "tier", "run", "cluster", "plan").get(pk=drill.pk))
    story = told["story"]
    assert story["lead"] == "64.0 GB were read in 12 s of 90 s, and every byte matched its manifest."
    asked = {fact["label"]: fact["words"] for fact in story["asked"]}
    assert (asked["Checkpoint"], asked["Backend"], asked["Objective"]) == ("latest verified", "auto", "90 s")
    done = {fact["label"]: fact["words"] for fact in story["done"]}
    assert done["Backend"] == "host_direct (asked: auto)" and done["Why"] == "nvidia-fs is not loaded"
    assert done["Ranks to nodes"].startswith("gpu-1: rank 0; gpu-2: rank 1;")
    assert (story["last"]["name"], story["last"]["phase"], story["last"]["without_seconds"]) == ("gpu-3", "read", 7.0)
    assert story["comparison"] is None
    assert any("storage part only" in line for line in story["not_proven"])


def test_the_last_comparable_drill_is_the_newest_of_the_same_kind_tier_backend_and_width(copy: Placement) -> None:
    drill = herd(copy, timedelta(0), 14.0)
    other_tier = factories.placement(copy.checkpoint.run, factories.tier(copy.tier.cluster, "nas", "/nas"), 20)
    herd(copy, timedelta(hours=1), backend="gds")
    herd(copy, timedelta(hours=2), nodes=["gpu-1", "gpu-2"])
    herd(copy, timedelta(hours=3), outcome="failed")
    herd(other_tier, timedelta(hours=4))
    herd(copy, timedelta(hours=5), kind="reload")
    herd(copy, timedelta(hours=6), max_bytes_per_second=1)
    assert last_comparable(drill) is None
    before = herd(copy, timedelta(hours=7), 10.0)
    herd(copy, timedelta(hours=8))
    herd(copy, timedelta(hours=-1))
    assert last_comparable(drill) == before
    story = story_of(
        drill, list(drill.rungs.get().results.select_related("node", "rung__drill").order_by("rank")), before
    )
    assert story.comparison is not None
    assert story.comparison.sentence.startswith("4.0 s longer than the last comparable drill: read took 4.0 s more")
    assert (story.comparison.with_drill, story.comparison.seconds) == (before.pk, 4.0)


def test_a_late_drill_is_compared_with_but_is_no_good_one(copy: Placement, django_assert_max_num_queries: Any) -> None:
    good = herd(copy, timedelta(hours=2))
    late = herd(copy, timedelta(hours=1), 95.0, objective_state="breached")
    drill = herd(copy, timedelta(0))
    with django_assert_max_num_queries(2):
        assert held_against(drill) == (late, good)


def test_other_nodes_and_versions_are_told(copy: Placement) -> None:
    before = herd(copy, timedelta(hours=1))
    drill = herd(copy, timedelta(0), nodes=["gpu-1", "gpu-2", "gpu-3", "gpu-9"])
    found = story_of(drill, list(drill.rungs.get().results.select_related("node", "rung__drill")), before).comparison
    assert found is not None
    assert [(change.what, change.before, change.after) for change in found.changes] == [("nodes", "gpu-4", "gpu-9")]


def test_a_drill_faster_than_its_ceiling_is_told_in_words(copy: Placement) -> None:
    ceiling = {"bytes_per_second": 4 * GB, "client_count": 4, "method": "fio", "measured_at": "2026-05-01T00:00:00Z"}
    drill = herd(copy, timedelta(0), facts={"ceiling": ceiling})
    story = story_of(drill, [], None)
    assert story.is_above_ceiling and story.ceiling.startswith("1.33 times the measured ceiling (4.00 GB/s with 4")


def test_a_drill_that_did_not_pass_says_why_and_proves_nothing(copy: Placement) -> None:
    before = herd(copy, timedelta(hours=1))
    drill = herd(copy, timedelta(0), outcome="failed", reason="gpu-2 was lost.")
    story = story_of(drill, [], before)
    assert (story.lead, story.comparison, story.last) == ("gpu-2 was lost.", None, None)
    assert story.not_proven[0].startswith("It did not pass")


def test_the_api_gives_the_report_to_who_may_see_the_cluster(copy: Placement) -> None:
    before, drill = herd(copy, timedelta(hours=1)), herd(copy, timedelta(0), 14.0)
    url = f"/api/v1/drills/{drill.pk}/report"
    body = client().get(url).json()
    assert (body["report_version"], body["drill"], body["client_count"]) == (1, drill.pk, 4)
    assert body["story"]["comparison"]["with_drill"] == before.pk
    assert [phase["seconds"] for phase in body["phases"] if phase["phase"] in ("read", "launch")] == [None, 12.0]
    assert body["clients"][2]["node"] == "gpu-3" and body["efficiency_ratio"] is None
    assert stranger().get(url).status_code == 404


def test_a_new_drill_records_the_version_of_each_agent(copy: Placement) -> None:
    from apps.drills.reading import Preparation, _client_facts
    from apps.drills.reload import Share

    agent = factories.agent(factories.node(copy.tier.cluster, "gpu-7"), version="0.3.1")
    ready = Preparation(copy, (copy,), (Share((0,), ()),), (agent,), (1,))
    assert _client_facts(ready)[0]["version"] == "0.3.1"
