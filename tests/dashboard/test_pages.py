"""Every page, for everybody: who sees it, what it costs, and that nothing on it runs."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from urllib.parse import quote

import factories
import pytest
from dashboard.reading import read
from dashboard.scene import Scene, admin_pages_of, operator_pages_of, pages_of
from django.db import connection
from django.test import Client
from django.utils import timezone

from apps.accounts.models import Role
from apps.accounts.services import log_activity
from apps.alerts.models import Alert
from apps.checkpoints.models import Checkpoint, Finding, Placement, Shard, TrainingRun
from apps.core import heartbeats
from apps.drills.models import Drill, DrillPlan

SignIn = Callable[[str], Client]
MAX_QUERIES = 12
MAX_BYTES = 300_000
HARMLESS = ("/sign-out/", "/drills/compare/")
POST_FORM = re.compile(r'<form[^>]*method="post"[^>]*action="([^"]*)"|<form[^>]*action="([^"]*)"[^>]*method="post"')


def forms(html: str) -> list[str]:
    """Where the page's POST forms go, without the frame's sign-out and those that change nothing of the fleet: one's
    own saved views, and the ticked drills' way to their comparison."""
    found = [a or b for a, b in POST_FORM.findall(html)]
    return [target for target in found if target not in HARMLESS and not target.startswith("/views/")]


@pytest.mark.slow
def test_every_page_opens_for_each_role_that_may_see_it(scene: Scene, signed_in: SignIn) -> None:
    pages = pages_of(scene)
    for who in ("viewer", "operator", "admin"):
        client = signed_in(who)
        answers = {name: client.get(url).status_code for name, url in pages.items()}
        assert {name: code for name, code in answers.items() if code != 200} == {}, who


def test_a_visitor_is_sent_to_sign_in_and_back(scene: Scene) -> None:
    for name, url in {**pages_of(scene), **operator_pages_of(scene), **admin_pages_of(scene)}.items():
        answer = Client().get(url)
        assert answer.status_code == 302, name
        assert answer["Location"].startswith("/sign-in/?next=/"), name


def test_live_blocks_tell_a_signed_out_page_so_instead_of_swapping_in_the_sign_in_form(scene: Scene) -> None:
    assert Client().get(f"/drills/{scene.running.pk}/live/", headers={"HX-Request": "true"}).status_code == 401


def test_rows_of_a_cluster_out_of_sight_do_not_exist(scene: Scene, signed_in: SignIn) -> None:
    stranger = signed_in("stranger")
    for name, url in pages_of(scene).items():
        if name != "readiness-wall" and any(character.isdigit() for character in url):
            assert stranger.get(url).status_code == 404, name
    for name in (
        "runs",
        "checkpoints",
        "drills",
        "plans",
        "nodes",
        "tiers",
        "audits",
        "repairs",
        "alerts",
        "readiness",
        "readiness-wall",
        "first-steps",
        "analysis",
        "analysis-groups",
        "analysis-tiers",
        "analysis-nodes",
        "analysis-matrix",
    ):
        html = stranger.get(pages_of(scene)[name]).content.decode()
        assert "llama" not in html and "gpu-0" not in html and "h100-east" not in html, name


def test_the_activity_log_is_for_roles_that_hold_everywhere(scene: Scene, signed_in: SignIn) -> None:
    assert signed_in("stranger").get("/activity/").status_code == 403
    assert b"drill.create" in signed_in("viewer").get("/activity/").content


def test_an_account_without_any_role_is_told_to_ask_an_admin(scene: Scene, signed_in: SignIn) -> None:
    answer = signed_in("nobody").get("/")
    assert answer.status_code == 403
    assert b"Ask an admin for one" in answer.content


def test_a_viewer_sees_no_buttons_that_change_anything(scene: Scene, signed_in: SignIn) -> None:
    client = signed_in("viewer")
    for name, url in pages_of(scene).items():
        if name == "access":
            continue
        html = client.get(url).content.decode()
        assert forms(html) == [], name
        assert "/drills/start/" not in html and "/plans/new/" not in html and "/cancel/" not in html, name


