"""Slurm's short form of many host names: `gpu-[1-3,07],login`. Pure."""

from __future__ import annotations

import re
from itertools import product

MAX_HOSTS = 100_000
_PART = re.compile(r"\[([^\]]*)\]")


def expand(text: str) -> tuple[str, ...]:
    """The names, in order. Raises ValueError for brackets that do not close, ranges that run backwards, and more than
    MAX_HOSTS names."""
    names: list[str] = []
    for word in _words(text):
        pieces = _PART.split(word)
        choices = [_numbers(piece) if index % 2 else [piece] for index, piece in enumerate(pieces)]
        names.extend("".join(chosen) for chosen in product(*choices))
        if len(names) > MAX_HOSTS:
            raise ValueError(f"more than {MAX_HOSTS} hosts")
    return tuple(names)


def _words(text: str) -> list[str]:
    """Split at commas outside brackets."""
    words, depth = [""], 0
    for letter in text:
        depth += (letter == "[") - (letter == "]")
        if depth not in (0, 1):
            raise ValueError(f"brackets do not match in {text!r}")
        if letter == "," and depth == 0:
            words.append("")
        else:
            words[-1] += letter
    if depth:
        raise ValueError(f"brackets do not match in {text!r}")
    return [word for word in words if word]


def _numbers(text: str) -> list[str]:
    found: list[str] = []
    for part in text.split(","):
        first, _dash, last = part.partition("-")
        low, high = int(first), int(last or first)
        if high < low or high - low > MAX_HOSTS:
            raise ValueError(f"{part!r} is no range of hosts")
        found.extend(str(number).zfill(len(first)) for number in range(low, high + 1))
    return found
