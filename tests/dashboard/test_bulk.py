"""Many rows at once: what was ticked and what matches kept apart, a preview, and a result for each row."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import factories
import pytest
from dashboard.scene import Scene
from django.test import Client
from django.utils import timezone

from apps.accounts.models import ActivityEntry, Role
from apps.alerts.models import Alert
from apps.audits.models import Audit
from apps.core.models import BulkItem, BulkOperation
from apps.dashboard.bulk import services
from apps.dashboard.bulk.verbs import VERBS
from apps.drills.models import Drill
from apps.fleet.models import ClusterGrant
from apps.transfers.models import CheckpointLabel, CheckpointPin

SignIn = Callable[[str], Client]
CANCEL = {"verb": "cancel"}


def waiting(scene: Scene, number: int, **fields: Any) -> list[Drill]:
    values: dict[str, Any] = {"run": scene.llama, "cluster": scene.east, "kind": "herd", "requested_by": "seeded"}
    at = timezone.now() - timedelta(days=50)
    return Drill.objects.bulk_create(
        Drill(created_at=at - timedelta(minutes=one), **{**values, **fields}) for one in range(number)
    )


def confirm(client: Client, html: str, **typed: str) -> Any:
    """Send the preview's own form."""
    form = html.split('action="/bulk/')[1]
    action = "/bulk/" + form.split('"')[0]
    data: dict[str, Any] = {}
    for name, value in re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', form.split("</form>")[0]):
        data.setdefault(name, []).append(value.replace("&amp;", "&"))
    return client.post(action, {**data, **typed})


def test_ticked_rows_are_previewed_then_done_one_by_one(scene: Scene, signed_in: SignIn) -> None:
    client, drills = signed_in("operator"), waiting(scene, 3)
    ticked = [drill.pk for drill in drills[:2]]
    preview = client.post("/bulk/drills/", {**CANCEL, "scope": "ticked", "id": ticked, "query": "kind=herd"})
    html = preview.content.decode()
    assert "Cancel 2 drills?" in html and "The ones that you ticked." in html
    assert (
        not BulkOperation.objects.filter(actor="olga").exists()
        and not Drill.objects.filter(outcome="cancelled", kind="herd").exists()
    )
    answer = confirm(client, html)
    operation = BulkOperation.objects.latest("created_at")
    assert answer.status_code == 302 and answer["Location"] == f"/operations/{operation.pk}/"
    services.advance(operation.pk)
    operation.refresh_from_db()
    assert (operation.state, operation.done_count, operation.refused_count) == ("finished", 2, 0)
    assert set(
        Drill.objects.filter(requested_by="seeded")
        .exclude(cancel_requested_at=None, outcome="")
        .values_list("pk", flat=True)
    ) == set(ticked)
    page = client.get(f"/operations/{operation.pk}/").content.decode()
    assert "Done:</b> 2 done, 0 refused" in page and page.count("being cancelled") == 2
    assert ActivityEntry.objects.filter(action="bulk.cancel", target_id=operation.pk).exists()


def test_all_that_match_are_counted_and_above_a_hundred_their_number_is_typed(scene: Scene, signed_in: SignIn) -> None:
    client = signed_in("operator")
    waiting(scene, 101)
    data = {**CANCEL, "scope": "matching", "query": "kind=herd&until=40d", "id": ["not-one-of-them"]}
    html = client.post("/bulk/drills/", data).content.decode()
    assert "Cancel 101 drills?" in html and "and 81 more" in html and "Type 101 to go on" in html
    for wrong in ("", "100", "all"):
        answer = confirm(client, html, typed=wrong)
        assert answer.status_code == 422 and b"Type 101 to go on: so many rows are meant." in answer.content
    assert not BulkOperation.objects.filter(actor="olga").exists()
    assert confirm(client, html, typed="101").status_code == 302
    operation = BulkOperation.objects.latest("created_at")
    assert operation.query == "kind=herd&until=40d" and operation.total_count == 101
    services.advance(operation.pk)
    assert Drill.objects.filter(requested_by="seeded", outcome="cancelled").count() == 101


def test_what_changed_since_the_preview_begins_nothing(scene: Scene, signed_in: SignIn) -> None:
    client = signed_in("operator")
    waiting(scene, 2)
    html = client.post("/bulk/drills/", {**CANCEL, "scope": "matching", "query": "until=40d"}).content.decode()
    waiting(scene, 1)
    answer = confirm(client, html)
    assert answer.status_code == 422 and b"3 rows match now, not 2" in answer.content
    assert not BulkOperation.objects.filter(actor="olga").exists()


