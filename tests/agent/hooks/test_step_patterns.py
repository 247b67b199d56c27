"""Which patterns an agent takes for a log's lines, and what it reads by them."""

from __future__ import annotations

import time

import msgspec
import pytest
from muster_agent.hooks.step_patterns import MAX_LINE_CHARACTERS, BadPattern, LinePatterns, StepLog, Told, compiled

MEGATRON = {
    "step": r"iteration\s+(?P<step>\d+)/",
    "resumed": r"successfully loaded checkpoint from (?P<path>\S+) .*at iteration (?P<step>\d+)",
}


def patterns(**texts: str) -> LinePatterns:
    return LinePatterns(StepLog(run="llama", path="/logs/train.log", **{**MEGATRON, **texts}))


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (" [2026-05-04 10:00:01] iteration     1240/  500000 | consumed samples: 9", Told("step", 1240)),
        (
            "  successfully loaded checkpoint from /ckpt/llama [ t 1, p 1 ] at iteration 1200",
            Told("resumed_from", 1200, "/ckpt/llama"),
        ),
        ("saving checkpoint at iteration 1240 to /ckpt", None),
        ("", None),
        ("iteration 99999999999999999999999/1", None),
    ],
)
def test_a_line_tells_of_a_step_of_a_resume_or_of_nothing(line: str, told: Told | None) -> None:
    assert patterns().read(line) == told


def test_a_step_may_be_written_with_commas_and_only_the_beginning_of_a_line_is_looked_at() -> None:
    assert patterns(step=r"Step (?P<step>[\d,]{1,20}):").read("Step 12,400: loss 2.1") == Told("step", 12400)
    assert patterns().read("x" * MAX_LINE_CHARACTERS + " iteration 5/9") is None


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        (r"step \d+", "no group"),
        (r"step (?P<step>\d+", "is none"),
        (r"(a+)+(?P<step>\d)", "repeats what repeats"),
        (r"(?:\w+\s?)*(?P<step>\d)", "repeats what repeats"),
        (r"(?:a|a)*(?P<step>\d)", "repeats a choice"),
        (r"\d+(?P<step>\d+)", "repeats what repeats"),
        (r"(?P<step>\d+).*a.*b.*c", "3 repeats of any character"),
        (r"(?P<step>\d)(?P=step)", "a back reference"),
        (r"(?=.*x)(?P<step>\d)", "a look around"),
        (r"(?P<step>\d)" + "x" * 300, "over 300 characters"),
    ],
)
def test_a_pattern_that_cannot_work_or_could_take_for_ever_is_refused_in_words(pattern: str, why: str) -> None:
    with pytest.raises(BadPattern, match=why):
        compiled(pattern, "step")


@pytest.mark.parametrize(
    "pattern", [r".*a.*(?P<step>\d)b", r"\w+=\w+(?P<step>\d)!", r"(?P<step>\d+)\s+\d+\s+\d+x.*y.*z"]
)
@pytest.mark.parametrize("unit", ["a", "1", "1 ", "a=", "ax1 "])
def test_the_worst_line_for_a_pattern_that_is_taken_costs_less_than_two_seconds(pattern: str, unit: str) -> None:
    text = (unit * MAX_LINE_CHARACTERS)[:MAX_LINE_CHARACTERS]
    began = time.process_time()
    compiled(pattern, "step").search(text)
    assert time.process_time() - began < 2


def test_a_bad_log_in_a_configuration_is_refused_when_it_is_read() -> None:
    for wrong in ({"path": "logs/train.log"}, {"path": "/logs/*/train.log"}, {"step": "(a+)+"}):
        document = msgspec.json.encode({"run": "llama", "path": "/logs/t.log", **MEGATRON, **wrong})
        with pytest.raises(msgspec.ValidationError):
            msgspec.json.decode(document, type=StepLog)
