"""What the names of DeepSpeed's files say: which part of the state, of which ranks. Pure."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple

from muster_agent.formats.base import Role


class Kind(StrEnum):
    MODEL = "model"
    """One per model-parallel rank; with ZeRO stage 0 the optimizer's state is inside."""
    ZERO_MODEL = "zero_model"
    """ZeRO stage 3: one per rank."""
    OPTIM = "optim"
    """ZeRO stages 1 to 3: one per rank."""
    LAYER = "layer"
    """Pipeline parallelism: one per layer and tensor-parallel rank."""
    EXPERT = "expert"
    EXPERT_OPTIM = "expert_optim"


class Part(NamedTuple):
    """One file. Numbers that the name does not give are -1; `style` is what precedes and joins the numbers of a ZeRO
    file, which depends on the precision and on the version that saved."""

    name: str
    kind: Kind
    mp: int = -1
    dp: int = -1
    layer: int = -1
    expert: int = -1
    style: str = ""
    role: Role = Role.MODEL


_MODEL = re.compile(r"mp_rank_(\d{1,6})_model_states\.pt", re.ASCII)
_ZERO = re.compile(r"((?:[a-z0-9]+_)?)zero_pp_rank_(\d{1,6})_mp_rank_(\d{1,6})(_?)(model|optim)_states\.pt", re.ASCII)
_LAYER = re.compile(r"layer_(\d{1,6})((?:-[a-z]+_\d{1,6})*)-model_states\.pt", re.ASCII)
_TENSOR_RANK = re.compile(r"-model_(\d+)", re.ASCII)
_EXPERT = re.compile(r"(?:layer_(\d{1,6})_)?expert_(\d{1,6})_mp_rank_(\d{1,6})_model_states\.pt", re.ASCII)
_EXPERT_OPTIM = re.compile(r"expp_rank_(\d{1,6})_mp_rank_(\d{1,6})_optim_states\.pt", re.ASCII)


@lru_cache(maxsize=1 << 14)
def part_of(name: str) -> Part | None:
    """What the file `name` is; None for a file that is not DeepSpeed's."""
    if not name.endswith("_states.pt"):
        return None
    if match := _ZERO.fullmatch(name):
        prefix, dp, mp, joint, what = match.groups()
        is_optimizer = what == "optim"
        kind, role = (Kind.OPTIM, Role.OPTIMIZER) if is_optimizer else (Kind.ZERO_MODEL, Role.MODEL)
        return Part(name, kind, mp=int(mp), dp=int(dp), style=f"{prefix}|{joint}", role=role)
    if match := _MODEL.fullmatch(name):
        return Part(name, Kind.MODEL, mp=int(match.group(1)))
    if match := _LAYER.fullmatch(name):
        tensor = _TENSOR_RANK.search(match.group(2))
        return Part(name, Kind.LAYER, layer=int(match.group(1)), mp=int(tensor.group(1)) if tensor else 0)
    if match := _EXPERT.fullmatch(name):
        layer, expert, mp = match.groups()
        return Part(name, Kind.EXPERT, layer=int(layer or -1), expert=int(expert), mp=int(mp))
    if match := _EXPERT_OPTIM.fullmatch(name):
        group, mp = match.groups()
        return Part(name, Kind.EXPERT_OPTIM, expert=int(group), mp=int(mp), role=Role.OPTIMIZER)
    return None


class Parts:
    """The files of one folder by what they are."""

    def __init__(self, names: Iterable[str]) -> None:
        self.by_name: dict[str, Part] = {}
        self.by_kind: dict[Kind, list[Part]] = defaultdict(list)
        for name in sorted(names):
            part = part_of(name)
            if part is not None:
                self.by_name[name] = part
                self.by_kind[part.kind].append(part)

    def style(self) -> str:
        """The style of most optimizer files, and of two equally frequent ones the greater."""
        styles = Counter(part.style for part in self.by_kind[Kind.OPTIM])
        return max(styles, key=lambda one: (styles[one], one), default="|_")

    def highest(self, kind: Kind, field: str) -> int:
        """The highest number of that field; -1 where there is none."""
        return max((getattr(part, field) for part in self.by_kind[kind]), default=-1)


@lru_cache(maxsize=1 << 14)
def zero_name(kind: Kind, dp: int, mp: int, style: str) -> str:
    prefix, _, joint = style.partition("|")
    if kind is Kind.ZERO_MODEL:
        return f"zero_pp_rank_{dp}_mp_rank_{mp:02d}_model_states.pt"
    return f"{prefix}zero_pp_rank_{dp}_mp_rank_{mp:02d}{joint}optim_states.pt"


def model_name(mp: int) -> str:
    return f"mp_rank_{mp:02d}_model_states.pt"


def expert_name(layer: int, expert: int, mp: int) -> str:
    before = f"layer_{layer}_" if layer >= 0 else ""
    return f"{before}expert_{expert}_mp_rank_{mp:02d}_model_states.pt"
