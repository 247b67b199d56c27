"""How large a made-up fleet is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from django.db import models

BATCH = 2000
WHO = "seed"


@dataclass(frozen=True)
class Size:
    """Numbers of rows; what is not named follows from these."""

    checkpoints: int = 10_000
    shards_each: int = 100
    drills: int = 10_000
    nodes: int = 1_000
    runs: int = 100
    clusters: int = 4

    @property
    def steps(self) -> int:
        """Checkpoints of each run."""
        return max(1, self.checkpoints // self.runs)


def create(model: type[models.Model], rows: Iterable[Any]) -> list[Any]:
    """Insert in batches; gives the rows with their ids."""
    made: list[Any] = []
    for batch in batches(rows):
        made += model._default_manager.bulk_create(batch)
    return made


def batches(rows: Iterable[Any], size: int = BATCH) -> Iterator[list[Any]]:
    stream = iter(rows)
    while batch := list(islice(stream, size)):
        yield batch