def test_operators_see_drill_buttons_and_admins_also_those_of_the_fleet(scene: Scene, signed_in: SignIn) -> None:
    operator, admin = signed_in("operator"), signed_in("admin")
    checkpoint = operator.get(f"/checkpoints/{scene.good.checkpoint_id}/").content.decode()
    assert f"/checkpoints/{scene.good.checkpoint_id}/audit/" in checkpoint and "Drill this step" in checkpoint
    nodes = operator.get("/nodes/").content.decode()
    assert "/join-token/" not in nodes and "/disruption/" not in nodes
    nodes = admin.get("/nodes/").content.decode()
    assert f"/clusters/{scene.east.pk}/join-token/" in nodes and "/disruption/" in nodes


def test_every_page_holds_its_query_and_byte_budget(
    scene: Scene, signed_in: SignIn, django_assert_max_num_queries: Any
) -> None:
    for who in ("viewer", "admin"):
        client = signed_in(who)
        for name, url in pages_of(scene).items():
            with django_assert_max_num_queries(MAX_QUERIES, info=f"{name} for {who}"):
                answer = client.get(url)
            assert len(answer.content) <= MAX_BYTES, (name, len(answer.content))


@pytest.mark.slow
@pytest.mark.parametrize(("runs", "steps"), [(100, 10), (1, 1000)])
def test_a_thousand_checkpoints_of_64_shards_change_no_budget(
    db: None, client: Client, django_assert_max_num_queries: Any, runs: int, steps: int
) -> None:
    many = many_checkpoints(runs=runs, steps=steps, shards=64)
    heartbeats.beat(heartbeats.SWEEPS)
    client.force_login(factories.user("vera", Role.VIEWER))
    urls = ["/", "/runs/", f"/runs/{many[0].pk}/", "/checkpoints/", f"/checkpoints/{newest(many[0]).pk}/"]
    urls += ["/checkpoints/?status=complete&trust=sealed", f"/checkpoints/?run={many[0].pk}", "/tiers/"]
    for url in urls:
        with django_assert_max_num_queries(MAX_QUERIES, info=url):
            answer = client.get(url)
        assert answer.status_code == 200
        assert len(answer.content) <= MAX_BYTES, (url, len(answer.content))


def many_checkpoints(*, runs: int, steps: int, shards: int) -> list[TrainingRun]:
    cluster = factories.cluster()
    tier = factories.tier(cluster)
    now = timezone.now()
    made = [factories.run(cluster, f"run-{number:03d}", rto_objective_seconds=90) for number in range(runs)]
    checkpoints = Checkpoint.objects.bulk_create(
        Checkpoint(run=run, step=step, format="safetensors", world_size=shards, created_at=now, saved_at=now)
        for run in made
        for step in range(steps)
    )
    placements = Placement.objects.bulk_create(
        Placement(
            checkpoint=checkpoint,
            tier=tier,
            path=f"/ckpt/{checkpoint.run_id}/step-{checkpoint.step}",
            status="complete",
            trust="sealed",
            trust_at=now,
            resumable=True,
            shard_count=shards,
            first_seen_at=now,
            last_seen_at=now,
        )
        for checkpoint in checkpoints
    )
    Shard.objects.bulk_create(
        (
            Shard(placement=placement, path=f"rank-{rank:05d}.safetensors", size_bytes=1000, rank=rank, role="model")
            for placement in placements
            for rank in range(shards)
        ),
        batch_size=5000,
    )
    Drill.objects.bulk_create(
        Drill(
            kind="reload",
            run=run,
            cluster=cluster,
            state="finished",
            outcome="passed",
            seconds=12,
            phases={"read": 11.0},
            requested_by="olga",
            created_at=now,
            finished_at=now,
        )
        for run in made
    )
    take_statistics()
    return made


def take_statistics() -> None:
    """As PostgreSQL does by itself within a minute, but not for rows of a transaction that is never committed."""
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("ANALYZE")


def newest(run: TrainingRun) -> Checkpoint:
    return Checkpoint.objects.filter(run=run).latest("step")


def test_every_page_of_an_empty_installation_says_what_to_do(db: None, client: Client) -> None:
    client.force_login(factories.user("ada", Role.ADMIN))
    paths = ["", "runs", "checkpoints", "drills", "plans", "nodes", "tiers", "audits", "alerts", "analysis", "activity"]
    paths += ["clusters", "changes", "plans/grid"]
    for path in paths:
        answer = client.get(f"/{path}/" if path else "/")
        assert answer.status_code == 200, path
        assert (b'class="empty"' if path else b'class="firststeps"') in answer.content, path
    for path in ("drills/start", "plans/new"):
        answer = client.get(f"/{path}/")
        assert answer.status_code == 200 and b"Scan a tier first" in answer.content, path


