"""Choosing at random in a way that can be repeated. Pure."""

from __future__ import annotations

import random
from collections.abc import Sequence


def choose_random(steps: Sequence[int], seed: int) -> int | None:
    """One of `steps` (ascending), the same for the same seed and steps; None of none."""
    return random.Random(seed).choice(steps) if steps else None
