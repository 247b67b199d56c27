"""The query of a resume point."""

from __future__ import annotations

from typing import Any

import factories
import pytest
from muster_agent.decide.model import ResumeRequest
from muster_agent.protocol.trust import Trust
from rest import caller

from apps.accounts.models import Role
from apps.checkpoints.models import TrainingRun
from apps.checkpoints.resume_serializers import ResumeQuerySerializer


def parsed(**query: Any) -> ResumeRequest:
    serializer = ResumeQuerySerializer(data=query)
    serializer.is_valid(raise_exception=True)
    return serializer.resume_request(TrainingRun())


def test_nothing_asked_means_any_complete_step() -> None:
    assert parsed() == ResumeRequest(require=Trust.COMPLETE)


def test_every_option_of_the_command_line_is_taken() -> None:
    assert parsed(
        require="verified", step="1200", max_age="90m", world_size="64", dp="8", tp="4", pp="2", checkpoint_format="dcp"
    ) == ResumeRequest(
        require=Trust.VERIFIED, step=1200, max_age_seconds=5400.0, world_size=64, dp=8, tp=4, pp=2, format="dcp"
    )


@pytest.mark.parametrize(
    ("text", "seconds"), [("30", 30.0), ("30s", 30.0), ("1.5h", 5400.0), ("2d", 172800.0), ("10min", 600.0)]
)
def test_an_age_has_a_unit_or_is_in_seconds(text: str, seconds: float) -> None:
    assert parsed(max_age=text).max_age_seconds == seconds


@pytest.mark.parametrize(
    "query",
    [
        {"max_age": "soon"}, {"max_age": "-5"}, {"max_age": "5 weeks"}, {"require": "much"}, {"step": "-1"},
        {"world_size": "0"}, {"newest": "1"}, {"dp": "1_0"}, {"dp": "\u0661"}, {"dp": "4.0"},
        {"dp": " 4"}, {"step": "+4"}, {"max_age": "\u0663h"},
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused_by_name(query: dict[str, str]) -> None:
    serializer = ResumeQuerySerializer(data=query)
    assert not serializer.is_valid()
    assert set(serializer.errors) == set(query)


@pytest.mark.django_db
def test_a_parameter_that_is_given_twice_is_refused_by_name() -> None:
    factories.run(factories.cluster())
    answer = caller(Role.VIEWER).get("runs/llama-70b/resume-point?dp=4&dp=5")
    assert answer.status_code == 400 and "dp" in str(answer.json())


@pytest.mark.django_db
def test_a_format_that_nobody_knows_is_refused_with_the_words_that_are_known() -> None:
    factories.run(factories.cluster())
    viewer = caller(Role.VIEWER)
    answer = viewer.get("runs/llama-70b/resume-point?checkpoint_format=dpc")
    assert answer.status_code == 400 and "There is no format dpc; known are: accelerate, " in str(answer.json())
    assert viewer.get("runs/llama-70b/resume-point?checkpoint_format=dcp").status_code == 200
