"""Audits on pages: policies by a form, what a sample proves, and evidence to print and to export."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from dashboard.scene import Scene
from django.test import Client
from django.utils import timezone
from rest import caller

from apps.accounts.models import Role
from apps.audits.models import AuditPolicy, Repair
from apps.core import units

SignIn = Callable[[str], Client]


def form(scene: Scene, **fields: Any) -> dict[str, Any]:
    return {
        "cluster": scene.east.pk, "name": "by-hand", "mode": "sample", "sample_percent": "2.5", "cron": "0 3 * * *",
        "time_zone": "Europe/Berlin", "missed": "skip", "where": "agents", "at_once": "3", "max_mb_per_second": "200",
        "newest": "4", "run": scene.moe.pk, "tier": scene.nvme.pk, "enabled": "on", **fields,
    }  # fmt: skip


def test_an_audit_policy_is_made_and_changed_by_a_form(scene: Scene, signed_in: SignIn) -> None:
    client = signed_in("operator")
    answer = client.post("/audits/policies/new/", form(scene))
    policy = AuditPolicy.objects.get(name="by-hand")
    assert (answer.status_code, answer["Location"]) == (302, f"/audits/policies/{policy.pk}/")
    assert (policy.sample_ratio, policy.max_bytes_per_second, policy.at_once) == (0.025, 200_000_000, 3)
    assert (policy.run, policy.tier, policy.newest, policy.next_at is not None) == (scene.moe, scene.nvme, 4, True)
    client.post(f"/audits/policies/{policy.pk}/", form(scene, run="", tier="", mode="full"))
    policy.refresh_from_db()
    assert (policy.run, policy.tier, policy.mode) == (None, None, "full")


def test_a_mistake_is_said_beside_its_field(scene: Scene, signed_in: SignIn) -> None:
    for fields, words in (({"cron": "often"}, b"five fields"), ({"name": "No Name"}, b"a-z, 0-9")):
        answer = signed_in("operator").post("/audits/policies/new/", form(scene, **fields))
        assert answer.status_code == 422 and words in answer.content
        url = f"/audits/policies/{scene.audit_policy.pk}/"
        assert words in signed_in("operator").post(url, form(scene, **fields)).content


def test_the_page_of_a_policy_tells_of_rounds_and_what_they_left_out(scene: Scene, signed_in: SignIn) -> None:
    html = signed_in("viewer").get(f"/audits/policies/{scene.audit_policy.pk}/").content.decode()
    assert "3: it is not sealed" in html and "Missed: nothing was running" in html and "Audit now" not in html
    assert "10.0 % of the chunks, each time others" in html


def test_a_sample_says_what_it_proves_and_never_more(scene: Scene, signed_in: SignIn) -> None:
    html = signed_in("viewer").get(f"/audits/{scene.sampled_audit.pk}/").content.decode()
    assert "if one chunk were damaged, this run would have met it with a probability of 10.1 %" in html
    assert "turn 3 of a rotation of 10" in html and "proves nothing" in html


def test_the_evidence_is_printed_and_exported(scene: Scene, signed_in: SignIn) -> None:
    client = signed_in("viewer")
    paper = client.get(f"/audits/{scene.sampled_audit.pk}/print/").content.decode()
    assert "ab" * 32 in paper and "cd" * 16 in paper and "ef" * 16 in paper and "0.1.0" in paper
    answer = client.get(f"/audits/{scene.sampled_audit.pk}/export.json")
    assert answer["Content-Disposition"] == f'attachment; filename="{scene.sampled_audit.pk}.json"'
    body = json.loads(answer.content)
    assert body["coverage"]["covered_chunks"] == 309 and body["evidence"]["node"] == scene.nodes[0].name
    assert body["sample"] == {"ratio": 0.1, "seed": 7, "turn": 2} and "probability" in body["proves"]


def test_the_audits_of_a_policy_and_of_a_round_are_listed(scene: Scene, signed_in: SignIn) -> None:
    client = signed_in("viewer")
    for query in (f"policy={scene.audit_policy.pk}", f"round={scene.sampled_audit.round_id}"):
        html = client.get(f"/audits/?{query}").content.decode()
        assert scene.sampled_audit.pk in html and scene.audit.pk not in html


def test_the_list_of_repairs_says_who_had_what_rewritten_from_where_and_whether_it_was_proven(
    scene: Scene, signed_in: SignIn
) -> None:
    client = signed_in("viewer")
    html = client.get("/repairs/").content.decode()
    assert (
        scene.repair.pk in html
        and "not yet" in html
        and "olga" in html
        and units.size(scene.repair.written_bytes) in html
    )
    assert scene.good.tier.name in html and "every byte, as sealed" not in html
    Repair.objects.update(state="done", finished_at=timezone.now())
    assert "every byte, as sealed" in client.get("/repairs/?state=done").content.decode()
    assert "No repair matches" in client.get("/repairs/?state=failed").content.decode()
    row = caller(Role.VIEWER).get("repairs").json()["items"][0]
    assert row["verified_after"] is True and row["source_tier_name"] == scene.good.tier.name
    assert row["tier_name"] == scene.damaged.tier.name


def test_a_repair_is_shown_and_its_start_says_why_it_cannot_be_made(scene: Scene, signed_in: SignIn) -> None:
    html = signed_in("viewer").get(f"/repairs/{scene.repair.pk}/").content.decode()
    assert "Bad chunks are overwritten" in html and "Cancel" not in html
    url = f"/checkpoints/{scene.damaged.checkpoint_id}/repair/?placement={scene.damaged.pk}"
    html = signed_in("operator").get(url).content.decode()
    assert "cannot be repaired now" in html and "never sealed" in html
    assert signed_in("operator").post(url.partition("?")[0], {"placement": scene.damaged.pk}).status_code == 422
    assert signed_in("stranger").get(url).status_code == 404
