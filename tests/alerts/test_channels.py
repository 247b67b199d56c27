"""Channels: what they refuse, who may write them, and that a secret never comes out again."""

from __future__ import annotations

import json
import socket
from typing import Any

import factories
import pytest
from django.core.management import call_command
from django.test import Client
from muster_agent.storage.addresses import AddressRefused
from rest import caller, granted

from apps.accounts.models import ActivityEntry, Role
from apps.alerts import channels, sending
from apps.alerts.models import Channel
from apps.core.errors import Conflict, InvalidInput
from apps.core.sealing import SealBroken, seal, unseal
from tests.hostile_hosts import NEVER, PRIVATE, netloc

pytestmark = pytest.mark.django_db
KEY = "whsec_" + "QUFB" * 10
PUBLIC = "https://93.184.215.14"


def make(kind: str = "webhook", target: str = f"{PUBLIC}/hook", **details: Any) -> Channel:
    return channels.create_channel(**{"name": "ops", "kind": kind, "target": target, "actor": "ada", **details})[0]


@pytest.mark.parametrize(
    "url",
    [
        *(f"http://{netloc(host)}/" for host in (*NEVER, *PRIVATE)),
        "https://169.254.169.254/",
        "http://127.0.0.1./",
        "http://localhost/",
        "http://localhost./",
        "https://user@93.184.215.14/",
        "https://user:pw@93.184.215.14/",
        "https://93.184.215.14/#part",
        "https://93.184.215.14:99999/",
        "ftp://93.184.215.14/",
        "file:///etc/passwd",
        "gopher://127.0.0.1/",
        "//93.184.215.14/",
        "https:///path",
        "https://93.184.215.14/\r\nX-Evil: 1",
        "https://93.184.215.14/ x",
        "https://bücher.example/",
        "https://" + "a" * 1020 + ".example/",
        "",
    ],
)
def test_an_address_that_must_not_be_reached_is_refused_when_it_is_saved(url: str) -> None:
    for kind, details in (("webhook", {}), ("slack", {}), ("pagerduty", {"secret": "R" * 32})):
        if kind == "pagerduty" and not url:
            continue  # stands for PagerDuty's own
        with pytest.raises(InvalidInput) as refused:
            make(kind, url, **details)
        assert refused.value.pointer == "/target"


def test_private_addresses_are_reached_where_they_are_allowed_but_never_metadata(settings: Any) -> None:
    from muster_agent.storage.addresses import networks_of

    settings.ALLOWED_NETWORKS = networks_of("10.0.0.0/8 169.254.0.0/16")
    assert make(target="http://10.0.0.1:8080/x").target == "http://10.0.0.1:8080/x"
    with pytest.raises(InvalidInput, match="link-local"):
        make(name="second", target="http://169.254.169.254/")


def test_a_name_is_judged_again_when_it_is_connected_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name server that gives a public address first, and a private one later."""
    answers = ["93.184.215.14", "127.0.0.1"]

    def resolver(host: str, port: int, **how: Any) -> list[Any]:
        if how.get("flags") == socket.AI_NUMERICHOST:
            raise socket.gaierror("it is a name")
        address = answers.pop(0) if len(answers) > 1 else answers[0]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))]

    monkeypatch.setattr(socket, "getaddrinfo", resolver)
    hook = make(target="https://rebinding.example/hook")
    from django.utils import timezone

    from apps.alerts.messages import Told

    answer = sending.send(hook, Told("evt_1", "alert.opened", "alert/alr_1", timezone.now(), {}))
    assert answer.problem.startswith("not sent: rebinding.example is not reached: 127.0.0.1 is not public")


@pytest.mark.parametrize("host", [host for host in (*NEVER, *PRIVATE) if host.isascii()])
def test_no_host_of_the_table_is_sent_to(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though it was saved: by an older release, or before a network was taken from the allowed ones."""
    monkeypatch.setattr(socket.socket, "connect", lambda *_given: pytest.fail("it connected"))
    with pytest.raises((AddressRefused, socket.gaierror)):
        sending.post(f"https://{netloc(host)}/hook", b"{}", {})


