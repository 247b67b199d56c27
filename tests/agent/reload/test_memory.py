"""What this process may still take, asked for in processes that have less."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from muster_agent.reload import memory


def _elsewhere(code: str) -> str:
    """What `code` prints in a process of its own."""
    command = [sys.executable, "-c", textwrap.dedent(code)]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.strip()


@pytest.mark.parametrize("limit", ["RLIMIT_AS", "RLIMIT_DATA"])
def test_an_arena_beyond_a_limit_of_the_process_is_refused_before_it_is_touched(limit: str) -> None:
    said = _elsewhere(f"""
        import resource
        from muster_agent.reload.arena import Arena
        from muster_agent.reload.plan import Extent
        from muster_agent.reload.memory import NoRoom
        resource.setrlimit(resource.{limit}, (900 << 20, 900 << 20))
        try:
            Arena([Extent(0, 0, 2 << 30)])
        except NoRoom as error:
            print(error)
    """)
    assert said.startswith("the shards need 2.0 GiB of memory, and 0.")


def test_buffers_that_the_kernel_refuses_are_no_room_and_not_a_traceback() -> None:
    said = _elsewhere("""
        import resource
        from muster_agent.reload.buffers import BufferRing
        from muster_agent.reload.memory import NoRoom
        resource.setrlimit(resource.RLIMIT_AS, (200 << 20, 200 << 20))
        try:
            BufferRing(64, 8 << 20)
        except NoRoom as error:
            print(type(error).__name__)
    """)
    assert said == "NoRoom"


def test_a_process_that_may_not_lock_memory_reads_all_the_same() -> None:
    said = _elsewhere("""
        import resource
        from muster_agent.reload.buffers import BufferRing
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (0, 0))
        ring = BufferRing(2, 4 << 20)
        print(ring.prefaulted)
    """)
    assert said in ("True", "False")


def test_huge_pages_that_are_switched_off_are_not_claimed() -> None:
    said = _elsewhere("""
        import ctypes
        from muster_agent.reload.buffers import BufferRing
        assert ctypes.CDLL(None).prctl(41, 1, 0, 0, 0) == 0  # PR_SET_THP_DISABLE
        ring = BufferRing(2, 4 << 20)
        with ring.lend() as view:
            view[0] = 1
        print(ring.huge_pages)
    """)
    assert said == "False"


def test_a_machine_that_never_gives_huge_pages_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "enabled").write_text("always madvise [never]\n")
    monkeypatch.setattr(memory, "_HUGE_PAGES", str(tmp_path / "enabled"))
    assert not memory.may_have_huge_pages()


def test_a_limit_of_a_group_above_counts_and_clean_pages_can_be_had_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = next(line for line in Path("/proc/self/cgroup").read_text().splitlines() if line.startswith("0::"))
    group = own.partition("::")[2].strip("/")
    place = tmp_path / group
    place.mkdir(parents=True, exist_ok=True)
    (place / "memory.max").write_text("max\n")
    (tmp_path / "memory.max").write_text("1000000\n")
    (tmp_path / "memory.current").write_text("700000\n")
    (tmp_path / "memory.stat").write_text("anon 1\ninactive_file 50000\nactive_file 9\n")
    monkeypatch.setattr(memory, "_CGROUP", str(tmp_path))
    assert memory.available_bytes() == 350_000
