"""The choice of a path, from facts alone."""

from __future__ import annotations

import pytest
from muster_agent.probes.gds import GdsProbe, parse_probe
from muster_agent.protocol.results import CacheState
from muster_agent.reload import backends
from muster_agent.reload.backends import Device

from tests.agent.probes.recordings import example

GPU, NO_GPU = Device(index=1), Device(index=1, missing="no CUDA driver on this node")
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


@pytest.mark.parametrize(
    ("requested", "probe", "device", "path", "says"),
    [
        ("auto", WORKS, GPU, "gds", "straight to GPU memory"),
        ("auto", FAILS, GPU, "bounce", "not straight to the GPU, since cuFile did not open within 20 s"),
        ("auto", None, GPU, "bounce", "cuda:1 through pinned host memory"),
        ("auto", FAILS, None, "host", "around the page cache"),
        ("auto", None, NO_GPU, "host", "cuda:1 was asked for, but no CUDA driver on this node"),
        ("gds", FAILS, GPU, "bounce", "gds was asked for, but cuFile did not open within 20 s; blocks go to cuda:1"),
        ("gds", None, NO_GPU, "host", "gds was asked for, but it was not probed; so the bytes end in host memory"),
        ("host", WORKS, GPU, "bounce", "cuda:1 through pinned host memory"),
        ("host", None, None, "host", "around the page cache"),
        ("host_bounce", WORKS, GPU, "bounce", "cuda:1 through pinned host memory"),
        ("host_bounce", None, NO_GPU, "host", "so the bytes end in host memory"),
        ("host_direct", None, None, "host", "asked for"),
    ],
)
def test_a_device_that_was_asked_for_is_reached_by_the_best_way_that_works(
    requested: str, probe: GdsProbe | None, device: Device | None, path: str, says: str
) -> None:
    choice = backends.choose(requested, 0.0, probe, device)
    assert {"gds": choice.gds, "bounce": choice.bounce, "host": not choice.gds and not choice.bounce}[path]
    assert says in choice.reason


@pytest.mark.parametrize(
    ("name", "returncode", "usable", "says"),
    [
        ("canary-nvfs.txt", 0, True, "28784 reads went straight to GPU memory"),
        ("canary-posix.txt", 0, False, "all 16 reads went through host memory inside cuFile"),
        ("canary-no-counters.txt", 0, False, "no per-path counters"),
        ("canary-no-cufile.txt", 1, False, 'Failure finding "libcufile.so.0"'),
        ("canary-no-driver.txt", 1, False, "libcuda.so.1 is not installed"),
    ],
)
def test_probes_lead_to_gds_or_to_the_ring_of_our_own(name: str, returncode: int, usable: bool, says: str) -> None:
    probe = parse_probe(returncode, example(name), "")
    choice = backends.choose("gds", 0.0, probe, GPU)
    assert (probe.usable, choice.gds, choice.bounce) == (usable, usable, not usable)
    assert says in choice.reason
    assert ("gds was asked for, but" in choice.reason) is not usable


@pytest.mark.parametrize(
    ("requested", "device", "index"),
    [
        ("auto", "auto", None),
        ("auto", "cpu", None),
        ("auto", "cuda", 0),
        ("host", "cuda:3", 3),
        ("gds", "auto", 0),
        ("host_bounce", "auto", 0),
        ("host_bounce", "cuda:2", 2),
        ("host_direct", "auto", None),
    ],
)
def test_which_device_a_request_means(requested: str, device: str, index: int | None) -> None:
    assert backends.device_index_for(requested, device) == index


@pytest.mark.parametrize(
    ("requested", "device", "says"),
    [
        ("auto", "gpu1", "unknown device 'gpu1'"),
        ("auto", "cuda:x", "unknown device"),
        ("host_direct", "cuda:0", "keeps the bytes in host memory"),
        ("gds", "cpu", "needs a GPU"),
    ],
)
def test_a_device_that_makes_no_sense_is_refused_with_a_reason(requested: str, device: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        backends.device_index_for(requested, device)
