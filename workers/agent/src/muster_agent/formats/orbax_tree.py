"""What an Orbax item says of itself: the tree of values in `_METADATA`. Read without trust."""

from __future__ import annotations

from typing import Any, NamedTuple

from muster_agent.formats.base import Role
from muster_agent.formats.draft import role_of

_ARRAY_TYPES = ("jax.Array", "np.ndarray", "scalar")
_MODEL_WORDS = ("params", "model")
_DEPTH_OF_ROLES = 2


class Tree(NamedTuple):
    """`arrays` are the names of the values that are kept as arrays. `stores_all` says that every chunk is written, also
    one that holds nothing but the fill value."""

    arrays: frozenset[str]
    names: tuple[str, ...]
    uses_ocdbt: bool | None
    stores_all: bool
    describes_arrays: bool


def parse_tree(document: Any) -> Tree:
    """The tree in the decoded JSON of `_METADATA`. Raises ValueError for anything else."""
    entries = document.get("tree_metadata") if isinstance(document, dict) else None
    if not isinstance(entries, dict):
        raise ValueError("it has no tree_metadata")
    arrays, names, describes = set(), [], False
    for entry in entries.values():
        name = _name(entry)
        value = None if name is None else entry.get("value_metadata")
        if name is None or not isinstance(value, dict):
            raise ValueError("an entry of its tree has no name or no value")
        names.append(name)
        if value.get("value_type") in _ARRAY_TYPES and not value.get("skip_deserialize"):
            arrays.add(name)
            describes = describes or value.get("write_shape") is not None
    uses = document.get("use_ocdbt")
    stores_all = document.get("store_array_data_equal_to_fill_value") is True
    return Tree(frozenset(arrays), tuple(names), uses if isinstance(uses, bool) else None, stores_all, describes)


def _name(entry: Any) -> str | None:
    keys = entry.get("key_metadata") if isinstance(entry, dict) else None
    if not isinstance(keys, list) or not all(isinstance(key, dict) for key in keys):
        return None
    return ".".join(str(key.get("key")) for key in keys)


def role_of_param(name: str) -> Role:
    """The role of a value by the first parts of its name: `opt_state.mu` and `state.opt_state.mu` are optimizer
    state, and so is nothing below `params`."""
    for part in name.split(".", _DEPTH_OF_ROLES)[:_DEPTH_OF_ROLES]:
        if part in _MODEL_WORDS:
            return Role.MODEL
        role = role_of(part)
        if role is not Role.MODEL:
            return role
    return Role.MODEL
