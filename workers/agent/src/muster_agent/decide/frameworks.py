"""What the frameworks themselves do at a restart: which note of theirs they follow, and what they do without one. Pure.

A restart by hand follows these rules, not ours, so the decision says what they would have chosen.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import NamedTuple

from muster_agent.decide.model import Candidate, Pointer, PointerChoice
from muster_agent.formats.names import is_temporary, step_of_name

MEGATRON_TRACKER = "latest_checkpointed_iteration.txt"
DLROVER_TRACKER = "dlrover_latest.txt"
BRIDGE_TRACKER = "latest_train_state.pt"
BINDING_NAMES = frozenset({MEGATRON_TRACKER, DLROVER_TRACKER, BRIDGE_TRACKER})
"""Written after all ranks finished, so a newer step beside them is not one to resume from."""
OTHER_STATE_NAMES = frozenset({"latest_universal"})
"""Read only by a job that asks for that kind of checkpoint, so they say nothing about the others."""
_RANKED = re.compile(r"[-_.]rank_?\d+")


class AlwaysWritten(NamedTuple):
    """A note that a framework writes after every save, so that its absence is one of its failures."""

    framework: str
    pointer: str
    formats: frozenset[str]
    folder_name: re.Pattern[str]
    without_it: str


ALWAYS_WRITTEN = (
    AlwaysWritten(
        "Megatron",
        MEGATRON_TRACKER,
        frozenset({"megatron_dist", "megatron_zarr", "megatron_legacy", "dcp"}),
        re.compile(r"iter_\d{7,}", re.ASCII),
        "Megatron would start from random weights",
    ),
    AlwaysWritten(
        "DeepSpeed",
        "latest",
        frozenset({"deepspeed"}),
        re.compile(r"global_step\d+", re.ASCII),
        "DeepSpeed would load nothing unless it is given a tag",
    ),
    AlwaysWritten(
        "ByteCheckpoint or verl",
        MEGATRON_TRACKER,
        frozenset({"bytecheckpoint", "verl"}),
        re.compile(r"global_step_\d+", re.ASCII),
        "it would start from step 0",
    ),
)

HIGHEST_NUMBER = {
    "hf_trainer": "the Hugging Face Trainer takes the checkpoint-N folder with the highest number, whole or not",
    "accelerate": "Accelerate takes the checkpoint_N folder with the highest number, whole or not",
    "torchtitan": "TorchTitan takes the step-N folder with the highest number that has its metadata",
    "orbax": "Orbax takes the highest step whose name is final",
    "fairseq2": "fairseq2 takes the step_N folder with the highest number",
    "t5x": "T5X takes the checkpoint_N folder with the highest number",
}
"""Frameworks without a pointer that choose by name, by format."""


def governing(pointers: Sequence[Pointer]) -> Pointer | None:
    """The one of several pointers in one folder that counts: DLRover's before the framework's own, which may run ahead
    of what has reached the storage; a binding one before a hint; one that can be followed before one that cannot. Of
    the links that each rank has, the one that names the lowest step, since every rank needs its part."""
    return min(pointers, key=_precedence, default=None)


def _precedence(pointer: Pointer) -> tuple[bool, bool, bool, bool, int, str]:
    name = os.path.basename(pointer.path)
    ranked = _RANKED.search(name) is not None
    low = pointer.step if ranked and pointer.step is not None else 0
    return (
        pointer.problem is not None,
        name in OTHER_STATE_NAMES,
        name != DLROVER_TRACKER,
        not pointer.binding,
        low,
        pointer.path,
    )


def named_by(pointer: Pointer, candidates: Sequence[Candidate]) -> Candidate | None:
    """The checkpoint that the pointer names: by name where it gives one, else by the number in its name."""
    folder = os.path.dirname(pointer.path)
    beside = [one for one in candidates if os.path.dirname(one.path) == folder]
    if pointer.target is not None:
        return next((one for one in beside if is_named(one.path, pointer.target)), None)
    return next((one for one in beside if number_of(one.path, one.step) == pointer.step is not None), None)


def number_of(path: str, step: int | None) -> int | None:
    """The number by which a framework finds the checkpoint: its name's, whatever the state inside says."""
    named = step_of_name(os.path.basename(path))
    return step if named is None else named


