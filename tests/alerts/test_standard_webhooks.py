"""Signatures after Standard Webhooks 1.0, and when a message is tried again."""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta

import pytest

from apps.alerts.answers import Again, Answer, Delivered, GivenUp, judge_http, retry_after_seconds, verdict
from apps.alerts.standard_webhooks import SCHEDULE_SECONDS, headers, key_of, new_signing_key, wait_seconds

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)


def test_the_published_vector_is_signed_as_published() -> None:
    signed = headers(
        message_id="msg_p5jXN8AQM9LWM0D4loKWxJek",
        timestamp=1614265330,
        body=b'{"test": 2432232314}',
        signing_keys=["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"],
    )
    assert signed == {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }


def test_another_body_time_id_or_key_gives_another_signature() -> None:
    first, second = new_signing_key(), new_signing_key()

    def signature(message_id: str = "evt_1", timestamp: int = 1, body: bytes = b"{}", key: str = first) -> str:
        signed = headers(message_id=message_id, timestamp=timestamp, body=body, signing_keys=[key])
        return signed["webhook-signature"]

    others = [signature("evt_2"), signature(timestamp=2), signature(body=b"{ }"), signature(key=second)]
    assert len({signature(), *others}) == 5
    both = headers(message_id="evt_1", timestamp=1, body=b"{}", signing_keys=[first, second])["webhook-signature"]
    assert both.split(" ") == [signature(), signature(key=second)]


@pytest.mark.parametrize(
    "secret",
    ["", "secret", "whsec_", "whsec_!!", "whsec_" + base64.b64encode(b"x" * 23).decode(), "whsec_" + "QUFB" * 22],
)
def test_what_is_no_signing_key_is_refused(secret: str) -> None:
    with pytest.raises(ValueError, match="signing key|base 64"):
        key_of(secret)


def test_a_made_key_has_as_many_bytes_as_the_standard_wants() -> None:
    assert len(key_of(new_signing_key())) == 32


def test_waits_follow_the_published_schedule_and_jitter_only_adds() -> None:
    hours = 3600.0
    published = [0, 5, 300, 1800, 2 * hours, 5 * hours, 10 * hours, 14 * hours, 20 * hours, 24 * hours]
    assert list(SCHEDULE_SECONDS) == published
    for tries in range(1, 10):
        assert wait_seconds(tries, jitter=0.0) == published[tries]
        assert wait_seconds(tries, jitter=1.0) == pytest.approx(published[tries] * 1.1)
    assert wait_seconds(10, jitter=0.0) is None


def test_a_receiver_may_ask_for_a_longer_wait_never_for_a_shorter_one() -> None:
    assert wait_seconds(1, jitter=0.0, retry_after_seconds=60.0) == 60.0
    assert wait_seconds(2, jitter=0.0, retry_after_seconds=60.0) == 300.0
    assert wait_seconds(1, jitter=0.0, retry_after_seconds=1e9) == 86_400.0


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("120", 120.0),
        (" 120 ", 120.0),
        ("Fri, 01 May 2026 12:01:00 GMT", 60.0),
        ("Fri, 01 May 2026 11:00:00 GMT", None),
        ("-5", None),
        ("soon", None),
        ("", None),
        (None, None),
        ("9" * 50, 999_999_999.0),
    ],
)
def test_retry_after_is_seconds_or_a_date(value: str | None, seconds: float | None) -> None:
    assert retry_after_seconds(value, NOW) == seconds


@pytest.mark.parametrize("status", [200, 201, 204, 299])
def test_only_2xx_is_success(status: int) -> None:
    answer = judge_http(status, None, "", NOW)
    assert verdict(answer, tries=1, once=False, jitter=0.0) == Delivered()


@pytest.mark.parametrize("status", [301, 302, 304, 400, 404, 429, 500, 503])
def test_everything_else_is_tried_again_until_the_schedule_ends(status: int) -> None:
    answer = judge_http(status, None, "", NOW)
    assert verdict(answer, tries=1, once=False, jitter=0.0) == Again(5.0)
    assert verdict(answer, tries=10, once=False, jitter=0.0) == GivenUp(channel_is_gone=False)
    assert verdict(answer, tries=1, once=True, jitter=0.0) == GivenUp(channel_is_gone=False)


def test_gone_is_final_and_silence_is_not() -> None:
    gone = judge_http(410, None, "", NOW)
    assert verdict(gone, tries=1, once=False, jitter=0.0) == GivenUp(channel_is_gone=True)
    silent = Answer(problem="no answer in time")
    assert verdict(silent, tries=1, once=False, jitter=0.0) == Again(5.0)
    assert timedelta(seconds=sum(SCHEDULE_SECONDS)) > timedelta(days=3)
