"""What each answer of the server means."""

from __future__ import annotations

import pytest
from muster_agent.runtime.retry import (
    Answer,
    Conflicted,
    CredentialRefused,
    Refused,
    ServerError,
    TaskGone,
    TryAgain,
    error_of,
    retry_after_seconds,
    wait_seconds,
)

PROBLEM = (
    b'{"type":"about:blank","status":409,"detail":"no","errors":[{"pointer":null,"code":"lease_lost","detail":"no"}]}'
)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, Refused),
        (401, CredentialRefused),
        (403, TaskGone),
        (404, TaskGone),
        (409, Conflicted),
        (410, TaskGone),
        (413, Refused),
        (422, Refused),
        (429, TryAgain),
        (500, TryAgain),
        (503, TryAgain),
    ],
)
def test_each_status_means_one_thing(status: int, kind: type[ServerError]) -> None:
    error = error_of(Answer(status, None, PROBLEM))
    assert type(error) is kind


def test_the_problems_code_is_kept() -> None:
    assert error_of(Answer(409, None, PROBLEM)).code == "lease_lost"


@pytest.mark.parametrize("body", [b"<html>Not Found</html>", b"", b"[]", b"\xff\xfe"])
def test_a_4xx_that_is_no_problem_document_is_something_in_between_and_is_tried_again(body: bytes) -> None:
    assert type(error_of(Answer(404, None, body))) is TryAgain


def test_retry_after_is_obeyed_and_bounded() -> None:
    error = error_of(Answer(503, "7", PROBLEM))
    assert isinstance(error, TryAgain)
    assert error.after_seconds == 7.0
    assert wait_seconds(1, error.after_seconds) >= 7.0
    assert retry_after_seconds("999999") == 3600.0
    assert retry_after_seconds("Wed, 21 Oct 2026 07:28:00 GMT") == 0.0


def test_waits_grow_with_full_jitter_up_to_a_minute() -> None:
    for failures, ceiling in ((1, 1.0), (2, 2.0), (4, 8.0), (7, 60.0), (1000, 60.0)):
        waits = [wait_seconds(failures) for _ in range(200)]
        assert 0.0 <= min(waits) < ceiling / 4
        assert ceiling * 0.75 < max(waits) <= ceiling
