from __future__ import annotations

import pytest
from muster_agent.cli.output import human_rate


@pytest.mark.parametrize(
    ("bytes_per_second", "text"),
    [
        (0, "0 B/s"), (12, "12 B/s"), (1500, "1.5 kB/s"), (9_400_000, "9.4 MB/s"), (48e6, "48.0 MB/s"),
        (1e8, "0.10 GB/s"), (2.345e9, "2.35 GB/s"),
    ],
)  # fmt: skip
def test_a_slow_rate_is_not_rounded_to_nothing(bytes_per_second: float, text: str) -> None:
    assert human_rate(bytes_per_second) == text