def test_a_filter_that_matches_nothing_offers_the_way_back(scene: Scene, signed_in: SignIn) -> None:
    client = signed_in("viewer")
    for path in ("runs", "checkpoints", "drills", "plans", "nodes", "audits", "clusters", "changes", "alerts"):
        html = client.get(f"/{path}/?q=no-such-thing-anywhere").content.decode()
        assert "matches" in html and f'href="/{path}/"' in html, path


def test_a_hostile_name_is_inert_on_every_page(db: None, client: Client) -> None:
    urls = hostile_fleet()
    client.force_login(factories.user("ada", Role.ADMIN))
    for url in urls:
        answer = client.get(url)
        assert answer.status_code == 200, url
        assert b"<script>alert" not in answer.content, url
        assert b"<img src=x" not in answer.content, url
    assert "&lt;script&gt;alert" in client.get("/runs/").content.decode()


HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>"


def hostile_fleet() -> list[str]:
    now = timezone.now()
    cluster = factories.cluster()
    node = factories.node(cluster, HOSTILE[:200], facts={HOSTILE: HOSTILE})
    agent = factories.agent(node, version="<script>alert(3)</script>", roots=[HOSTILE])
    tier = factories.tier(cluster, uri=f"/{HOSTILE}")
    run = factories.run(cluster, HOSTILE)
    placement = factories.placement(run, tier, 10, trust="sealed", trust_at=now, not_resumable_reasons=[HOSTILE])
    Shard.objects.filter(placement=placement, rank=0).update(path=HOSTILE, role="<script>alert")
    Finding.objects.create(
        placement=placement,
        code="digest_mismatch",
        severity="damage",
        path=HOSTILE,
        detail=HOSTILE,
        cure=HOSTILE,
        tensor=HOSTILE,
        source_kind="scan",
        source_id="scn_1",
        found_at=now,
    )
    drill = Drill.objects.create(
        kind="failover",
        run=run,
        cluster=cluster,
        state="finished",
        outcome="passed",
        seconds=3,
        phases={"read": 2.0, HOSTILE: 1.0},
        reason=HOSTILE,
        requested_by=HOSTILE,
        created_at=now,
        finished_at=now,
        placement=placement,
        facts={"boundaries": [{"at": now.isoformat(), "what": HOSTILE, "attempt": HOSTILE}]},
    )
    plan = DrillPlan.objects.create(
        run=run, name=HOSTILE, kind="reload", cron="0 3 * * *", created_by=HOSTILE, created_at=now
    )
    Alert.objects.create(
        cluster=cluster, rule="damage", subject_kind="x", subject_id="y", summary=HOSTILE, opened_at=now
    )
    log_activity(actor=HOSTILE, action="x", target_kind="y", target_id=HOSTILE[:64], detail={HOSTILE: HOSTILE})
    assert agent.pk
    lists = ["/", "/runs/", "/checkpoints/", "/drills/", "/plans/", "/nodes/", "/tiers/", "/alerts/", "/activity/"]
    return [
        *lists,
        "/clusters/",
        "/changes/",
        "/plans/grid/",
        f"/find/?q={quote(HOSTILE[:20])}",
        f"/runs/{run.pk}/",
        f"/checkpoints/{placement.checkpoint_id}/",
        f"/drills/{drill.pk}/",
        f"/plans/{plan.pk}/",
        f"/nodes/{node.pk}/",
        f"/analysis/?run={run.pk}",
        "/analysis/groups/?kind=reload",
        "/analysis/tiers/",
        f"/analysis/advice/?run={run.pk}&save_seconds={HOSTILE}",
        f"/analysis/what-if/?tier={placement.tier_id}&ranks={HOSTILE}",
        "/drills/start/",
        f"/checkpoints/?q={HOSTILE}",
    ]


