"""Who came last, in which phase it lost its time, and what the round would have taken without it."""

from __future__ import annotations

from typing import Any

import pytest

from apps.drills.last_client import last_client
from apps.drills.reload import ClientFigures


def client(name: str, read: float, **fields: Any) -> ClientFigures:
    phases = {"resolve": 1.0, "read": read, "materialize": 2.0}
    values: dict[str, Any] = {"bytes": 10_000, "seconds": read + 3.0, "started_seconds": 1000.0, "phases": phases}
    return ClientFigures(name=name, ranks=(int(name[-1]),), **{**values, **fields})


def test_the_last_one_is_blamed_for_the_phase_that_took_longest_against_the_others() -> None:
    found = last_client([client("gpu-1", 10.0), client("gpu-2", 10.5), client("gpu-3", 9.5), client("gpu-4", 20.0)])
    assert found is not None
    assert (found.name, found.ranks, found.phase, found.is_straggler) == ("gpu-4", (4,), "read", True)
    assert (found.end_seconds, found.without_seconds) == (23.0, 13.5)
    assert found.excess_seconds == pytest.approx(10.0) and found.rate_ratio == pytest.approx(0.5)
    assert found.sentence == (
        "Rank 4 on gpu-4 ended 9.8 s after the median: it read at 0.50 of the others' rate. Without it: 14 s."
    )


def test_a_rank_with_more_bytes_is_late_but_not_slow() -> None:
    found = last_client([client("gpu-1", 10.0), client("gpu-2", 10.0), client("gpu-3", 20.0, bytes=20_000)])
    assert found is not None and found.rate_ratio == pytest.approx(1.0)


def test_one_that_began_late_is_last_by_the_common_clock() -> None:
    late = client("gpu-1", 10.0, started_seconds=1007.0)
    found = last_client([late, client("gpu-2", 10.0), client("gpu-3", 10.0)])
    assert found is not None and (found.name, found.end_seconds, found.is_straggler) == ("gpu-1", 20.0, False)


def test_clients_that_end_together_have_nobody_to_blame() -> None:
    found = last_client([client("gpu-1", 10.0), client("gpu-2", 10.01), client("gpu-3", 10.0)])
    assert found is not None and found.sentence.startswith("All clients ended together; Rank 2 on gpu-2 came last by")


def test_two_clients_have_no_usual_one() -> None:
    assert last_client([client("gpu-1", 10.0), client("gpu-2", 20.0)]) is None
    assert last_client([]) is None
