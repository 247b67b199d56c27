"""Silences: which alerts they match, for how long, and who may make them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import factories
import pytest
from django.test import Client
from django.utils import timezone
from rest import caller, granted

from apps.accounts.models import ActivityEntry, Role
from apps.alerts.deciding import silence_for
from apps.alerts.models import Alert, Silence
from apps.alerts.silences import create_silence, end_silence, standing_silences
from apps.core.errors import Conflict, InvalidInput
from apps.fleet.models import Cluster

pytestmark = pytest.mark.django_db


def alert(cluster: Cluster, **fields: Any) -> Alert:
    values = {"rule": "agent_lost", "subject_kind": "node", "subject_id": "nod_1", "summary": "Agent on gpu-1 is lost"}
    return Alert.objects.create(cluster=cluster, opened_at=timezone.now(), **{**values, **fields})


def silence(**fields: Any) -> Silence:
    values = {"reason": "maintenance", "ends_at": timezone.now() + timedelta(hours=4), "actor": "olga"}
    return create_silence(**{**values, **fields})


def test_a_silence_matches_by_every_field_that_it_names() -> None:
    east, west = factories.cluster("east"), factories.cluster("west")
    run = factories.run(east)
    one = alert(east, run=run)
    now = timezone.now()
    for fields, is_silent in (
        ({}, True),
        ({"cluster": east}, True),
        ({"cluster": west}, False),
        ({"rule": "agent_lost"}, True),
        ({"rule": "damage"}, False),
        ({"run": run}, True),
        ({"run": factories.run(west)}, False),
        ({"subject_id": "nod_1"}, True),
        ({"subject_id": "nod_2"}, False),
        ({"summary_contains": "GPU-1"}, True),
        ({"summary_contains": "gpu-2"}, False),
        ({"rule": "agent_lost", "summary_contains": "gpu-2"}, False),
    ):
        made = silence(**fields)
        assert (silence_for(one, standing_silences(), now + timedelta(seconds=1)) is not None) is is_silent, fields
        made.delete()


def test_a_silence_holds_from_its_beginning_to_its_end() -> None:
    now = timezone.now()
    one = alert(factories.cluster())
    silence(starts_at=now + timedelta(hours=1), ends_at=now + timedelta(hours=2))
    rows = list(Silence.objects.all())
    for hours, is_silent in ((0, False), (1, True), (1.9, True), (2, False)):
        assert (silence_for(one, rows, now + timedelta(hours=hours)) is not None) is is_silent
    assert standing_silences() == []


def test_ending_a_silence_says_who_and_happens_once() -> None:
    made = silence()
    assert [row.pk for row in standing_silences()] == [made.pk]
    end_silence(silence=made, actor="otto")
    assert standing_silences() == [] and made.ended_by == "otto"
    with pytest.raises(Conflict):
        end_silence(silence=made, actor="olga")
    assert list(ActivityEntry.objects.order_by("pk").values_list("actor", "action")) == [
        ("olga", "silence.create"),
        ("otto", "silence.end"),
    ]


def test_silences_that_make_no_sense_are_refused_and_name_the_field() -> None:
    now = timezone.now()
    for fields, pointer in (
        ({"reason": "  "}, "/reason"),
        ({"ends_at": now - timedelta(minutes=1)}, "/ends_at"),
        ({"ends_at": now + timedelta(days=91)}, "/ends_at"),
        ({"starts_at": now + timedelta(hours=5)}, "/ends_at"),
        ({"rule": "weather"}, "/rule"),
        ({"cluster": factories.cluster("east"), "run": factories.run(factories.cluster("west"))}, "/run"),
    ):
        with pytest.raises(InvalidInput) as refused:
            silence(**fields)
        assert refused.value.pointer == pointer


def test_silencing_one_cluster_needs_its_operator_and_all_of_them_an_operator_of_all() -> None:
    east, _west = factories.cluster("east"), factories.cluster("west")
    guest, operator, viewer = granted(east, Role.OPERATOR), caller(Role.OPERATOR), caller(Role.VIEWER)
    body = {"reason": "NAS maintenance", "ends_at": (timezone.now() + timedelta(hours=2)).isoformat()}
    assert viewer.post("silences", {**body, "cluster": "east"}).status_code == 403
    assert guest.post("silences", body).status_code == 403
    assert guest.post("silences", {**body, "cluster": "west"}).status_code == 404
    own = guest.post("silences", {**body, "cluster": "east", "rule": "tier_full"}).json()
    everywhere = operator.post("silences", body).json()
    west_only = operator.post("silences", {**body, "cluster": "west"}).json()
    assert guest.get(f"silences/{west_only['id']}").status_code == 404
    assert {row["id"] for row in guest.get("silences").json()["items"]} == {own["id"], everywhere["id"]}
    assert guest.post(f"silences/{everywhere['id']}/end").status_code == 403
    assert guest.post(f"silences/{own['id']}/end").json()["ended_by"] == "guest"
    assert guest.post(f"silences/{own['id']}/end").status_code == 409
    assert [row["id"] for row in operator.get("silences", standing="false").json()["items"]] == [own["id"]]


def test_a_silenced_alert_stays_listed_and_says_so() -> None:
    one = alert(factories.cluster())
    viewer = caller(Role.VIEWER)
    assert viewer.get(f"alerts/{one.pk}").json()["silence"] is None
    made = silence()
    assert [row["silence"] for row in viewer.get("alerts").json()["items"]] == [made.pk]
    client = Client()
    client.force_login(viewer.user)
    assert b"silent until" in client.get("/alerts/").content
