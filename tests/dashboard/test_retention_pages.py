"""Policies and transfers on pages: forms that only plan at first, plans that say why, buttons that act."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dashboard.scene import Scene
from django.test import Client

from apps.checkpoints.models import Placement
from apps.transfers.models import RetentionPolicy, Transfer

SignIn = Callable[[str], Client]
FORM = {
    "name": "by-hand",
    "keep_newest": "3",
    "high_water_percent": "85",
    "low_water_percent": "60",
    "exempt_labels": "release, paper",
    "cron": "0 3 * * *",
    "time_zone": "Europe/Berlin",
    "where": "agents",
    "proof": "read_back",
    "max_mb_per_second": "200",
    "enabled": "on",
}


def form(scene: Scene, **fields: Any) -> dict[str, Any]:
    return {**FORM, "hot_tier": scene.nvme.pk, "cold_tier": scene.nas.pk, "run": scene.moe.pk, **fields}


def test_a_policy_is_made_by_a_form_and_shows_its_plan(scene: Scene, signed_in: SignIn) -> None:
    client = signed_in("operator")
    answer = client.post("/policies/new/", form(scene))
    policy = RetentionPolicy.objects.get(name="by-hand")
    assert (answer.status_code, answer["Location"]) == (302, f"/policies/{policy.pk}/plan/")
    assert (policy.plan_only, policy.high_water_ratio, policy.max_bytes_per_second) == (True, 0.85, 200_000_000)
    assert (policy.exempt_labels, policy.run) == (["release", "paper"], scene.moe)
    html = client.get(f"/policies/{policy.pk}/plan/").content.decode()
    assert "it is corrupt; only what is complete" in html and "The policy only plans" in html


def test_a_mistake_is_said_beside_its_field(scene: Scene, signed_in: SignIn) -> None:
    answer = signed_in("operator").post("/policies/new/", form(scene, low_water_percent="90"))
    assert answer.status_code == 422 and b"low mark lies above 0 and not above the high one" in answer.content
    answer = signed_in("operator").post("/policies/new/", form(scene, cron="often"))
    assert answer.status_code == 422 and b"five fields" in answer.content


def test_a_policy_is_changed_told_to_act_and_deleted(scene: Scene, signed_in: SignIn) -> None:
    client, pk = signed_in("operator"), scene.policy.pk
    assert client.post(f"/policies/{pk}/", form(scene, name="keep-newest", keep_newest="2")).status_code == 302
    assert client.post(f"/policies/{pk}/act/", {"plan_only": "0"}).status_code == 302
    scene.policy.refresh_from_db()
    assert (scene.policy.keep_newest, scene.policy.plan_only) == (2, False)
    assert client.get(f"/policies/{pk}/delete/").status_code == 200
    assert client.post(f"/policies/{pk}/delete/").status_code == 302
    assert not RetentionPolicy.objects.filter(pk=pk).exists() and Transfer.objects.count() == 3


def test_a_transfer_is_paused_resumed_and_cancelled_by_buttons(scene: Scene, signed_in: SignIn) -> None:
    client, transfer = signed_in("operator"), scene.transfers[0]
    for verb, state in (("pause", "paused"), ("resume", "copying"), ("cancel", "cancelled")):
        assert client.post(f"/transfers/{transfer.pk}/{verb}/").status_code == 302
        transfer.refresh_from_db()
        assert transfer.state == state
    assert client.post(f"/transfers/{transfer.pk}/explode/").status_code == 404


def test_viewers_read_and_change_nothing(scene: Scene, signed_in: SignIn) -> None:
    client = signed_in("viewer")
    for path in (
        f"policies/{scene.policy.pk}/act",
        f"policies/{scene.policy.pk}/run",
        f"transfers/{scene.transfers[0].pk}/cancel",
    ):
        assert client.post(f"/{path}/").status_code == 403, path
    assert b"Let it act" not in client.get(f"/policies/{scene.policy.pk}/").content
    html = client.get(f"/transfers/{scene.transfers[1].pk}/").content.decode()
    assert "there is no space left" in html and "Tried again at" in html and "Resume" not in html


def test_a_copy_is_moved_from_its_checkpoints_page_in_two_steps(scene: Scene, signed_in: SignIn, settings: Any) -> None:
    settings.WORKER_ROOTS = ["/"]
    client = signed_in("operator")
    alone = Placement.objects.filter(tier=scene.nvme, status="complete", transfers_from=None)
    good = alone.exclude(checkpoint__placements__tier=scene.nas).first()
    assert good is not None
    place = f"/checkpoints/{good.checkpoint_id}/move/?copy={good.pk}"
    assert place.replace("&", "&amp;") in client.get(f"/checkpoints/{good.checkpoint_id}/").content.decode()
    html = client.get(place).content.decode()
    assert "only while no rule speaks against it" in html and "nas (slower than nvme)" in html
    assert not Transfer.objects.filter(source=good).exists()
    wrong = client.post(place, {"kind": "copy", "tier": "", "where": "agents", "proof": "read_back"})
    assert wrong.status_code == 422 and b"Name the tier" in wrong.content
    answer = client.post(
        place,
        {"kind": "copy", "tier": scene.nas.pk, "where": "as_reached", "proof": "checksum", "max_mb_per_second": "200"},
    )
    made = Transfer.objects.get(source=good)
    assert (answer.status_code, answer["Location"]) == (302, f"/transfers/{made.pk}/")
    assert (made.kind, made.proof, made.max_bytes_per_second) == ("copy", "checksum", 200_000_000)


def test_a_checkpoint_is_pinned_and_labelled_on_its_page(scene: Scene, signed_in: SignIn) -> None:
    client, pk = signed_in("operator"), scene.good.checkpoint_id
    assert client.post(f"/checkpoints/{pk}/pin/", {"reason": "for the paper"}).status_code == 302
    assert client.post(f"/checkpoints/{pk}/labels/", {"labels": "release, paper"}).status_code == 302
    html = client.get(f"/checkpoints/{pk}/").content.decode()
    assert "for the paper" in html and "<code>paper</code>, <code>release</code>" in html
    assert client.post(f"/checkpoints/{pk}/pin/", {"unpin": "1"}).status_code == 302
    assert "Not pinned" in client.get(f"/checkpoints/{pk}/").content.decode()
    viewer = signed_in("viewer")
    assert viewer.post(f"/checkpoints/{pk}/pin/", {"reason": "x"}).status_code == 403
    assert viewer.get(f"/checkpoints/{pk}/move/?copy={scene.good.pk}").status_code == 403
