"""Readiness, the page for the wall: each figure leads to its evidence, and what is missing to what would mend it."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import factories
import pytest
from dashboard.scene import Scene
from dashboard.test_pages import many_checkpoints
from django.test import Client
from django.utils import timezone

from apps.accounts.models import Role
from apps.audits.models import Audit
from apps.checkpoints.models import TrainingRun, TrustEvidence
from apps.core import heartbeats
from apps.drills.models import Drill

SignIn = Callable[[str], Client]


def row_of(html: str, run: TrainingRun) -> str:
    rows = html.replace("\N{NO-BREAK SPACE}", " ").split("<tr data-row>")[1:]
    return next(row for row in rows if f'href="/runs/{run.pk}/"' in row)


def test_every_figure_of_the_sentence_leads_to_its_evidence(scene: Scene, signed_in: SignIn) -> None:
    TrustEvidence.objects.filter(placement=scene.good, rung="resumed").update(source_kind="audit", source_id="aud_9")
    row = row_of(signed_in("viewer").get("/").content.decode(), scene.llama)
    found = dict(re.findall(r'<a href="([^"]*)"[^>]*>([^<]+)</a>', row))
    assert found[f"/checkpoints/{scene.good.checkpoint_id}/"] == "step 12,400"
    assert found["/audits/aud_9/"] == "resumed 14 min ago"
    assert found[f"/analysis/?run={scene.llama.pk}"].startswith("predicted back in ")
    assert found[f"/clusters/{scene.east.pk}/"].startswith("about ")
    assert re.search(rf'<a href="/tiers/{scene.nvme.pk}/">nvme</a>', row)
    assert re.search(r'<a href="/incidents/inc_[a-z0-9]+/">[^<]* measured ', row), "the newest restart was a real one"


def test_what_was_not_measured_is_said_and_set_apart(scene: Scene, signed_in: SignIn) -> None:
    row = row_of(signed_in("viewer").get("/").content.decode(), scene.moe)
    assert 'class="unmeasured">lost work not measured</a>' in row


def test_an_operator_does_the_next_thing_from_the_page_and_a_viewer_is_told_it(scene: Scene, signed_in: SignIn) -> None:
    row = row_of(signed_in("operator").get("/").content.decode(), scene.sft)
    action = re.search(
        r'form="next-verify" formaction="([^"]*)" name="placement" value="([^"]*)">Verify step 3,050', row
    )
    assert action
    answer = signed_in("operator").post(action[1], {"placement": action[2], "mode": "verify"})
    # its copy has no manifest: the service says so, and the page it came from shows the reason
    assert answer.status_code == 302
    told = row_of(signed_in("viewer").get("/").content.decode(), scene.sft)
    assert "<button" not in told and "Verify step 3,050: for an operator" in told


def test_sealing_from_the_page_starts_an_audit(db: None, client: Client) -> None:
    cluster = factories.cluster()
    factories.agent(factories.node(cluster))
    copy = factories.placement(factories.run(cluster), factories.tier(cluster), 10)
    client.force_login(factories.user())
    html = client.get("/").content.decode()
    assert f"/checkpoints/{copy.checkpoint_id}/audit/" in html and "Seal step 10" in html
    client.post(f"/checkpoints/{copy.checkpoint_id}/audit/", {"placement": copy.pk, "mode": "seal"})
    assert Audit.objects.get().placement == copy


def test_runs_that_were_not_drilled_lately_are_named_on_top(scene: Scene, signed_in: SignIn, settings: Any) -> None:
    Drill.objects.filter(run=scene.moe).update(finished_at=timezone.now() - timedelta(days=9))
    html = signed_in("viewer").get("/").content.decode()
    banner = re.sub("<[^>]*>", "", html[html.index("Not drilled in 7 days") : html.index('class="fleet"')])
    assert scene.empty_run.name in banner and "(never)" in banner
    assert scene.moe.name in banner and "(9 d ago)" in banner and scene.llama.name not in banner
    settings.DRILL_DAYS = 0
    assert "Not drilled in" not in signed_in("viewer").get("/").content.decode()


def test_money_shows_only_where_a_price_is_given_and_the_page_says_where(scene: Scene, signed_in: SignIn) -> None:
    html = signed_in("viewer").get("/").content.decode()
    assert "in GPU time" in html and "No cost is shown" not in html
    scene.east.gpu_hour_cost = None
    scene.east.save()
    html = signed_in("viewer").get("/").content.decode()
    assert "in GPU time" not in html
    assert f'No cost is shown for runs on <a href="/clusters/{scene.east.pk}/#cost">h100-east</a>' in html


def test_the_wall_has_no_navigation_no_forms_and_the_same_sentences(scene: Scene, signed_in: SignIn) -> None:
    client = signed_in("admin")
    page, wall = client.get("/").content.decode(), client.get("/?wall=1").content.decode()
    live = client.get("/live/readiness/?wall=1").content.decode()
    assert "<nav" not in wall and "<form" not in wall and 'data-live="/live/readiness/?wall=1"' in wall
    assert '<noscript><meta http-equiv="refresh"' in wall
    sentence = re.compile(r"predicted back in[^<]*")
    assert sentence.findall(page) and set(sentence.findall(page)) <= set(sentence.findall(wall))
    assert "<html" not in live and 'class="wallruns"' in live


@pytest.mark.slow
def test_two_hundred_runs_on_the_page_and_the_wall_hold_the_budgets(
    db: None, client: Client, django_assert_max_num_queries: Any
) -> None:
    many_checkpoints(runs=200, steps=1, shards=1)
    heartbeats.beat(heartbeats.SWEEPS)
    for who, role in (("vera", Role.VIEWER), ("olga", Role.OPERATOR)):
        client.force_login(factories.user(who, role))
        for url in ("/", "/?page=4", "/?wall=1"):
            with django_assert_max_num_queries(12, info=url):
                answer = client.get(url)
            assert len(answer.content) <= 200_000, (who, url, len(answer.content))
            shown = {"/": 60, "/?page=4": 20}.get(url, 0)
            assert answer.content.count(b"<tr data-row>") == shown


def test_every_run_is_on_one_page_and_a_page_that_is_none_is_the_nearest(db: None, client: Client) -> None:
    cluster = factories.cluster()
    names = {factories.run(cluster, f"run-{number:03d}").name for number in range(70)}
    client.force_login(factories.user("vera", Role.VIEWER))
    pages = [client.get(f"/?page={page}").content.decode() for page in (1, 2)]
    found = [re.findall(r"<b>(run-\d+)</b>", html) for html in pages]
    assert [len(part) for part in found] == [60, 10] and {*found[0], *found[1]} == names
    assert 'data-live="/live/readiness/?page=2"' in pages[1] and 'rel="prev"' in pages[1]
    for wrong in ("99", "0", "-1", "x", "9" * 40):
        assert client.get(f"/?page={wrong}").status_code == 200, wrong