def test_lists_keep_their_state_in_the_url_and_page_by_cursor(scene: Scene, signed_in: SignIn) -> None:
    rows = [
        Drill(
            kind="reload",
            run=scene.llama,
            cluster=scene.east,
            state="finished",
            outcome="cancelled",
            requested_by="olga",
            created_at=timezone.now() - timedelta(days=40, minutes=number),
        )
        for number in range(60)
    ]
    Drill.objects.bulk_create(rows)
    client = signed_in("viewer")
    html = client.get("/drills/?kind=reload&outcome=cancelled").content.decode()
    assert "50 of 60" in html
    link = re.search(r'href="(\?[^"]*cursor=[^"]*)" rel="next"', html)
    assert link is not None
    target = link.group(1).replace("&amp;", "&")
    assert "kind=reload" in target and "outcome=cancelled" in target
    rest = client.get("/drills/" + target).content.decode()
    assert "10 of 60" in rest and 'rel="prev"' in rest


def test_a_tampered_cursor_is_refused_with_a_sentence(scene: Scene, signed_in: SignIn) -> None:
    answer = signed_in("viewer").get("/drills/?cursor=nonsense")
    assert answer.status_code == 422
    assert b"start again without it" in answer.content


def test_pages_carry_the_strict_policy_and_only_charts_let_plotly_style_itself(scene: Scene, signed_in: SignIn) -> None:
    client = signed_in("viewer")
    for name, url in pages_of(scene).items():
        policy = client.get(url)["Content-Security-Policy"]
        assert "script-src" not in policy and "default-src 'self'" in policy, name
        assert ("style-src 'self' 'unsafe-inline'" in policy) == (b"plotly" in client.get(url).content), name


def test_what_was_not_measured_never_shows_as_zero(scene: Scene, signed_in: SignIn) -> None:
    html = signed_in("viewer").get(f"/drills/{scene.failed.pk}/").content.decode()
    assert "not measured" in html and "0.00 s" not in html
    assert not re.search(r">0(\.0+)? (s|B|B/s|GB/s)<", html)


def test_a_storage_only_drill_is_never_called_a_time_to_resume(scene: Scene, signed_in: SignIn) -> None:
    client = signed_in("viewer")
    html = client.get(f"/drills/{scene.herd.pk}/").content.decode()
    assert "Storage part only" in html and "time to reload" in html and "time to resume" not in html
    assert "time to resume" in client.get(f"/drills/{scene.failover.pk}/").content.decode()


def test_restored_but_late_and_not_restored_are_different_chips(scene: Scene, signed_in: SignIn) -> None:
    client = signed_in("viewer")
    late = client.get(f"/drills/{scene.reload.pk}/").content.decode()
    assert '<span class="chip ok">passed</span> <span class="chip warn">breached</span>' in late
    failed = client.get(f"/drills/{scene.failed.pk}/").content.decode()
    assert '<span class="chip bad">failed</span>' in failed and "breached" not in failed


def test_damage_is_named_down_to_the_byte_range_and_the_tensor(scene: Scene, signed_in: SignIn) -> None:
    html = signed_in("viewer").get(f"/checkpoints/{scene.damaged.checkpoint_id}/").content.decode()
    assert "rank-00003-of-00008.safetensors" in html
    assert "bytes 12,582,912 to 16,777,215" in html
    assert "layers.31.mlp.w2" in html
    assert "Copy this shard again from the nas" in html


def test_readiness_lists_the_worst_first_and_says_what_a_run_would_resume_from(scene: Scene, signed_in: SignIn) -> None:
    html = signed_in("viewer").get("/").content.decode()
    order = [html.index(f"<b>{run.name}</b>") for run in (scene.empty_run, scene.sft, scene.moe, scene.llama)]
    assert order == sorted(order)
    assert '<div class="n">1 of 4</div>' in html and '<div class="n">3</div>' in html
    assert "is damaged" in html and "layers.31.mlp.w2" not in html
    assert "layers.31.mlp.w2" in signed_in("viewer").get(f"/runs/{scene.moe.pk}/").content.decode()
    assert "47,500" in html
    opened = signed_in("viewer").get(f"/runs/{scene.moe.pk}/steps/48000/")
    assert opened["Location"] == f"/checkpoints/{scene.damaged.checkpoint_id}/"
    assert signed_in("viewer").get(f"/runs/{scene.moe.pk}/steps/3/").status_code == 404


