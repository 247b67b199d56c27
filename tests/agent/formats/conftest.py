from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

DATA = Path(__file__).parents[2] / "data"


@pytest.fixture
def sample(tmp_path: Path) -> Callable[[str], Path]:
    """A writable copy of a folder of real checkpoints, by its name under tests/data."""

    def copy(name: str) -> Path:
        target = tmp_path / Path(name).name
        shutil.copytree(DATA / name, target)
        return target

    return copy
