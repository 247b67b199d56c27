"""What pages say and in which order: the same word for the same thing, newest first."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta

import factories
from dashboard.reading import read
from dashboard.scene import Scene
from django.test import Client
from django.utils import timezone

from apps.accounts.models import Role
from apps.checkpoints.models import Checkpoint, RunPointer, Shard, SteplessCheckpoint
from apps.drills.models import DrillRung, RankResult

SignIn = Callable[[str], Client]


def steps_on(html: str) -> list[int]:
    return [int(step.replace(",", "")) for step in re.findall(r"<b>step ([\d,]+)</b>", html)]


def walk(client: Client, url: str) -> list[int]:
    """The steps of all of a list's pages in order."""
    found: list[int] = []
    while url:
        html = client.get(url).content.decode()
        found += steps_on(html)
        more = re.search(r'href="(\?[^"]*)" rel="next"', html)
        url = "/checkpoints/" + more.group(1).replace("&amp;", "&") if more else ""
    return found


def test_checkpoints_of_one_scan_are_listed_by_when_they_were_saved(db: None, client: Client) -> None:
    run, now = factories.run(factories.cluster()), timezone.now()
    Checkpoint.objects.bulk_create(
        Checkpoint(
            run=run,
            step=step,
            format="safetensors",
            created_at=now,
            saved_at=None if step == 1 else now - timedelta(minutes=200 - step),
        )
        for step in [*range(2, 131), 1]
    )
    client.force_login(factories.user("vera", Role.VIEWER))
    assert walk(client, "/checkpoints/") == [1, *range(130, 1, -1)]
    assert walk(client, f"/checkpoints/?run={run.pk}") == list(range(130, 0, -1))


def test_a_drill_that_measured_nothing_says_so_in_one_way(scene: Scene, signed_in: SignIn) -> None:
    rung = DrillRung.objects.create(drill=scene.failed, order=0, client_count=1)
    RankResult.objects.create(rung=rung, rank=0, ranks=[0], outcome="failed", error="rank-0.distcp differs")
    html = signed_in("viewer").get(f"/drills/{scene.failed.pk}/").content.decode()
    assert "not measured" in html
    assert "not known" not in html and "unknown" not in html


def test_the_clients_of_a_drill_have_the_whole_width(scene: Scene, signed_in: SignIn) -> None:
    drawn = signed_in("viewer").get(f"/drills/{scene.reload.pk}/").content.decode()
    assert drawn.count("<h2>Clients</h2>") == 1
    assert drawn.index("<h2>Clients</h2>") > drawn.index("<h2>Phases</h2>") > drawn.index('<div class="grid">')
    RankResult.objects.filter(rung__drill=scene.reload).update(seconds=None)
    undrawn = signed_in("viewer").get(f"/drills/{scene.reload.pk}/").content.decode()
    assert undrawn.count("<h2>Clients</h2>") == 1
    assert undrawn.index("<h2>Clients</h2>") < undrawn.index('<div class="grid">')


def test_a_run_says_which_of_its_drills_timed_the_storage_alone(scene: Scene, signed_in: SignIn) -> None:
    client = signed_in("viewer")
    rows = client.get(f"/runs/{scene.llama.pk}/").content.decode().split("<tr data-row>")
    herd = next(row for row in rows if f"/drills/{scene.herd.pk}/" in row)
    failover = next(row for row in rows if f"/drills/{scene.failover.pk}/" in row)
    assert "storage part only" in herd and "storage part only" not in failover


def test_a_cluster_without_a_scheduler_says_so(scene: Scene, signed_in: SignIn) -> None:
    assert "no scheduler connected" in signed_in("viewer").get("/nodes/").content.decode()


def test_rank_shards_of_one_size_are_said_once(scene: Scene, signed_in: SignIn) -> None:
    url = f"/checkpoints/{scene.good.checkpoint_id}/"
    assert "Rank shards of 2.00 GB each." in read(signed_in("viewer").get(url))
    Shard.objects.filter(placement=scene.good, rank=1).update(size_bytes=1_000_000_000)
    assert "Rank shards from 1.00 GB to 2.00 GB." in read(signed_in("viewer").get(url))


