"""Deliveries arrive at least once, with one id, in order, on the published schedule; what goes wrong is told."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import factories
import pytest
import time_machine
from alerts.receivers import MailServer, Receiver, Says
from django.db import connection
from django.utils import timezone

from apps.accounts.models import ActivityEntry
from apps.alerts import channels, deliveries, sending, services
from apps.alerts.events import Draft, publish, send_to
from apps.alerts.models import Alert, Channel, Delivery, DeliveryAttempt, Event
from apps.alerts.silences import create_silence, end_silence
from apps.alerts.standard_webhooks import SCHEDULE_SECONDS, headers
from apps.checkpoints.models import Placement
from apps.core.errors import Conflict
from apps.core.sealing import unseal

pytestmark = pytest.mark.django_db
MakeReceiver = Callable[..., Receiver]
MakeChannel = Callable[..., Channel]


def event_to(channel: Channel, subject: str = "alert/alr_1", event_type: str = "alert.opened", **data: Any) -> Delivery:
    values = {"summary": "Step 10 of llama is damaged", "severity": "critical", "rule": "damage", **data}
    event = send_to(Draft(event_type, subject, None, values, timezone.now(), "critical"), [channel])
    return event.deliveries.get()


def work() -> None:
    """What the workers do with everything that is due now."""
    for delivery_id in list(deliveries.due_rows().order_by("created_at").values_list("pk", flat=True)):
        deliveries.deliver(delivery_id)


def damaged(name: str = "llama") -> Placement:
    run = factories.run(factories.cluster())
    return factories.placement(run, factories.tier(run.cluster), status="corrupt")


def test_a_webhook_gets_a_signed_cloud_event(receiver: MakeReceiver, channel: MakeChannel, settings: Any) -> None:
    settings.PUBLIC_URL = "https://muster.example"
    there = receiver()
    row = event_to(hook := channel(target=f"{there.url}/hook?team=a"))
    work()
    row.refresh_from_db()
    (got,) = there.got
    assert (row.state, row.tries, got.path) == ("delivered", 1, "/hook?team=a")
    stamp = int(got.headers["webhook-timestamp"])
    assert abs(stamp - timezone.now().timestamp()) < 60
    signed = headers(message_id=row.event_id, timestamp=stamp, body=got.body, signing_keys=unseal(hook.secrets))
    assert got.headers["webhook-signature"] == signed["webhook-signature"]
    assert got.headers["webhook-id"] == row.event_id
    assert got.headers["content-type"].startswith("application/cloudevents+json")
    body = json.loads(got.body)
    assert (body["specversion"], body["id"], body["source"]) == ("1.0", row.event_id, "https://muster.example")
    assert (body["type"], body["subject"]) == ("io.muster.alert.opened.v1", "alert/alr_1")
    assert body["data"]["summary"] == "Step 10 of llama is damaged"
    hook.refresh_from_db()
    assert hook.last_delivered_at is not None


def test_while_a_key_is_replaced_either_opens_the_message(receiver: MakeReceiver, channel: MakeChannel) -> None:
    there = receiver()
    hook = channel(target=there.url)
    old = unseal(hook.secrets)[0]
    new = channels.rotate_signing_key(channel=hook, actor="ada")
    event_to(hook)
    work()
    (got,) = there.got
    signatures = got.headers["webhook-signature"].split()
    for key in (old, new):
        stamp = int(got.headers["webhook-timestamp"])
        own = headers(message_id=got.headers["webhook-id"], timestamp=stamp, body=got.body, signing_keys=[key])
        assert own["webhook-signature"] in signatures
    channels.drop_old_key(channel=hook, actor="ada")
    event_to(hook, "alert/alr_2")
    work()
    assert len(there.got[1].headers["webhook-signature"].split()) == 1
    with pytest.raises(Conflict):
        channels.drop_old_key(channel=hook, actor="ada")


def test_a_receiver_that_fails_is_tried_on_the_published_schedule_and_then_disabled(
    receiver: MakeReceiver, channel: MakeChannel
) -> None:
    there = receiver(Says(500, body=b"boom"))
    row, waits = event_to(channel(target=there.url)), []
    with time_machine.travel(timezone.now(), tick=False) as clock:
        for _number in range(len(SCHEDULE_SECONDS)):
            work()
            work()  # nothing is sent before its time
            row.refresh_from_db()
            if row.next_attempt_at is not None:
                waits.append((row.next_attempt_at - timezone.now()).total_seconds())
                clock.move_to(row.next_attempt_at)
    assert len(there.got) == len(SCHEDULE_SECONDS) == 10
    assert {got.headers["webhook-id"] for got in there.got} == {row.event_id}
    for waited, planned in zip(waits, SCHEDULE_SECONDS[1:], strict=True):
        assert planned <= waited <= planned * 1.1
    assert (row.state, row.tries, row.problem) == ("failed", 10, "HTTP 500")
    assert set(DeliveryAttempt.objects.values_list("status", "answer")) == {(500, "boom")}
    assert not row.channel.__class__.objects.get().enabled
    services.evaluate()
    alert = Alert.objects.get(rule="channel_disabled")
    assert (alert.cluster_id, alert.severity) == (None, "critical")
    assert "Nothing arrived since" in alert.summary
    channels.update_channel(channel=Channel.objects.get(), changes={"enabled": True}, actor="ada")
    services.evaluate()
    alert.refresh_from_db()
    assert alert.state == "resolved"


def test_one_message_that_is_not_taken_does_not_disable_a_channel_that_works(
    receiver: MakeReceiver, channel: MakeChannel
) -> None:
    there = receiver(*[Says(400)] * 10, Says())
    row = event_to(hook := channel(target=there.url))
    Delivery.objects.update(tries=9)
    Channel.objects.update(last_delivered_at=timezone.now() + timedelta(seconds=1))
    work()
    row.refresh_from_db()
    hook.refresh_from_db()
    assert (row.state, hook.enabled) == ("failed", True)


@pytest.mark.parametrize(
    ("says", "problem"),
    [
        (Says(503, {"Retry-After": "7200"}), "HTTP 503"),
        (Says(404), "HTTP 404"),
        (Says(302, {"Location": "http://127.0.0.1:1/elsewhere"}), "HTTP 302: it redirects"),
    ],
)
def test_what_is_no_success_is_tried_again(
    receiver: MakeReceiver, channel: MakeChannel, says: Says, problem: str
) -> None:
    there = receiver(says, Says(204))
    row = event_to(channel(target=there.url))
    work()
    row.refresh_from_db()
    assert row.state == "pending" and row.problem.startswith(problem)
    waits = (row.next_attempt_at - timezone.now()).total_seconds()
    assert (7100 < waits <= 7200) if says.status == 503 else (0 < waits <= 6)
    Delivery.objects.update(next_attempt_at=timezone.now())
    work()
    row.refresh_from_db()
    assert (row.state, row.problem, len(there.got)) == ("delivered", "", 2)


def test_a_receiver_that_is_gone_disables_its_channel_at_once(receiver: MakeReceiver, channel: MakeChannel) -> None:
    there = receiver(Says(410))
    hook = channel(target=there.url)
    first, second = event_to(hook), event_to(hook, "alert/alr_2")
    deliveries.deliver(first.pk)
    work()
    first.refresh_from_db()
    second.refresh_from_db()
    hook.refresh_from_db()
    assert (first.state, second.state, hook.enabled) == ("failed", "cancelled", False)
    assert "410" in hook.disabled_reason and len(there.got) == 1
    assert ActivityEntry.objects.filter(action="channel.disable", actor="muster").count() == 1


def test_a_receiver_that_is_silent_or_drips_is_left_in_time(
    receiver: MakeReceiver, channel: MakeChannel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sending, "CONNECT_SECONDS", 0.5)
    monkeypatch.setattr(sending, "WHOLE_SECONDS", 1.5)
    for says in (Says(after_seconds=30.0), Says(drip_seconds=0.1)):
        row = event_to(channel(target=receiver(says).url))
        began = timezone.now()
        deliveries.deliver(row.pk)
        row.refresh_from_db()
        assert (row.state, row.problem) == ("pending", "no answer in time")
        assert (timezone.now() - began).total_seconds() < 20


def test_nothing_listens_and_the_problem_names_no_address(channel: MakeChannel, receiver: MakeReceiver) -> None:
    receiver()
    row = event_to(channel(target="http://127.0.0.1:1/secret-path"))
    work()
    row.refresh_from_db()
    assert row.problem == "no answer: Connection refused"


def test_a_worker_that_was_killed_between_sending_and_writing_sends_again_with_the_same_id(
    receiver: MakeReceiver, channel: MakeChannel, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = receiver()
    row = event_to(channel(target=there.url))

    def die(*_arguments: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(deliveries, "_record", die)
        deliveries.deliver(row.pk)
    work()
    assert len(there.got) == 1, "its lease keeps others out"
    with time_machine.travel(timezone.now() + timedelta(seconds=121), tick=False):
        work()
    row.refresh_from_db()
    assert row.state == "delivered"
    assert [got.headers["webhook-id"] for got in there.got] == [row.event_id] * 2


@pytest.mark.django_db(transaction=True)
def test_two_workers_never_send_one_delivery_at_once(receiver: MakeReceiver, channel: MakeChannel) -> None:
    there = receiver(Says(after_seconds=0.5))
    row = event_to(channel(target=there.url))

    def one() -> None:
        try:
            deliveries.deliver(row.pk)
        finally:
            connection.close()

    workers = [threading.Thread(target=one) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    row.refresh_from_db()
    assert (len(there.got), row.state, row.attempts.count()) == (1, "delivered", 1)


def test_of_one_alert_nothing_overtakes_what_was_before(receiver: MakeReceiver, channel: MakeChannel) -> None:
    there = receiver(Says(500), Says())
    hook = channel(target=there.url)
    opened, resolved = event_to(hook), event_to(hook, event_type="alert.resolved")
    other = event_to(hook, "alert/alr_2")
    work()
    deliveries.deliver(resolved.pk)
    assert [json.loads(got.body)["id"] for got in there.got] == [opened.event_id, other.event_id]
    Delivery.objects.filter(pk=opened.pk).update(next_attempt_at=timezone.now())
    work()
    work()
    assert [json.loads(got.body)["id"] for got in there.got[2:]] == [opened.event_id, resolved.event_id]


def test_a_replay_sends_it_again_with_the_same_id(receiver: MakeReceiver, channel: MakeChannel) -> None:
    there = receiver()
    row = event_to(hook := channel(target=there.url))
    with pytest.raises(Conflict):
        deliveries.replay(delivery=row, actor="olga")
    work()
    row.refresh_from_db()
    deliveries.replay(delivery=row, actor="olga")
    work()
    row.refresh_from_db()
    assert [got.headers["webhook-id"] for got in there.got] == [row.event_id] * 2
    assert (row.state, row.tries, row.attempts.count(), row.requested_by) == ("delivered", 1, 2, "olga")
    channels.update_channel(channel=hook, changes={"enabled": False}, actor="ada")
    row.refresh_from_db()
    with pytest.raises(Conflict, match="disabled"):
        deliveries.replay(delivery=row, actor="olga")


def test_a_body_stays_below_twenty_kilobytes(receiver: MakeReceiver, channel: MakeChannel) -> None:
    there = receiver()
    event_to(channel(target=there.url), detail="ü" * 20_000)
    work()
    assert len(there.got[0].body) < 20_000
    assert json.loads(there.got[0].body)["data"]["truncated"] is True


def test_an_alert_is_told_acknowledged_and_recovered(receiver: MakeReceiver, channel: MakeChannel) -> None:
    there = receiver()
    channel(target=there.url, event_types=["alert.*"])
    copy = damaged()
    services.evaluate()
    services.evaluate()
    services.acknowledge(alert=Alert.objects.get(), actor="olga")
    Placement.objects.filter(pk=copy.pk).update(status="complete")
    services.evaluate()
    for _turn in range(3):
        work()
    bodies = [json.loads(got.body) for got in there.got]
    kinds = [body["type"].split(".")[3] for body in bodies]
    assert kinds == ["opened", "acknowledged", "resolved"]
    assert bodies[1]["data"]["acknowledged_by"] == "olga"
    assert bodies[2]["data"]["resolved_at"] is not None
    assert len({body["subject"] for body in bodies}) == 1


def test_a_silenced_alert_is_told_when_its_silence_ends_and_not_if_it_ended_before(
    receiver: MakeReceiver, channel: MakeChannel
) -> None:
    channel(target=receiver().url)
    copy = damaged()
    silence = create_silence(reason="x", ends_at=timezone.now() + timedelta(hours=1), actor="olga")
    services.evaluate()
    assert Alert.objects.get().state == "open"
    assert Event.objects.count() == 0
    end_silence(silence=silence, actor="olga")
    services.evaluate()
    services.evaluate()
    assert list(Event.objects.values_list("type", flat=True)) == ["alert.opened"]
    create_silence(reason="y", ends_at=timezone.now() + timedelta(hours=1), actor="olga")
    Placement.objects.filter(pk=copy.pk).update(status="complete")
    services.evaluate()
    assert Event.objects.filter(type="alert.resolved").count() == 1, "what was told is told to be over"
    Placement.objects.filter(pk=copy.pk).update(status="corrupt")
    services.evaluate()
    Placement.objects.filter(pk=copy.pk).update(status="complete")
    services.evaluate()
    assert Event.objects.count() == 2, "of what was never told nobody hears that it is over"


def test_channels_are_told_by_severity_and_cluster(receiver: MakeReceiver, channel: MakeChannel) -> None:
    url = receiver().url
    east, west = factories.cluster("east2"), factories.cluster("west2")
    every, severe = channel(target=url), channel(target=url, min_severity="critical")
    of_west = channel(target=url, clusters=[west])
    drills = channel(target=url, event_types=["drill.*"])

    def told(event_type: str, severity: str, cluster_id: str | None) -> set[str]:
        draft = Draft(event_type, "alert/alr_9", cluster_id, {}, timezone.now(), severity)
        from apps.alerts.events import enabled_channels

        event = publish(draft, enabled_channels())
        return set(event.deliveries.values_list("channel", flat=True)) if event else set()

    assert told("alert.opened", "warning", east.pk) == {every.pk}
    assert told("alert.opened", "critical", west.pk) == {every.pk, severe.pk, of_west.pk}
    assert told("alert.opened", "warning", None) == {every.pk, of_west.pk}, "Muster's own concern everybody"
    assert told("drill.failed", "", west.pk) == {drills.pk}
    assert told("scan.finished", "", west.pk) == set()


def test_slack_and_pagerduty_get_bodies_of_their_own(receiver: MakeReceiver, channel: MakeChannel) -> None:
    there = receiver()
    slack = channel("slack", f"{there.url}/services/T0/B0/secretpart")
    pager = channel("pagerduty", f"{there.url}/v2/enqueue", secret="R" * 32)
    event_to(slack, summary="<b> & co")
    for event_type in ("alert.opened", "alert.acknowledged", "alert.resolved"):
        event_to(pager, event_type=event_type, acknowledged_by="olga")
    for _turn in range(3):
        work()
    bodies = [(got.path, json.loads(got.body)) for got in there.got]
    (text,) = [body for path, body in bodies if path == "/services/T0/B0/secretpart"]
    assert "&lt;b&gt; &amp; co" in text["attachments"][0]["text"] and text["text"].startswith("critical: ")
    pages = [body for path, body in bodies if path == "/v2/enqueue"]
    assert [page["event_action"] for page in pages] == ["trigger", "acknowledge", "resolve"]
    assert {(page["dedup_key"], page["routing_key"]) for page in pages} == {("alr_1", "R" * 32)}
    assert pages[0]["payload"]["severity"] == "critical" and pages[0]["payload"]["summary"]
    slack.refresh_from_db()
    assert "secretpart" not in slack.target + slack.secrets


def test_mail_arrives_with_one_message_id_however_often_it_is_tried(
    mail_server: MailServer, channel: MakeChannel
) -> None:
    mail_server.refusals = ["451 greylisted, come again"]
    row = event_to(channel("email", "oncall@example.org"), rule_label="Damage found", cluster_name="east\r\nBcc: x@y.z")
    work()
    row.refresh_from_db()
    assert (row.state, row.problem) == ("pending", "SMTP 451: greylisted, come again")
    Delivery.objects.update(next_attempt_at=timezone.now())
    work()
    row.refresh_from_db()
    assert row.state == "delivered"
    ((recipients, text),) = mail_server.mails
    assert recipients == ["oncall@example.org"]
    assert "Subject: [Muster] critical: Damage found (east Bcc: x@y.z)" in text.replace("\r\n ", " ")
    assert f"Message-ID: <{row.event_id}@muster.invalid>" in text
    assert "Step 10 of llama is damaged" in text


def test_a_test_is_tried_once_and_leaves_the_channel_alone(receiver: MakeReceiver, channel: MakeChannel) -> None:
    there = receiver(Says(500), Says())
    hook = channel(target=there.url, event_types=["drill.failed"])
    row = channels.send_test(channel=hook, actor="ada")
    work()
    row.refresh_from_db()
    hook.refresh_from_db()
    assert (row.state, row.problem, hook.enabled, row.requested_by) == ("failed", "HTTP 500", True, "ada")
    again = channels.send_test(channel=hook, actor="ada")
    work()
    again.refresh_from_db()
    assert again.state == "delivered"
    assert "Test of the channel" in json.loads(there.got[1].body)["data"]["summary"]


def test_a_test_of_pagerduty_resolves_what_it_triggers(receiver: MakeReceiver, channel: MakeChannel) -> None:
    there = receiver()
    channels.send_test(channel=channel("pagerduty", there.url, secret="R" * 32), actor="ada")
    work()
    work()
    assert [json.loads(got.body)["event_action"] for got in there.got] == ["trigger", "resolve"]
    assert len({json.loads(got.body)["dedup_key"] for got in there.got}) == 1


def test_old_events_are_forgotten_with_their_deliveries_and_pending_ones_never(
    receiver: MakeReceiver, channel: MakeChannel, settings: Any
) -> None:
    settings.DELIVERY_KEEP_DAYS = 30
    hook = channel(target=receiver().url)
    old, waiting, fresh = event_to(hook), event_to(hook, "alert/alr_2"), event_to(hook, "alert/alr_3")
    deliveries.deliver(old.pk)
    deliveries.deliver(fresh.pk)
    Event.objects.filter(pk__in=[old.event_id, waiting.event_id]).update(at=timezone.now() - timedelta(days=31))
    deliveries.prune()
    assert set(Delivery.objects.values_list("pk", flat=True)) == {waiting.pk, fresh.pk}


def test_what_a_silent_worker_leaves_waiting_is_part_of_muster_being_blind(
    receiver: MakeReceiver, channel: MakeChannel
) -> None:
    from apps.alerts import outbox_age, own_health

    row = event_to(channel(target=receiver().url))
    now = timezone.now()
    Delivery.objects.update(next_attempt_at=now - timedelta(minutes=6))
    assert 359 < outbox_age.seconds(now) < 400
    (part,) = [one for one in own_health.parts() if one.name == "outbox"]
    assert not part.is_well and "-Q notify" in part.cure
    Delivery.objects.update(next_attempt_at=now + timedelta(hours=5), tries=5)
    assert outbox_age.seconds(timezone.now()) == 0.0, "a receiver at fault makes nobody blind"
    assert row.event.at.astimezone(UTC) < datetime.now(UTC)
