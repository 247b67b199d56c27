"""Random fleets under random faults: few in `make test`, 200 with ALL=1, more with `make simulate SEEDS=10000`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from apps.core.models import Transition
from apps.fleet.models import Cluster, TaskGroup
from tests.simulation.checker import violations
from tests.simulation.history import History
from tests.simulation.simulation import FULL, SMALL, simulated

SIZES = {"small": SMALL, "full": FULL}
SIZE = os.environ.get("MUSTER_SIMULATE_SIZE") or "small"
FIRST = int(os.environ.get("MUSTER_SIMULATE_FIRST") or 0)
SEEDS = int(os.environ.get("MUSTER_SIMULATE_SEEDS") or 200)
CHUNK = 10 if SIZE == "small" else 1
ASKED = "MUSTER_SIMULATE_SEEDS" in os.environ


def _chunks() -> Iterator[object]:
    for first in range(FIRST, FIRST + SEEDS, CHUNK):
        last = min(first + CHUNK, FIRST + SEEDS) - 1
        few = first == FIRST or ASKED
        yield pytest.param(range(first, last + 1), id=f"{first}-{last}", marks=() if few else pytest.mark.slow)


def played(seed: int, size: str, folder: Path) -> History:
    with simulated(seed, SIZES[size], folder / f"seed-{seed}") as simulation:
        return simulation.run()


def forget_everything() -> None:
    for model in (Cluster, TaskGroup, Transition):
        model.objects.all().delete()


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("seeds", list(_chunks()))
def test_no_task_is_lost_doubled_or_taken_back_whatever_befalls_the_fleet(seeds: range, tmp_path: Path) -> None:
    for seed in seeds:
        found = violations(played(seed, SIZE, tmp_path))
        again = f"make simulate SEED={seed} SIZE={SIZE}"
        assert not found, "\n".join([f"seed {seed}; run it again with `{again}`", *found])
        forget_everything()


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_fifty_agents_over_an_hour(tmp_path: Path) -> None:
    history = played(0, "full", tmp_path)
    assert not violations(history), "run it again with `make simulate SEED=0 SIZE=full`"
    assert len(history.tasks) > 200


@pytest.mark.django_db(transaction=True)
def test_the_same_seed_gives_the_same_history(tmp_path: Path) -> None:
    one = played(3, "small", tmp_path / "one")
    forget_everything()
    other = played(3, "small", tmp_path / "other")
    assert (one.works, one.tasks, one.emitted) == (other.works, other.tasks, other.emitted)
