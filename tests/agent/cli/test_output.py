from __future__ import annotations

import errno
from pathlib import Path
from typing import NoReturn

import pytest
from click.testing import CliRunner
from muster_agent.cli import ceiling, main
from muster_agent.cli.output import human_bytes, human_memory, human_rate


@pytest.mark.parametrize(
    ("bytes_per_second", "text"),
    [
        (0, "0 B/s"), (12, "12 B/s"), (1500, "1.5 kB/s"), (9_400_000, "9.4 MB/s"), (48e6, "48.0 MB/s"),
        (1e8, "0.10 GB/s"), (2.345e9, "2.35 GB/s"),
    ],
)  # fmt: skip
def test_a_slow_rate_is_not_rounded_to_nothing(bytes_per_second: float, text: str) -> None:
    assert human_rate(bytes_per_second) == text


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (MemoryError(), "there is not enough memory"),
        (OSError(errno.ENOSPC, "No space left on device"), "the output could not be written: No space left on device"),
    ],
)
def test_a_command_without_memory_or_room_for_its_answer_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, said: str
) -> None:
    def fail(*_: object, **__: object) -> NoReturn:
        raise error

    monkeypatch.setattr(ceiling, "remember", fail)
    monkeypatch.setattr(ceiling, "measure_ceiling", lambda *_, **__: None)
    done = CliRunner().invoke(main, ["ceiling", str(tmp_path)])
    assert done.exit_code == 1 and said in done.stderr and "what to do:" in done.stderr


def test_data_is_told_in_the_units_of_its_rate_and_memory_in_its_own() -> None:
    assert [human_bytes(count) for count in (999, 1000, 4 << 20, 1_500_000_000)] == [
        "999 B",
        "1.0 kB",
        "4.2 MB",
        "1.5 GB",
    ]
    assert [human_memory(count) for count in (1023, 1024, 4 << 20, 3 << 29)] == [
        "1023 B",
        "1.0 KiB",
        "4.0 MiB",
        "1.5 GiB",
    ]
