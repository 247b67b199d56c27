from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.simulation.simulation import Simulation, Size, simulated


@pytest.fixture
def one(transactional_db: None, tmp_path: Path) -> Iterator[Simulation]:
    """One agent, online, and nothing that fails by itself."""
    with simulated(1, Size(agents=1, minutes=0, tasks=0), tmp_path) as simulation:
        simulation.build()
        simulation.wait(30)
        yield simulation
