"""What DeepSpeed writes into its files about the save as a whole: ranks, step, stage, parameters. Read inertly."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from muster_agent.formats.base import Role
from muster_agent.formats.pickle_machine import Record
from muster_agent.formats.torch_archive import Loaded, scalar

_MAX_COUNT = 1_000_000
_RNG_NAMES = (
    "random_rng_state",
    "np_rng_state",
    "torch_rng_state",
    "cuda_rng_state",
    "rng_tracker_states",
    "rng_state",
)


@dataclass(slots=True)
class Facts:
    """None, 0 or empty where no file could be read or none tells. `mp` is tensor times pipeline ranks."""

    dp: int | None = None
    mp: int | None = None
    tp: int | None = None
    pp: int | None = None
    step: int | None = None
    stage: int | None = None
    is_partitioned: bool = False
    """Whether ZeRO cut the optimizer's state into a file per rank."""
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Of the trained parameters, as one model-parallel rank holds them."""
    experts: list[int] = field(default_factory=list)
    """How many experts each mixture layer has."""
    roles: set[Role] = field(default_factory=set)

    @property
    def layers(self) -> set[int]:
        """The numbers that pipelines give their layers, as the names of parameters begin with them."""
        heads = {name.split(".", 1)[0] for name in self.shapes}
        return {int(head) for head in heads if head.isascii() and head.isdigit() and len(head) < 7}


def facts_of(loaded: Iterable[Loaded]) -> Facts:
    """The facts of the files that were read; of several, the first that tells counts, and parameters add up."""
    facts = Facts()
    for one in loaded:
        value = one.value
        if not isinstance(value, dict):
            continue
        if "optimizer_state_dict" in value:
            _take_optimizer(facts, value)
        else:
            _take_model(facts, value)
    return facts


def is_foreign(value: Any) -> bool:
    """Whether a file that was read to its end, and is named like one of DeepSpeed's, holds nothing of DeepSpeed's."""
    return not (isinstance(value, dict) and _OWN_KEYS & set(filter(_is_text, value)))


_OWN_KEYS = frozenset(
    {"module", "optimizer", "optimizer_state_dict", "param_shapes", "ds_version", "dp_world_size", "global_steps"}
)


def _is_text(key: object) -> bool:
    return type(key) is str


def _take_model(facts: Facts, value: dict[Any, Any]) -> None:
    facts.dp = facts.dp or _count(scalar(value, "dp_world_size"))
    facts.mp = facts.mp or _count(scalar(value, "mp_world_size"))
    degrees = value.get("checkpoint_parallel_dimensions")
    facts.tp = facts.tp or _count(scalar(degrees, "tp_degree"))
    facts.pp = facts.pp or _count(scalar(degrees, "pp_degree"))
    if facts.tp and facts.pp and facts.mp and facts.tp * facts.pp != facts.mp:
        facts.tp = facts.pp = None
    if facts.step is None:
        facts.step = scalar(value, "global_steps")
    facts.stage = facts.stage if facts.stage is not None else _stage(value)
    shapes = value.get("param_shapes")
    has_own_state = bool(value.get("optimizer"))
    facts.is_partitioned = facts.is_partitioned or bool(facts.stage or shapes) and not has_own_state
    _take_shapes(facts, shapes)
    experts = value.get("num_experts")
    if isinstance(experts, list) and all(type(count) is int and 0 < count < 10_000 for count in experts):
        facts.experts = facts.experts or experts[:10_000]
    _take_roles(facts, value)


def _take_optimizer(facts: Facts, value: dict[Any, Any]) -> None:
    """An optimizer file tells fewer things; it is read where no file of the model could be."""
    state = value["optimizer_state_dict"]
    facts.is_partitioned = True
    counts = state.get("partition_count") if isinstance(state, dict) else None
    counts = counts if isinstance(counts, list) else [counts]
    known = [count for count in counts if type(count) is int]
    facts.dp = facts.dp or _count(max(known, default=None))
    facts.stage = facts.stage if facts.stage is not None else _stage(value)


def _count(number: int | None) -> int | None:
    return number if number is not None and 0 < number < _MAX_COUNT else None


def _stage(value: dict[Any, Any]) -> int | None:
    config = value.get("ds_config")
    zero = config.get("zero_optimization") if isinstance(config, dict) else None
    return scalar(zero, "stage")


def _take_shapes(facts: Facts, shapes: Any) -> None:
    for group in shapes if isinstance(shapes, list) else [shapes]:
        for name, shape in group.items() if isinstance(group, dict) else ():
            if isinstance(name, str) and isinstance(shape, tuple):
                facts.shapes[name] = shape


def _take_roles(facts: Facts, value: dict[Any, Any]) -> None:
    if value.get("optimizer"):
        facts.roles.add(Role.OPTIMIZER)
    if value.get("lr_scheduler") is not None:
        facts.roles.add(Role.SCHEDULER)
    if value.get("data_sampler") is not None:
        facts.roles.add(Role.DATALOADER)
    if any(isinstance(value.get(name), (dict, list, tuple, Record)) or value.get(name) for name in _RNG_NAMES):
        facts.roles.add(Role.RNG)
