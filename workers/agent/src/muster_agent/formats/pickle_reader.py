"""A reader of pickled metadata that runs nothing.

It interprets the opcodes itself, without recursion and without the pickle module. A name in the pickle becomes a
`Symbol`, a call of it a `Record` that remembers its arguments; only names from the caller's closed list may appear, and
any other ends the reading. Lengths are checked against the bytes that are there before anything is allocated.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from muster_agent.formats.pickle_lean import LEAN_TABLE, Fold, LeanMachine, Run
from muster_agent.formats.pickle_machine import PickleRefused, Record, Symbol

_LARGE_BYTES = 256 * 1024

__all__ = ["PickleRefused", "Record", "Symbol", "read_pickle"]


def read_pickle(
    data: bytes,
    allowed: frozenset[str],
    callable_names: frozenset[str],
    folds: Mapping[str, Fold] | None = None,
    transparent: frozenset[str] = frozenset(),
    runs: Callable[[LeanMachine], Mapping[str, Run]] | None = None,
    enumerations: frozenset[str] = frozenset(),
) -> Any:
    """The pickled value made of inert parts: None, bool, int, float, str, bytes, list, tuple, dict, Symbol and Record.

    `allowed` are the full names that may appear, `callable_names` those that may be called; `folds` and `transparent`
    make other values of some objects, `runs` read many at once, and members of `enumerations` may be asked for by name
    (see LeanMachine). Raises PickleRefused, and limits.NeedsChild for more bytes than this process should parse.
    """
    return run(LeanMachine(data, allowed, callable_names, folds, transparent, enumerations), runs)


def run(machine: LeanMachine, runs: Callable[[LeanMachine], Mapping[str, Run]] | None = None) -> Any:
    """As read_pickle, by a machine that is at the first byte."""
    with without_collector(len(machine.data)):
        machine.runs = runs(machine) if runs else {}
        try:
            return machine.run(LEAN_TABLE)
        finally:
            machine.runs = {}  # or the two would keep each other, and all that was read, alive


@contextmanager
def without_collector(size_bytes: int) -> Iterator[None]:
    """Where much is read, do not look for reference cycles meanwhile: that would take a third of the time."""
    pause = size_bytes > _LARGE_BYTES and gc.isenabled()
    if pause:
        gc.disable()
    try:
        yield
    finally:
        if pause:
            gc.enable()