def test_the_live_block_is_the_very_partial_of_its_page(scene: Scene, signed_in: SignIn) -> None:
    client = signed_in("viewer")
    for page, live in (
        (f"/drills/{scene.running.pk}/", f"/drills/{scene.running.pk}/live/"),
        (f"/audits/{scene.running_audit.pk}/", f"/audits/{scene.running_audit.pk}/live/"),
        ("/", "/live/readiness/"),
    ):
        whole, part = client.get(page).content.decode(), client.get(live).content.decode()
        assert "<html" not in part
        assert "data-live-seconds" in part
        strip = re.compile(r"<time.*?</time>|just now|\d+ (?:s|min|h)\b|\bago\b|\s+|\d+", re.S)
        assert strip.sub("", part) in strip.sub("", whole), page


def test_a_finished_drill_stops_asking(scene: Scene, signed_in: SignIn) -> None:
    html = signed_in("viewer").get(f"/drills/{scene.reload.pk}/").content.decode()
    assert 'data-live="' not in html and 'data-live-seconds="0"' in html


def test_error_pages_name_the_request(scene: Scene, signed_in: SignIn) -> None:
    answer = signed_in("viewer").get("/runs/run_that_is_not_there/", headers={"X-Request-Id": "req-42"})
    assert answer.status_code == 404
    assert b"req-42" in answer.content


def test_a_damaged_checkpoint_is_not_offered_for_a_drill(scene: Scene, signed_in: SignIn) -> None:
    client = signed_in("operator")
    damaged = client.get(f"/checkpoints/{scene.damaged.checkpoint_id}/").content.decode()
    good = client.get(f"/checkpoints/{scene.good.checkpoint_id}/").content.decode()
    assert "Drill this step" in good and "Drill this step" not in damaged


def test_a_failed_last_drill_shows_as_failed_among_the_runs(scene: Scene, signed_in: SignIn) -> None:
    html = signed_in("viewer").get("/runs/?q=run-13b-sft").content.decode()
    assert '<b class="late">failed</b>' in html


def test_a_comparison_with_nonsense_says_so_and_one_with_an_age_is_linked(scene: Scene, signed_in: SignIn) -> None:
    client, scan = signed_in("viewer"), scene.scans[1]
    nonsense = client.get(f"/scans/{scan.pk}/?since=banana")
    assert nonsense.status_code == 422 and "an age such as 24h" in nonsense.content.decode()
    assert client.get(f"/scans/{scan.pk}/?since=scn_elsewhere").status_code == 422
    since = client.get(f"/scans/{scan.pk}/?since=30m")
    assert since.status_code == 200 and "1 appeared, 1 changed, 0 vanished" in since.content.decode()
    assert 'href="?since=24h' not in since.content.decode(), "no scan is that old"
    first = scene.scans[0]
    first.finished_at = first.finished_at - timedelta(days=2)
    first.save()
    assert 'href="?since=24h#compare"' in client.get(f"/scans/{scan.pk}/").content.decode()


def test_a_step_in_two_formats_shows_the_layout_of_each_copy(scene: Scene, signed_in: SignIn) -> None:
    copy = scene.damaged
    other = factories.placement(
        copy.checkpoint.run, copy.tier, copy.checkpoint.step, shards=2, path=f"{copy.path}_universal",
        format="deepspeed_universal", world_size=2,
    )  # fmt: skip
    html = read(signed_in("viewer").get(f"/checkpoints/{copy.checkpoint_id}/"))
    assert f"{other.path}" in html and "2.00 kB as deepspeed_universal from 2 ranks, 2 files" in html
    rows = read(signed_in("viewer").get(f"/checkpoints/?run={copy.checkpoint.run_id}"))
    assert "as deepspeed_universal from 2 ranks, 2.00 kB" in rows


def test_a_copy_that_retention_took_is_no_alarm(scene: Scene, signed_in: SignIn) -> None:
    copy, client = scene.damaged, signed_in("viewer")
    Placement.objects.filter(pk=copy.pk).update(status="missing", rotated_away=True, damaged_at=None)
    url = f"/checkpoints/{copy.checkpoint_id}/"
    assert '<span class="chip none">rotated away</span>' in client.get(url).content.decode()
    Placement.objects.filter(pk=copy.pk).update(rotated_away=False)
    assert '<span class="chip bad">missing</span>' in client.get(url).content.decode()
