"""A resume decision as the words that a launcher takes. Pure; everything is quoted for a POSIX shell."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable
from enum import StrEnum

import msgspec

from muster_agent.decide.frameworks import ALWAYS_WRITTEN, MEGATRON_TRACKER, number_of
from muster_agent.decide.model import ResumeDecision
from muster_agent.formats.base import Role, ShardMap


class Launcher(StrEnum):
    PATH = "path"
    ENV = "env"
    MEGATRON = "megatron"
    DEEPSPEED = "deepspeed"
    HF = "hf"


def launcher_text(launcher: Launcher, decision: ResumeDecision) -> str:
    """What is printed for the launcher, without a last line break; empty where there is nothing to print.

    `path` is the bare path for `"$(...)"`. The others are words for `eval`, or for a bare `$(...)` where no word needs
    quoting (see `needs_quoting`).
    """
    if launcher is Launcher.ENV:
        return "\n".join(f"{name}={shlex.quote(value)}" for name, value in _variables(decision).items())
    if decision.path is None:
        return ""
    return decision.path if launcher is Launcher.PATH else shlex.join(_WORDS[launcher](decision.path, decision.step))


def with_its_model_file(decision: ResumeDecision, chosen: ShardMap | None) -> ResumeDecision:
    """For a checkpoint of a file for each part, which no script takes by one name: the path of the model's file, by
    which such scripts find the others."""
    if decision.path is None or chosen is None or not os.path.basename(decision.path).startswith("{part}"):
        return decision
    models = (shard.path for shard in chosen.shards if shard.role is Role.MODEL and shard.rank is None)
    name = next(models, None)
    if name is None:
        return decision
    return msgspec.structs.replace(decision, path=os.path.join(os.path.dirname(decision.path), name))


def needs_quoting(launcher: Launcher, text: str) -> bool:
    """Whether a bare `$(...)` would break the words apart or pass their quotes on."""
    return launcher not in (Launcher.PATH, Launcher.ENV) and any(character in text for character in "'\"")


def misfit(launcher: Launcher, decision: ResumeDecision, format_name: str) -> str | None:
    """Why the launcher would not load this checkpoint by these words; None where it would. To print them all the same
    would have it start from scratch."""
    if decision.path is None:
        return None
    name = os.path.basename(decision.path)
    loads = _LOADS.get(launcher)
    if loads is not None and format_name not in loads:
        return f"--format {launcher.value} is for {', '.join(sorted(loads))}, and the chosen one is {format_name}"
    if launcher is Launcher.MEGATRON and not _MEGATRON_FOLDER.fullmatch(name):
        return f"Megatron looks for a folder named iter_0000123, and this one is named {name}"
    if launcher is Launcher.MEGATRON and number_of(decision.path, decision.step) == 0:
        return "Megatron takes --ckpt-step 0 for no step at all and follows its tracker"
    if launcher in (Launcher.DEEPSPEED, Launcher.HF) and "{" in name:
        return f"{name} stands for several files, and this launcher takes one folder"
    return None


def hint_for(launcher: Launcher, format_name: str) -> str | None:
    """What the launcher must be told besides; None where the words are all."""
    if launcher is Launcher.DEEPSPEED and format_name == _UNIVERSAL:
        return (
            "it is a universal checkpoint: the job loads it only with --universal-checkpoint, or load_universal in "
            "the `checkpoint` part of its DeepSpeed configuration"
        )
    return None


_UNIVERSAL = "deepspeed_universal"
_MEGATRON_FORMATS = next(one.formats for one in ALWAYS_WRITTEN if one.pointer == MEGATRON_TRACKER)
_LOADS = {
    Launcher.MEGATRON: _MEGATRON_FORMATS,
    Launcher.DEEPSPEED: frozenset({"deepspeed", _UNIVERSAL}),
    Launcher.HF: frozenset({"hf_trainer", "accelerate", "torch_save"}),
}
"""The formats that load by the launcher's own words, where it has some."""
_MEGATRON_FOLDER = re.compile(r"iter_\d{7,}", re.ASCII)


def _variables(decision: ResumeDecision) -> dict[str, str]:
    """All of them always, so that none is left over from an earlier answer."""
    return {
        "MUSTER_RESUME_OUTCOME": decision.outcome,
        "MUSTER_RESUME_PATH": decision.path or "",
        "MUSTER_RESUME_STEP": "" if decision.step is None else str(decision.step),
        "MUSTER_RESUME_STATUS": decision.status or "",
        "MUSTER_RESUME_TRUST": decision.trust or "",
        "MUSTER_RESUME_TIER": decision.tier or "",
        "MUSTER_RESUME_AS_OF": decision.as_of or "",
        "MUSTER_RESUME_SOURCE": decision.source if decision.path else "",
    }


def _megatron(path: str, step: int | None) -> list[str]:
    """The number in the folder's name, by which Megatron builds that name again."""
    return ["--load", os.path.dirname(path), "--ckpt-step", str(number_of(path, step))]


def _deepspeed(path: str, _step: int | None) -> list[str]:
    return ["--load_dir", os.path.dirname(path), "--tag", os.path.basename(path)]


def _hf(path: str, _step: int | None) -> list[str]:
    return ["--resume_from_checkpoint", path]


_WORDS: dict[Launcher, Callable[[str, int | None], list[str]]] = {
    Launcher.MEGATRON: _megatron,
    Launcher.DEEPSPEED: _deepspeed,
    Launcher.HF: _hf,
}
