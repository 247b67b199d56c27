"""First steps on the pages: each with its form or command, its tick, and nothing lost on bad input."""

from __future__ import annotations

import html as entities
import json
import re
import shlex
from typing import Any

import factories
import pytest
from django.test import Client

from apps.accounts.models import Role
from apps.drills.models import Drill
from apps.fleet.models import Agent, Cluster, ClusterGrant, JoinToken
from apps.storage.models import StorageTier


@pytest.fixture
def admin(db: None, client: Client) -> Client:
    client.force_login(factories.user("ada", Role.ADMIN))
    return client


def commands(html: str) -> dict[str, list[str]]:
    """Each step's command as a shell would split it."""
    found = re.findall(r'<code id="command-(\w+)">(.*?)</code>', html)
    return {step: shlex.split(entities.unescape(text)) for step, text in found}


def test_an_empty_installation_shows_the_steps_instead_of_an_empty_list(admin: Client) -> None:
    html = admin.get("/").content.decode()
    assert "Now: Name the cluster" in html and "0 of 7 done" in html and "<table" not in html
    assert re.findall(r'<li class="(\w+)"', html) == ["next", *["later"] * 6]


def test_the_pages_forms_lead_from_nothing_to_a_token_that_a_node_can_join_with(admin: Client) -> None:
    assert admin.post("/first-steps/", {"do": "cluster", "name": "east"})["Location"] == "/first-steps/"
    cluster = Cluster.objects.get()
    tier = {"do": "tier", "cluster": cluster.pk, "name": "fast", "kind": "parallel_fs", "uri": "/mnt/ckpt"}
    admin.post("/first-steps/", tier)
    assert StorageTier.objects.get().uri == "/mnt/ckpt"
    answer = admin.post("/first-steps/", {"do": "join", "cluster": cluster.pk})
    html = answer.content.decode()
    token = JoinToken.objects.get()
    assert (token.max_uses, answer["Cache-Control"]) == (1, "no-store")
    command = entities.unescape(re.findall(r'id="join-command">(.*?)</code>', html)[0])
    assert "muster agent join --server http://testserver --root /mnt/ckpt && muster agent run" in command
    assert re.match(r"MUSTER_JOIN_TOKEN=mjt_\S+ ", command)
    # the page that shows a secret once is never loaded anew by its own polling
    assert f'data-live="/live/first-steps/?cluster={cluster.pk}"' in html and "&amp;next=" not in html


def test_each_step_has_the_very_request_that_does_it(admin: Client) -> None:
    cluster = factories.cluster("east")
    tier = factories.tier(cluster)
    factories.agent(factories.node(cluster))
    found = commands(admin.get("/first-steps/").content.decode())
    assert set(found) == {"scan"}, "what is done needs no command, and what comes later has nothing to name yet"
    scan = found["scan"]
    assert scan[:5] == ["curl", "-sS", "-X", "POST", "http://testserver/api/v1/scans/"]
    assert json.loads(scan[-1]) == {"tier": tier.pk}
    secret = factories.token(factories.user("olga"))
    answer = Client().post(
        "/api/v1/scans/", scan[-1], content_type="application/json", headers={"Authorization": f"Bearer {secret}"}
    )
    assert answer.status_code in (201, 202), answer.content


def test_bad_input_is_named_beside_its_field_and_what_was_typed_stays(admin: Client) -> None:
    cluster = factories.cluster("east")
    body = {"do": "tier", "cluster": cluster.pk, "name": "fast", "kind": "parallel_fs", "uri": "relative/path"}
    answer = admin.post("/first-steps/", body)
    html = answer.content.decode()
    assert answer.status_code == 422 and 'value="relative/path"' in html and "errorlist" in html
    assert not StorageTier.objects.exists() and "&amp;next=" not in html
    again = admin.post("/first-steps/", {"do": "cluster", "name": "east"})
    assert again.status_code == 422 and b"already a cluster" in again.content
    assert admin.post("/first-steps/", {"do": "dance"}).status_code == 422


def test_the_ticks_load_the_page_anew_only_when_another_step_is_next(admin: Client) -> None:
    cluster = factories.cluster()
    assert b'data-live-seconds="3"' in admin.get(f"/live/first-steps/?cluster={cluster.pk}&next=tier").content
    factories.tier(cluster)
    assert b'data-live-seconds="0"' in admin.get(f"/live/first-steps/?cluster={cluster.pk}&next=tier").content
    assert b'data-live-seconds="3"' in admin.get(f"/live/first-steps/?cluster={cluster.pk}").content


def test_who_may_not_do_a_step_is_told_who_does_and_refused_when_trying(db: None, client: Client) -> None:
    cluster = factories.cluster()
    client.force_login(factories.user("vera", Role.VIEWER))
    html = client.get("/first-steps/").content.decode()
    assert "An admin does this." in html and "<form" not in html.split('class="firststeps"')[1].split("</main>")[0]
    for do in ("cluster", "tier", "join"):
        body: dict[str, Any] = {"do": do, "cluster": cluster.pk, "name": "x", "kind": "nas", "uri": "/x"}
        assert client.post("/first-steps/", body).status_code == 403, do
    assert (Cluster.objects.count(), StorageTier.objects.count(), JoinToken.objects.count()) == (1, 0, 0)


def test_a_cluster_out_of_sight_has_no_steps(db: None, client: Client) -> None:
    mine, theirs = factories.cluster("mine"), factories.cluster("theirs")
    user = factories.user("gustav", Role.NONE)
    ClusterGrant.objects.create(user=user, cluster=mine, role=Role.ADMIN)
    client.force_login(user)
    assert client.get(f"/first-steps/?cluster={theirs.pk}").status_code == 404
    assert client.post("/first-steps/", {"do": "join", "cluster": theirs.pk}).status_code == 404
    assert b"of mine" in client.get("/first-steps/").content


def test_once_runs_are_known_one_line_stays_until_all_is_done(admin: Client) -> None:
    cluster = factories.cluster("east")
    factories.agent(factories.node(cluster))
    run = factories.run(cluster)
    copy = factories.placement(run, factories.tier(cluster), 10)
    html = admin.get("/").content.decode()
    assert "First steps of east: 4 of 7 done." in html and "Next: Seal the newest checkpoint." in html
    copy.evidence.create(rung="verified", source_kind="audit", source_id="a", fingerprint="f", at=copy.last_seen_at)
    fields: dict[str, Any] = {"kind": "reload", "state": "finished", "outcome": "passed", "requested_by": "x"}
    Drill.objects.create(
        cluster=cluster, run=run, created_at=copy.last_seen_at, finished_at=copy.last_seen_at, **fields
    )
    assert b"First steps of" not in admin.get("/").content
    page = admin.get("/first-steps/").content.decode()
    assert "All steps are done on east." in page and "data-live=" not in page


def test_an_agent_that_waits_for_approval_is_said(admin: Client) -> None:
    cluster = factories.cluster()
    factories.tier(cluster)
    factories.agent(factories.node(cluster), state=Agent.State.PENDING)
    html = admin.get("/first-steps/").content.decode()
    assert html.count("waits for an admin&#x27;s approval") == 2 and 'class="waiting"' in html
