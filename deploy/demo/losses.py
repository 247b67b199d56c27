"""Read the losses out of a trainer's log and compare them with a reference run's, figure by figure. All pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_STEP = re.compile(r"step (\d+) loss (\S+)")
_RESUMED = re.compile(r"resumed from step (\d+) at ")


@dataclass(frozen=True, kw_only=True)
class AttemptLosses:
    """One attempt's part of a log. `losses` maps a step to its loss as it was printed: equal texts are equal floats,
    bit for bit. `resumed_from` is None for an attempt that began at step 0."""

    resumed_from: int | None
    losses: dict[int, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """`first_difference` is (step, loss, reference's loss), None where all `compared_steps` are equal."""

    compared_steps: int
    first_difference: tuple[int, str, str] | None


def parse_attempts(log: str) -> list[AttemptLosses]:
    """The attempts that wrote to one log, in order; those that computed no step are left out. A line that a killed
    trainer left half written (it has no newline) is no figure and is left out too."""
    attempts = [AttemptLosses(resumed_from=None)]
    for line in log.split("\n")[:-1]:
        if match := _RESUMED.match(line):
            attempts.append(AttemptLosses(resumed_from=int(match[1])))
        elif match := _STEP.fullmatch(line):
            attempts[-1].losses[int(match[1])] = match[2]
    return [attempt for attempt in attempts if attempt.losses]


def compare(losses: dict[int, str], reference: dict[int, str]) -> Comparison:
    """Compare the steps that both have."""
    common = sorted(losses.keys() & reference.keys())
    differences = [(step, losses[step], reference[step]) for step in common if losses[step] != reference[step]]
    return Comparison(compared_steps=len(common), first_difference=differences[0] if differences else None)