def is_named(path: str, target: str) -> bool:
    """Whether the checkpoint at `path` is what a pointer calls `target`; a family's path stands for all its files."""
    name = os.path.basename(path)
    if "{" not in name or name == f"{target}.{{part}}":
        return name in (target, f"{target}.{{part}}")
    parts = (re.escape(part) for part in re.split(r"\{\w+\}", name))
    return re.fullmatch(r"\d+".join(parts), target, re.ASCII) is not None


def framework_choice(
    candidates: Sequence[Candidate], pointer: Pointer | None, chosen: Candidate | None, against: dict[str, str]
) -> PointerChoice | None:
    """What the framework would load by itself, and why that is or is not the one chosen. `against` has the reasons not
    to resume from a checkpoint, by its path. None where no rule of the framework is known."""
    if pointer is not None:
        return _by_pointer(candidates, pointer, chosen, against)
    missing = missing_pointer(candidates)
    if missing is not None:
        reason = f"{missing.pointer} is not there: {missing.without_it}"
        return PointerChoice(rule=missing.pointer, path=None, step=None, is_same=chosen is None, reason=reason)
    named = [one for one in candidates if not is_temporary(os.path.basename(one.path))]
    numbered = [(number, one) for one in named if (number := _own_number(one)) is not None]
    if not numbered:
        return None
    _, highest = max(numbered, key=lambda item: (item[0], item[1].path))
    return _choice(HIGHEST_NUMBER[highest.format], highest, chosen, against)


def _own_number(one: Candidate) -> int | None:
    """The number by which a framework that has no pointer compares the checkpoint; None where it sees none in it."""
    name_pattern = _OWN_NAMES.get(one.format)
    if one.format not in HIGHEST_NUMBER or (name_pattern and not name_pattern.fullmatch(os.path.basename(one.path))):
        return None
    return number_of(one.path, one.step)


_OWN_NAMES = {
    "hf_trainer": re.compile(r"checkpoint-\d+", re.ASCII),
    "torchtitan": re.compile(r"step-\d+", re.ASCII),
    "fairseq2": re.compile(r"step_\d+", re.ASCII),
    "t5x": re.compile(r"checkpoint_\d+", re.ASCII),
}
"""Other names these frameworks do not look at."""


def missing_pointer(candidates: Sequence[Candidate]) -> AlwaysWritten | None:
    """The note that the framework always writes, for candidates of one folder in which no pointer lies."""
    for one in candidates:
        name = os.path.basename(one.path)
        for written in ALWAYS_WRITTEN:
            if one.resumable and one.format in written.formats and written.folder_name.fullmatch(name):
                return written
    return None


def _by_pointer(
    candidates: Sequence[Candidate], pointer: Pointer, chosen: Candidate | None, against: dict[str, str]
) -> PointerChoice | None:
    rule = os.path.basename(pointer.path)
    if (pointer.step, pointer.target, pointer.problem) == (None, None, None):
        return None
    named = named_by(pointer, candidates)
    if pointer.problem is None and named is not None:
        return _choice(f"what {rule} names", named, chosen, against)
    problem = pointer.problem or "what it names is not there"
    step = pointer.step
    reason = f"{rule} cannot be followed: {problem}"
    return PointerChoice(rule=f"what {rule} names", path=None, step=step, is_same=False, reason=reason)


def _choice(rule: str, one: Candidate, chosen: Candidate | None, against: dict[str, str]) -> PointerChoice:
    """Copies of one checkpoint on several tiers are the same choice."""
    is_same = chosen is not None and (one.step, os.path.basename(one.path)) == (
        chosen.step,
        os.path.basename(chosen.path),
    )
    if is_same:
        reason = "it is the one chosen here too"
    elif one.path in against:
        reason = f"it is passed over here: {against[one.path]}"
    else:
        reason = "it could be resumed from, but another one is chosen here" if chosen else "it is not asked for"
    return PointerChoice(rule=rule, path=one.path, step=one.step, is_same=is_same, reason=reason)