def test_nothing_is_sent_in_the_clear_to_public_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    from django.utils import timezone

    from apps.alerts.messages import Told

    def unreachable(*_arguments: Any) -> None:
        raise AssertionError("it connected")

    monkeypatch.setattr(sending, "connect_to", unreachable)
    hook = make(target="http://93.184.215.14/hook")
    answer = sending.send(hook, Told("evt_1", "alert.opened", "alert/alr_1", timezone.now(), {}))
    assert "use https" in answer.problem


@pytest.mark.parametrize(
    ("kind", "details", "pointer"),
    [
        ("webhook", {"secret": "short"}, "/secret"),
        ("webhook", {"event_types": ["drill.explodes"]}, "/event_types"),
        ("webhook", {"event_types": []}, "/event_types"),
        ("webhook", {"min_severity": "fatal"}, "/min_severity"),
        ("webhook", {"name": "  "}, "/name"),
        ("slack", {"secret": "x"}, "/secret"),
        ("slack", {"event_types": ["alert.*"]}, "/event_types"),
        ("pagerduty", {}, "/secret"),
        ("pigeon", {}, "/kind"),
        ("email", {"target": "not an address"}, "/target"),
        ("email", {"target": ""}, "/target"),
        ("email", {"target": "a@example.org"}, "/kind"),
    ],
)
def test_a_channel_that_makes_no_sense_is_refused(kind: str, details: dict[str, Any], pointer: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        make(kind, **details)
    assert refused.value.pointer == pointer
    assert Channel.objects.count() == 0


def test_two_channels_never_have_one_name() -> None:
    make()
    with pytest.raises(Conflict):
        make()


def test_only_admins_of_everything_write_channels() -> None:
    body = {"name": "ops", "kind": "webhook", "target": f"{PUBLIC}/hook"}
    guest = granted(factories.cluster("east"), Role.ADMIN)
    for who in (caller(Role.VIEWER), caller(Role.OPERATOR), guest):
        assert who.post("channels", body).status_code == 403
    assert guest.get("channels").status_code == 403
    admin = caller(Role.ADMIN)
    made = admin.post("channels", {**body, "clusters": ["east"]})
    assert made.status_code == 201
    assert made.json()["signing_key"].startswith("whsec_")
    row = admin.get(f"channels/{made.json()['id']}").json()
    assert (row["clusters"], row["event_types"], row["secret_count"]) == (
        [factories.Cluster.objects.get(name="east").pk], ["alert.*"], 1,
    )  # fmt: skip
    assert "signing_key" not in row
    assert caller(Role.OPERATOR, "otto").post(f"channels/{row['id']}/test").status_code == 201
    assert admin.patch(f"channels/{row['id']}", {"enabled": False}).json()["enabled"] is False
    assert admin.post(f"channels/{row['id']}/test").status_code == 409
    rotated = admin.post(f"channels/{row['id']}/rotate").json()["signing_key"]
    assert rotated.startswith("whsec_") and rotated != made.json()["signing_key"]
    assert admin.get(f"channels/{row['id']}").json()["secret_count"] == 2
    assert admin.post(f"channels/{row['id']}/drop-old-key").json()["secret_count"] == 1
    actions = set(ActivityEntry.objects.filter(target_kind="channel").values_list("action", flat=True))
    assert actions == {f"channel.{verb}" for verb in ("create", "test", "update", "rotate", "drop_old_key")}


def test_a_secret_comes_out_nowhere(tmp_path: Any) -> None:
    """Not in the API, on pages, in the log of activity, nor in the clear in the database."""
    slack_url, routing_key = f"{PUBLIC}/services/T000/SLACKSECRET", "PAGERSECRET" * 2
    make("slack", slack_url, name="chat")
    make("pagerduty", "", name="pager", secret=routing_key)
    make(name="hook", target=f"{PUBLIC}/hook?token=QUERYSECRET", secret=KEY)
    admin, client = caller(Role.ADMIN), Client()
    client.force_login(admin.user)
    ids = Channel.objects.values_list("pk", flat=True)
    seen = [admin.get("channels").content, client.get("/alerts/channels/").content, client.get("/activity/").content]
    seen += [admin.get(f"channels/{pk}").content for pk in ids]
    seen += [client.get(f"/alerts/channels/{pk}/").content for pk in ids]
    seen += [json.dumps(list(ActivityEntry.objects.values_list("detail", flat=True))).encode()]
    dump = tmp_path / "dump.json"
    call_command("dumpdata", "alerts", output=str(dump))
    for secret in ("SLACKSECRET", "PAGERSECRET", KEY):
        assert all(secret.encode() not in text for text in [*seen, dump.read_bytes()]), secret
    assert all(b"QUERYSECRET" not in text for text in seen)


def test_a_secret_that_another_key_sealed_says_so_and_opens_with_the_old_key_at_hand(settings: Any) -> None:
    hook = make(secret=KEY)
    old = settings.SECRET_KEY
    settings.SECRET_KEY = "another key " * 5
    assert channels.secret_count(hook) is None
    from django.utils import timezone

    from apps.alerts.messages import Told

    answer = sending.send(hook, Told("evt_1", "alert.opened", "alert/alr_1", timezone.now(), {}))
    assert "MUSTER_SECRET_KEY_FALLBACKS" in answer.problem
    settings.SECRET_KEY_FALLBACKS = [old]
    assert channels.secret_count(hook) == 1
    channels.update_channel(channel=hook, changes={"secret": KEY}, actor="ada")
    settings.SECRET_KEY_FALLBACKS = []
    assert unseal(hook.secrets) == [KEY]


def test_a_seal_opens_to_what_was_sealed_and_to_nothing_when_it_was_touched() -> None:
    sealed = seal(["a", "ü"])
    assert unseal(sealed) == ["a", "ü"]
    assert sealed != seal(["a", "ü"])
    for broken in ("", "x", sealed[:-2] + ("aa" if not sealed.endswith("aa") else "bb"), sealed[1:]):
        with pytest.raises(SealBroken):
            unseal(broken)


def test_slack_keeps_its_address_when_the_shown_host_comes_back_from_the_form() -> None:
    chat = make("slack", f"{PUBLIC}/services/T0/X", name="chat")
    channels.update_channel(channel=chat, changes={"target": PUBLIC, "name": "room"}, actor="ada")
    assert unseal(chat.secrets) == [f"{PUBLIC}/services/T0/X"]
    channels.update_channel(channel=chat, changes={"target": f"{PUBLIC}/services/T1/Y"}, actor="ada")
    assert unseal(chat.secrets) == [f"{PUBLIC}/services/T1/Y"]


def test_deliveries_are_listed_with_their_tries_and_replayed_by_operators() -> None:
    row = channels.send_test(channel=make(), actor="ada")
    viewer, operator = caller(Role.VIEWER), caller(Role.OPERATOR)
    (item,) = viewer.get("deliveries", state="pending").json()["items"]
    assert (item["id"], item["event_type"], item["tries"]) == (row.pk, "channel.test", 0)
    whole = viewer.get(f"deliveries/{row.pk}").json()
    assert whole["attempts"] == [] and "Test of the channel" in whole["event_data"]["summary"]
    assert viewer.post(f"deliveries/{row.pk}/replay").status_code == 403
    assert operator.post(f"deliveries/{row.pk}/replay").status_code == 409
    row.__class__.objects.update(state="failed")
    assert operator.post(f"deliveries/{row.pk}/replay").json()["state"] == "pending"
