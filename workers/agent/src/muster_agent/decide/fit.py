"""Whether the asking job has the ranks that a checkpoint needs. Pure."""

from __future__ import annotations

import math

from muster_agent.decide.model import Candidate, ResumeRequest

_DEGREES = ("dp", "tp", "pp")
_WORDS = {"dp": "data-parallel ranks", "tp": "tensor-parallel ranks", "pp": "pipeline stages"}
_RESHARDS_BY_CONVERTING = {"deepspeed": "; convert it to a universal checkpoint to change that"}


def fit_reasons(one: Candidate, request: ResumeRequest) -> list[str]:
    """Half a sentence for each number that must be as it was and is not, as far as both are known."""
    return [reason for name in one.must_match if (reason := _mismatch(one, request, name))]


def _mismatch(one: Candidate, request: ResumeRequest, name: str) -> str | None:
    saved = one.world_size if name == "world_size" else getattr(one, name, None) if name in _DEGREES else None
    wanted = _wanted(one, request, name)
    if saved is not None and wanted is None:
        return _indivisible(saved, request) if name == "world_size" else _no_multiple(saved, request, name)
    if saved is None or wanted is None or saved == wanted:
        return None
    if name == "world_size":
        return f"it was saved by {saved} ranks that each load their own shard, not by {wanted}"
    how = _RESHARDS_BY_CONVERTING.get(one.format, "")
    if name == "dp" and one.format in _LOADER_ONLY:
        return f"its data-loader state is for {saved} data-parallel ranks, not for {wanted}"
    return f"it was saved by {saved} {_WORDS[name]}, not by {wanted}, and its format cannot change that{how}"


def _indivisible(saved: int, request: ResumeRequest) -> str | None:
    """Some of the degrees alone do not tell the world size, but each of them, and all together, must divide it."""
    given = [(name, degree) for name in _DEGREES if (degree := getattr(request, name)) is not None]
    if saved % math.prod(degree for _, degree in given) == 0:
        return None
    asked = " with ".join(f"{degree} {_WORDS[name]}" for name, degree in given)
    return f"it was saved by {saved} ranks that each load their own shard, and no job of so many has {asked}"


def _no_multiple(saved: int, request: ResumeRequest, name: str) -> str | None:
    if request.world_size is None or request.world_size % saved == 0:
        return None
    return f"it was saved by {saved} {_WORDS[name]}, and no job of {request.world_size} ranks has as many"


_LOADER_ONLY = frozenset({"dcp", "torchtitan"})
"""Formats that reshard everything but the state of the data loader."""


def _wanted(one: Candidate, request: ResumeRequest, name: str) -> int | None:
    if name == "world_size":
        return wanted_world_size(request)
    if name not in _DEGREES:
        return None
    asked: int | None = getattr(request, name)
    if asked is not None or request.world_size is None:
        return asked
    return _implied(one, request, name)


def _implied(one: Candidate, request: ResumeRequest, name: str) -> int | None:
    """A degree that was not given, from the world size: the others are taken to be as given, else as saved. None where
    one of them is not known either, or where they do not divide it."""
    assert request.world_size is not None
    others: list[int | None] = [getattr(request, other) or getattr(one, other) for other in _DEGREES if other != name]
    if None in others:
        others = [other or 1 for other in others] if name == "dp" and one.world_size == one.dp else []
    product = math.prod(other or 1 for other in others)
    return request.world_size // product if others and request.world_size % product == 0 else None


def wanted_world_size(request: ResumeRequest) -> int | None:
    """The job's world size: as given, else the product of all three degrees of parallelism."""
    if request.world_size is not None:
        return request.world_size
    degrees = (request.dp, request.tp, request.pp)
    return math.prod(degree for degree in degrees if degree) if all(degrees) else None
