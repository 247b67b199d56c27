"""What the value in a file of `torch.save` says of itself: which parts of a training state it holds, at which step."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from muster_agent.formats.base import Role
from muster_agent.formats.pickle_machine import Record
from muster_agent.formats.torch_archive import Loaded
from muster_agent.formats.torch_numbers import number_in
from muster_agent.formats.torch_values import Instance, TensorValue, named_tensors

STEP_NAMES = (
    *("global_step", "step", "iteration", "global_steps", "iter", "train_step", "num_updates", "step_count"),
    *(
        "iter_num",
        "current_step",
        "completed_steps",
        "batch_idx_train",
        "global_iter",
        "current_iter",
        "steps",
        "steps_run",
    ),
)
_EPOCH_NAMES = ("epoch", "current_epoch", "epochs_done", "num_epochs_done")
_INNER_STATES = (
    "train_state",
    "trainer_state",
    "progress",
    "state",
    "trainer",
    "extra_state",
    "last_optimizer_state",
    "training_state",
    "meta",
)
"""Where scripts put the counters, one level down."""
_CONTAINERS = frozenset(
    {"state", "app", "checkpoint", "ckpt", "train_state", "training_state", "state_dict", "classy_state_dict"}
)
_NO_STATE = re.compile(r"config|args|history|name|class|version|hparams|hyper")
_ROLE_WORDS = (
    (re.compile(r"sched"), Role.SCHEDULER),
    (re.compile(r"optim"), Role.OPTIMIZER),
    (re.compile(r"(?:^|[_.-])rng|random_?(?:number_?)?(?:gen|state)"), Role.RNG),
    (re.compile(r"data_?loader|sampler|train_iterator|data_?set_state|data_state"), Role.DATALOADER),
)
_ANY_STATE = re.compile(r"model|ckpt|checkpoint|weight|backbone|last|best|epoch|latest")
_MODEL_WORDS = re.compile(r"model|module|net|ema|weights|params|backbone|encoder|decoder")
_LOOK_LIMIT = 2_000
"""Values looked at to see whether a part holds any tensor."""


_Number = Callable[[TensorValue], int | float | None]


def loaded_step(loaded: Loaded) -> int | None:
    """The training step: a plain counter at the top, one level down, or where Composer and fairseq keep theirs. A
    counter may be a tensor of one number, whose bytes are read."""
    value, number = loaded.value, partial(number_in, loaded)
    found = _count(value, STEP_NAMES, number)
    if found is not None:
        return found
    for name in _INNER_STATES:
        found = _step_one_level_down(_part(value, name), name, number)
        if found is not None:
            return found
    history = _part(value, "optimizer_history")
    return _count(history[-1], ("num_updates",), number) if isinstance(history, list) and history else None


def _step_one_level_down(inner: Any, name: str, number: _Number) -> int | None:
    found = _count(inner, STEP_NAMES, number)
    if found is None and name == "state":
        found = _count(_part(_part(inner, "timestamp"), "Timestamp"), ("batch",), number)
    if found is None and name == "extra_state":
        found = _count(_part(inner, "train_iterator"), ("num_updates",), number)
    return found


def loaded_epoch(loaded: Loaded) -> int | None:
    """How many epochs the state has seen, or which it was in, where it says so."""
    number = partial(number_in, loaded)
    inner = (_count(_part(loaded.value, name), _EPOCH_NAMES, number) for name in _INNER_STATES)
    at_top = _count(loaded.value, _EPOCH_NAMES, number)
    return at_top if at_top is not None else next((found for found in inner if found is not None), None)


def _count(value: Any, names: tuple[str, ...], number: _Number) -> int | None:
    """The first of the names under which a whole number lies."""
    for name in names:
        held = _part(value, name)
        if type(held) is TensorValue:
            held = number(held)
        if type(held) is float and held.is_integer():
            held = int(held)
        if type(held) is int and 0 <= held < 1 << 63:
            return held
    return None


def roles_in(value: Any, file_name: str) -> set[Role]:
    """The roles of what is in the file, by its name where that says only one, else by the keys at its top."""
    stem = file_name.rsplit("/", 1)[-1].rsplit(".", 1)[0].lower()
    by_name = role_of_key(stem)
    if by_name is not None and not _ANY_STATE.search(stem):
        return {by_name}
    return _roles_of(value, depth=0) or ({Role.MODEL} if _has_tensors(value) else set())


def _roles_of(value: Any, depth: int) -> set[Role]:
    parts = dict(_parts(value))
    if "param_groups" in parts and "state" in parts:
        return {Role.OPTIMIZER}
    roles: set[Role] = set()
    for key, part in parts.items():
        if part is None or part is False or part in ({}, [], (), ""):
            continue
        if depth == 0 and key in _CONTAINERS and isinstance(part, dict):
            roles |= _roles_of(part, depth=1)
            continue
        role = role_of_key(key)
        if role is not None and isinstance(part, (dict, list, tuple, Record)):
            roles.add(role)
        elif _is_optimizer(part):
            roles.add(Role.OPTIMIZER)
        elif role is None and (_has_tensors(part) or (isinstance(part, Record) and _MODEL_WORDS.search(key.lower()))):
            roles.add(Role.MODEL)
    return roles


def role_of_key(key: str) -> Role | None:
    """The role that a key, or a file's name, gives by its words; None where it gives none."""
    word = key.lower()
    if _NO_STATE.search(word):
        return None
    return next((role for pattern, role in _ROLE_WORDS if pattern.search(word)), None)


def _is_optimizer(part: Any) -> bool:
    return isinstance(part, dict) and "param_groups" in part and "state" in part


def _has_tensors(value: Any) -> bool:
    """A lone number that happens to be a tensor (a loss, a best score) is no state."""
    return any(tensor.shape != () for _, tensor in named_tensors(value, limit=_LOOK_LIMIT))


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Instance) and isinstance(value.items, dict):
        yield from _parts(value.items)
    if isinstance(value, Record):
        value = value.state
    if isinstance(value, dict):
        yield from ((key, part) for key, part in value.items() if isinstance(key, str))


def _part(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, (dict, Record)) else None
