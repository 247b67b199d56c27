"""What a drill's figures mean, and what they do not prove."""

from __future__ import annotations

from typing import Any

import pytest

from apps.drills.meaning import Measured, ceiling_words, not_proven

CEILING = {"bytes_per_second": 4.0e9, "client_count": 4}
READ = {"resolve": 1.0, "read": 9.0}


def measured(**fields: Any) -> Measured:
    values: dict[str, Any] = {
        "kind": "herd",
        "outcome": "passed",
        "phases": READ,
        "verified": True,
        "cached_ratio_before": 0.0,
        "effective": ("gds",),
        "client_count": 4,
        "world_size": 4,
    }
    return Measured(**{**values, **fields})


@pytest.mark.parametrize(
    ("ratio", "ceiling", "cached", "words"),
    [
        (0.71, CEILING, 0.0, "71.0 % of 4.00 GB/s with 4 clients"),
        (1.01, CEILING, 0.0, "100.0 % of 4.00 GB/s with 4 clients"),
        (None, None, 0.0, "not measured with as many clients"),
        (None, CEILING, 0.4, "not judged against 4.00 GB/s with 4 clients: 40.0 % came from the nodes' memory"),
        (None, CEILING, None, "not measured, so not judged"),
        (1.338, CEILING, 0.0, "1.34 times the measured ceiling (4.00 GB/s with 4 clients), so that was no upper limit"),
        (1.338, CEILING, 0.0, "the storage's own cache may have helped"),
        (
            1.0,
            {**CEILING, "method": "this drill, the best that was measured; before it 3.00 GB/s by fio"},
            0.0,
            "the most that was ever measured there (4.00 GB/s with 4 clients); before it 3.00 GB/s by fio",
        ),
        (1.338, CEILING, None, "how much came from the nodes' memory is not known"),
    ],
)
def test_a_rate_above_its_ceiling_is_words_and_no_percentage(
    ratio: float | None, ceiling: Any, cached: float | None, words: str
) -> None:
    told = ceiling_words(ratio, ceiling, cached)
    assert words in told and "133" not in told


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, "A recovery: this is the storage part only. Not measured: detect, reschedule, launch,"),
        ({}, "one drill is one sample"),
        ({"verified": None}, "no manifest to compare with"),
        ({"cached_ratio_before": 0.3}, "30.0 % of the bytes lay in the nodes' memory before"),
        ({"cached_ratio_before": None}, "what was cached before could not be told"),
        ({"evict": False}, "the page cache was not dropped first"),
        ({"effective": ("host_direct",)}, "GPUDirect Storage: the bytes went by host_direct"),
        ({"effective": ("host_direct",)}, "they ended in the nodes' memory"),
        ({"max_bytes_per_second": 500_000_000}, "each client was held to 500 MB/s"),
        ({"world_size": 64}, "All 64 ranks reading at once, each in its own process: 4 clients read for them."),
        ({"kind": "failover", "fault": "process"}, "A recovery from a dead node or link: this fault was a process."),
        ({"kind": "failover", "fault": "process"}, "only the loss over many steps shows more"),
        ({"kind": "bandwidth"}, "bytes were read, and none were compared"),
        ({"kind": "standby"}, "no training process was restarted on it"),
        ({"outcome": "failed"}, "It did not pass, so it proves nothing about a recovery"),
    ],
)
def test_what_is_not_proven_is_said(fields: dict[str, Any], words: str) -> None:
    assert any(words in line for line in not_proven(measured(**fields)))


def test_what_was_shown_is_not_doubted() -> None:
    text = " ".join(not_proven(measured()))
    for word in ("manifest", "GPUDirect", "memory before", "held to", "ranks reading"):
        assert word not in text