def test_each_refusal_is_its_rows_result_and_stops_no_other(scene: Scene, signed_in: SignIn) -> None:
    client = signed_in("operator")
    open_ones = list(Alert.objects.filter(state="open"))
    gone = Alert.objects.create(
        cluster=scene.east, rule="damage", subject_kind="x", subject_id="z", summary="gone", state="resolved",
        opened_at=timezone.now(), resolved_at=timezone.now(),
    )  # fmt: skip
    ticked = [alert.pk for alert in (*open_ones, gone)]
    html = client.post("/bulk/alerts/", {"verb": "acknowledge", "scope": "ticked", "id": ticked}).content.decode()
    confirm(client, html)
    operation = BulkOperation.objects.latest("created_at")
    services.advance(operation.pk)
    operation.refresh_from_db()
    assert (operation.done_count, operation.refused_count) == (len(open_ones), 1)
    refused = BulkItem.objects.get(operation=operation, outcome="refused")
    assert refused.target_id == gone.pk and "already been resolved" in refused.detail
    shown = client.get(f"/operations/{operation.pk}/?outcome=refused").content.decode()
    assert shown.count("<tr data-row") == 1 and "already been resolved" in shown


def test_checkpoints_are_pinned_labelled_and_audited_together(scene: Scene, signed_in: SignIn) -> None:
    client = signed_in("operator")
    ids = [scene.good.checkpoint_id, scene.damaged.checkpoint_id]

    def do(verb: str, **fields: str) -> BulkOperation:
        preview = client.post("/bulk/checkpoints/", {"verb": verb, "scope": "ticked", "id": ids})
        assert confirm(client, preview.content.decode(), **fields).status_code == 302
        operation = BulkOperation.objects.latest("created_at")
        services.advance(operation.pk)
        operation.refresh_from_db()
        return operation

    assert do("pin", reason="for the paper").done_count == 2
    assert set(CheckpointPin.objects.filter(reason="for the paper").values_list("checkpoint", flat=True)) == set(ids)
    assert do("label", labels="release paper").done_count == 2
    assert CheckpointLabel.objects.filter(checkpoint=ids[0], label__in=["release", "paper"]).count() == 2
    verified = do("verify")
    assert verified.done_count + verified.refused_count == 2
    for item in verified.items.filter(outcome="done"):
        assert Audit.objects.filter(placement__checkpoint=item.target_id, mode="verify", requested_by="olga").exists()
    for item in verified.items.filter(outcome="refused"):
        assert "seal" in item.detail or "nothing to read" in item.detail or "not" in item.detail


def test_a_field_that_a_verb_needs_is_asked_for(scene: Scene, signed_in: SignIn) -> None:
    client = signed_in("operator")
    data = {"verb": "pin", "scope": "ticked", "id": [scene.good.checkpoint_id]}
    html = client.post("/bulk/checkpoints/", data).content.decode()
    assert "Why they are to be kept" in html
    assert confirm(client, html, reason=" ").status_code == 422


def test_nothing_ticked_and_an_unknown_verb_say_so_and_return_to_the_list(scene: Scene, signed_in: SignIn) -> None:
    client = signed_in("operator")
    for data, words in (({**CANCEL, "scope": "ticked"}, "Nothing is ticked."), ({"verb": "explode"}, "one can cancel")):
        answer = client.post("/bulk/drills/", {**data, "next": "/drills/?kind=herd"})
        assert answer["Location"] == "/drills/?kind=herd"
        assert words in client.get("/drills/?kind=herd").content.decode()


def test_rows_where_the_role_does_not_reach_stay_as_they_are(scene: Scene, signed_in: SignIn) -> None:
    here, there = waiting(scene, 1)[0], waiting(scene, 1, run=scene.sft, cluster=scene.lab)[0]
    user = factories.user("eve", Role.VIEWER)
    ClusterGrant.objects.create(user=user, cluster=scene.east, role=Role.OPERATOR)
    client = Client()
    client.force_login(user)
    html = client.post("/bulk/drills/", {**CANCEL, "scope": "ticked", "id": [here.pk, there.pk]}).content.decode()
    assert "1 of them lie on clusters where your role does not allow it" in html
    confirm(client, html)
    operation = BulkOperation.objects.latest("created_at")
    services.advance(operation.pk)
    there.refresh_from_db()
    assert there.outcome == "" and there.cancel_requested_at is None
    assert operation.items.get(target_id=there.pk).outcome == "refused"
    viewer = signed_in("viewer")
    assert viewer.post("/bulk/drills/", {**CANCEL, "scope": "ticked", "id": [here.pk]}).status_code == 403
    assert b'name="verb"' not in viewer.get("/drills/").content
    assert (
        signed_in("stranger").post("/bulk/drills/", {**CANCEL, "scope": "ticked", "id": [here.pk]}).status_code == 302
    )


