"""The choice of a path, from facts alone."""

from __future__ import annotations

import pytest
from muster_agent.probes.gds import GdsProbe
from muster_agent.protocol.results import CacheState
from muster_agent.reload import backends

WORKS = GdsProbe(usable=True, reason="8 reads went straight to GPU memory and none through the host")
FAILS = GdsProbe(usable=False, reason="cuFile did not open within 20 s")


@pytest.mark.parametrize(
    ("requested", "cached", "probe", "gds", "direct"),
    [
        ("auto", 0.0, None, False, True),
        ("auto", None, None, False, True),
        ("auto", 1.0, None, False, False),
        ("auto", 0.3, FAILS, False, True),
        ("auto", 0.0, WORKS, True, True),
        ("gds", 0.0, WORKS, True, True),
        ("gds", 0.0, FAILS, False, True),
        ("gds", 0.0, None, False, True),
        ("host", 0.0, WORKS, False, True),
        ("host", 0.9, None, False, False),
        ("host_direct", 1.0, WORKS, False, True),
        ("host_buffered", 0.0, WORKS, False, False),
    ],
)
def test_the_choice_follows_the_request_and_the_facts(
    requested: str, cached: float | None, probe: GdsProbe | None, gds: bool, direct: bool
) -> None:
    choice = backends.choose(requested, cached, probe)
    assert (choice.gds, choice.direct) == (gds, direct)
    assert choice.reason


def test_a_refused_gds_says_why() -> None:
    assert "did not open within 20 s" in backends.choose("gds", 0.0, FAILS).reason


def test_an_unknown_word_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match="host_direct"):
        backends.choose("s4", None, None)


@pytest.mark.parametrize(
    ("ratio", "word"),
    [(None, "unknown"), (0.0, "cold"), (0.01, "cold"), (0.02, "mixed"), (0.98, "mixed"), (0.99, "warm"), (1.0, "warm")],
)
def test_cache_words(ratio: float | None, word: str) -> None:
    assert backends.cache_state(ratio) == CacheState(word)


def test_the_effective_host_path_is_what_the_bytes_did() -> None:
    assert backends.effective_host(100, 0, True)[0] == "host_direct"
    assert backends.effective_host(0, 100, False) == ("host_buffered", "")
    refused, why = backends.effective_host(0, 100, True)
    assert refused == "host_buffered" and "refuses O_DIRECT" in why
    assert backends.effective_host(60, 40, True)[0] == "mixed"


@pytest.mark.parametrize(
    ("counts", "effective"),
    [
        ({"p2p": 5, "nvfs": 0, "posix": 0}, "gds"),
        ({"p2p": 0, "nvfs": 5, "posix": 0}, "gds"),
        ({"p2p": 5, "nvfs": 0, "posix": 1}, "mixed"),
        ({"p2p": 0, "nvfs": 0, "posix": 9}, "host_bounce"),
        ({"p2p": 0, "nvfs": 0, "posix": 0}, "unknown"),
        (None, "unknown"),
    ],
)
def test_only_cufiles_counters_make_it_gds(counts: dict[str, int] | None, effective: str) -> None:
    assert backends.effective_gds(counts)[0] == effective


def test_a_named_backend_must_happen_and_auto_may_choose() -> None:
    assert backends.is_as_requested("auto", "host_buffered")
    assert backends.is_as_requested("host_direct", "host_direct")
    assert not backends.is_as_requested("gds", "host_bounce")
    assert not backends.is_as_requested("gds", "unknown")
