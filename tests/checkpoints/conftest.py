"""What most tests of checkpoints begin with."""

from __future__ import annotations

from typing import Any

import factories
import pytest


@pytest.fixture
def tier() -> Any:
    """A tier of a cluster with one agent."""
    cluster = factories.cluster()
    factories.agent(factories.node(cluster))
    return factories.tier(cluster)
