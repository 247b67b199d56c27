"""How many threads read, and how much at a time."""

from __future__ import annotations

import pytest
from muster_agent.reload.pace import READERS, pace_of

MIB = 1 << 20


@pytest.mark.parametrize(("cpus", "cached", "local"), [(1, 1, 2), (2, 2, 3), (7, 7, 8), (64, 8, 8)])
def test_memory_gets_a_reader_per_cpu_and_a_device_of_this_node_one_more(cpus: int, cached: int, local: int) -> None:
    assert pace_of(from_cache=True, is_remote=False, cpus=cpus) == (cached, MIB)
    assert pace_of(from_cache=False, is_remote=False, cpus=cpus) == (local, None)


@pytest.mark.parametrize("cpus", [1, 2, 64])
def test_another_machine_is_asked_by_many_whatever_this_one_has(cpus: int) -> None:
    assert pace_of(from_cache=False, is_remote=True, cpus=cpus) == (READERS, None)