def test_a_drill_form_reads_without_scripts_under_a_heading_for_each_kind(scene: Scene, signed_in: SignIn) -> None:
    html = signed_in("operator").get("/plans/new/").content.decode()
    groups = {
        re.sub(r"<[^>]+>", "", part.split("</legend>")[0]): set(re.findall(r'name="(\w+)"', part))
        for part in html.split("<legend>")[1:]
    }
    times = {"cron", "time_zone", "missed", "start_window_seconds", "smear_seconds", "overlap"}
    assert groups["Plan"] == {"run", "name", "enabled", *times}
    assert groups["Drill"] == {"kind", "objective_seconds"}
    assert groups["Clients of a herd"] == {"ladder"}
    assert groups["Fault of a failover"] == {"fault", "signal_name", "worker_rank", "link"}
    assert groups["Where a failover or standby drill acts"] == {"worker_node"}
    assert sum(len(names) for names in groups.values()) == html.split('<form class="card"')[1].count('id="id_')


def test_a_scan_says_what_differs_in_words(scene: Scene, signed_in: SignIn) -> None:
    html = signed_in("viewer").get(f"/scans/{scene.scans[1].pk}/?since={scene.scans[0].pk}").content.decode()
    assert "status: complete, now corrupt" in html and "size: 8.00 kB, now 7.00 kB" in html
    assert "1 appeared, 1 changed, 0 vanished" in html
    only = signed_in("viewer").get(f"/scans/{scene.scans[1].pk}/?kind=appeared").content.decode()
    assert "now corrupt" not in only


def test_a_run_says_which_tier_is_behind(scene: Scene, signed_in: SignIn) -> None:
    for step in (11_000, 11_500, 12_500, 13_000, 13_500, 14_000, 14_500):
        factories.placement(scene.llama, scene.nvme, step, shards=1)
    html = signed_in("viewer").get(f"/runs/{scene.llama.pk}/").content.decode()
    assert "Nas is behind: its newest whole checkpoint is step 12,400, that of nvme is step 14,500" in html
    assert "is behind" not in signed_in("viewer").get(f"/runs/{scene.sft.pk}/").content.decode()


def test_a_checkpoint_says_which_rule_said_what_and_what_its_files_hold(scene: Scene, signed_in: SignIn) -> None:
    Checkpoint.objects.filter(pk=scene.good.checkpoint_id).update(dp=8, tp=4, pp=2, must_match=["tp", "pp"])
    html = signed_in("viewer").get(f"/checkpoints/{scene.good.checkpoint_id}/").content.decode()
    assert (
        "(data-parallel 8, tensor-parallel 4, pipeline 2)" in html
        and "as many tensor-parallel ranks and as many pipeline stages as the one that saved it" in html
    )
    assert "Why: which rule said what" in html and "<dt>Commit marker</dt>" in html and "Resumed, by run" in html
    assert "Files expected" in html
    damaged = signed_in("viewer").get(f"/checkpoints/{scene.damaged.checkpoint_id}/").content.decode()
    assert "Damage was found in these very files" in damaged


def test_a_run_says_what_the_framework_would_load_by_itself(scene: Scene, signed_in: SignIn) -> None:
    pointer = RunPointer.objects.create(
        run=scene.llama,
        tier=scene.nvme,
        path=f"{scene.nvme.uri}/llama-70b-pt/latest",
        step=12_400,
        seen_at=timezone.now(),
    )
    said = "Left to itself, the framework would {} step {} (what latest names)"
    client, url = signed_in("viewer"), f"/runs/{scene.llama.pk}/"
    assert said.format("load", "12,400 too") in client.get(url).content.decode()
    RunPointer.objects.filter(pk=pointer.pk).update(step=13_000, problem="step-13000 is not there")
    html = client.get(url).content.decode()
    assert said.format("look for", "13,000") in html and "step-13000 is not there" in html


def test_checkpoints_without_a_step_are_listed_below_the_others(scene: Scene, signed_in: SignIn) -> None:
    now = timezone.now()
    for path in ("/mnt/nvme/export/final", "/mnt/nvme/other/best"):
        SteplessCheckpoint.objects.create(
            tier=scene.nvme, path=path, run_name=path.split("/")[3], format="safetensors", status="complete",
            first_seen_at=now, last_seen_at=now,
        )  # fmt: skip
    client = signed_in("viewer")
    html = client.get("/checkpoints/").content.decode()
    assert "Without a step" in html and "/mnt/nvme/export/final" in html and "/mnt/nvme/other/best" in html
    searched = client.get("/checkpoints/?q=export").content.decode()
    assert "/mnt/nvme/export/final" in searched and "/mnt/nvme/other/best" not in searched
    assert "Without a step" not in client.get("/checkpoints/?trust=verified").content.decode()
    assert "Without a step" not in client.get("/checkpoints/?status=corrupt").content.decode()
