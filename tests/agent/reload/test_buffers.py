"""The ring of read buffers."""

from __future__ import annotations

import ctypes
import threading

import pytest
from muster_agent.probes.process import PeakMemory
from muster_agent.reload import buffers
from muster_agent.reload.buffers import HUGE_PAGE_BYTES, BufferRing


def address(view: memoryview) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(view))


def test_buffers_are_aligned_writable_and_do_not_overlap() -> None:
    ring = BufferRing(3, 3 * 1024 * 1024)
    with ring.lend() as one, ring.lend() as two, ring.lend() as three:
        starts = sorted(address(view) for view in (one, two, three))
        assert all(start % HUGE_PAGE_BYTES == 0 for start in starts)
        assert starts[1] - starts[0] >= len(one) == 4 * 1024 * 1024
        one[-1], two[0] = 7, 8
        assert (one[-1], two[0]) == (7, 8)
    ring.close()


def test_the_memory_is_resident_before_the_first_read() -> None:
    memory = PeakMemory()
    ring = BufferRing(4, 8 * 1024 * 1024)
    assert memory.extra_bytes() >= 30 * 1024 * 1024
    ring.close()


def test_without_the_kernels_help_each_page_is_touched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buffers, "advise", lambda *_arguments: False)
    memory = PeakMemory()
    ring = BufferRing(4, 8 * 1024 * 1024)
    assert (ring.huge_pages, ring.prefaulted) == (False, False)
    assert memory.extra_bytes() >= 30 * 1024 * 1024
    ring.close()


def test_a_lent_buffer_comes_back_to_the_next_who_waits() -> None:
    ring = BufferRing(1, 1)
    got = threading.Event()

    def borrow() -> None:
        with ring.lend():
            got.set()

    waiting = threading.Thread(target=borrow)
    with ring.lend():
        waiting.start()
        assert not got.wait(0.1)
    assert got.wait(5)
    waiting.join()
    ring.close()
