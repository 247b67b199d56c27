"""A GPU for tests that ask for one: the stand-in for the CUDA driver."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from muster_agent.probes import cuda

from tests.agent.reload.gpu_stand_in import StandIn, compile_driver


@pytest.fixture(scope="session")
def driver_library(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The compiled library; its folder can lead a child's LD_LIBRARY_PATH."""
    return compile_driver(str(tmp_path_factory.mktemp("cuda")))


@pytest.fixture
def gpu(driver_library: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[StandIn]:
    """A GPU for this test; what the test took of it must have been given back at its end."""
    monkeypatch.setattr(cuda, "DRIVER_LIBRARY", driver_library)
    stand_in = StandIn(driver_library)
    yield stand_in
    assert stand_in.held() == {}, "the device's memory, pinned pages, streams and contexts are given back"