def test_an_operation_is_its_askers_and_the_admins(scene: Scene, signed_in: SignIn) -> None:
    waiting(scene, 1)
    operator = signed_in("operator")
    confirm(
        operator, operator.post("/bulk/drills/", {**CANCEL, "scope": "matching", "query": "until=40d"}).content.decode()
    )
    operation = BulkOperation.objects.latest("created_at")
    for who, status in (("operator", 200), ("admin", 200), ("viewer", 404), ("stranger", 404)):
        assert signed_in(who).get(f"/operations/{operation.pk}/").status_code == status, who
        assert signed_in(who).get(f"/operations/{operation.pk}/live/").status_code == status, who


def test_a_stopped_operation_leaves_what_waits(scene: Scene, signed_in: SignIn, monkeypatch: Any) -> None:
    waiting(scene, 5)
    client = signed_in("operator")
    confirm(
        client, client.post("/bulk/drills/", {**CANCEL, "scope": "matching", "query": "until=40d"}).content.decode()
    )
    operation = BulkOperation.objects.latest("created_at")
    monkeypatch.setattr(services, "SLICE_SECONDS", 0.0)
    services.advance(operation.pk)
    assert operation.pk in services.due()
    client.post(f"/operations/{operation.pk}/cancel/")
    services.advance(operation.pk)
    operation.refresh_from_db()
    assert operation.state == "cancelled" and operation.done_count < 5
    assert BulkItem.objects.filter(operation=operation, outcome="").exists()
    assert services.due() == []
    assert b"left as they were" in client.get(f"/operations/{operation.pk}/").content


def test_turns_of_a_killed_worker_go_on_where_it_was(scene: Scene, signed_in: SignIn, monkeypatch: Any) -> None:
    waiting(scene, 4)
    client = signed_in("operator")
    confirm(
        client, client.post("/bulk/drills/", {**CANCEL, "scope": "matching", "query": "until=40d"}).content.decode()
    )
    operation = BulkOperation.objects.latest("created_at")
    done: list[str] = []
    verb = VERBS["drills", "cancel"]

    def dies(row: Any, parameters: Any, actor: str) -> str:
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append(row.pk)
        return verb.act(row, parameters, actor)

    monkeypatch.setattr(services, "find_verb", lambda *_names: _with(verb, dies))
    with pytest.raises(KeyboardInterrupt):
        services.advance(operation.pk)
    monkeypatch.undo()
    services.advance(operation.pk)
    operation.refresh_from_db()
    assert (operation.state, operation.done_count) == ("finished", 4)


def _with(verb: Any, act: Any) -> Any:
    from dataclasses import replace

    return replace(verb, act=act)


def test_the_api_previews_without_a_count_and_begins_with_the_right_one(scene: Scene, client: Client) -> None:
    waiting(scene, 2)
    headers = {"Authorization": f"Bearer {factories.token(scene.users['operator'])}"}

    def post(**body: Any) -> Any:
        body = {"list": "drills", "verb": "cancel", **body}
        return client.post("/api/v1/bulk-operations", body, content_type="application/json", headers=headers)

    told = post(query="until=40d")
    assert told.status_code == 200 and (told.json()["id"], told.json()["total_count"]) == (None, 2)
    assert not BulkOperation.objects.filter(actor="olga").exists()
    assert post(query="until=40d", expected_count=3).status_code == 409
    assert post(query="until=40d", ids=["x"]).status_code == 400
    begun = post(query="until=40d", expected_count=2)
    assert begun.status_code == 201
    services.advance(begun.json()["id"])
    items = client.get(f"/api/v1/bulk-operations/{begun.json()['id']}/items", headers=headers).json()["items"]
    assert [item["outcome"] for item in items] == ["done", "done"]
    assert client.get(f"/api/v1/bulk-operations/{begun.json()['id']}", headers=headers).json()["state"] == "finished"
