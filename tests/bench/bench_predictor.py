"""The predictor against reads that really happened, each capped as a storage of known limits would cap it.

    python tests/bench/bench_predictor.py [--directory DIR] [--scale 1.0]

N readers (threads, each an own reload with an own cap) start together and read their shares of a checkpoint. The cap of
each is what one reader gets, or its part of what the storage gives to all. A ladder gives the ceilings and six drills
the fit; fourteen further drills of other sizes and reader counts are held out. Printed: each, and MAPE and bias.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path

from muster_agent.jobs.reload import prepare
from muster_agent.protocol.wire import ReloadParams

from apps.recovery.scaling import Ceiling, Checked, Reading, error, fit, rates

MB = 1_000_000
ONE_READER, TOGETHER = 40 * MB, 120 * MB
LADDER = (1, 2, 3, 4, 6)
FITTED = ((12, 1), (24, 2), (36, 3), (48, 4), (30, 1), (60, 6))
HELD_OUT = tuple((size, readers) for size in (20, 44, 80) for readers in (1, 2, 3, 5)) + ((100, 4), (100, 6))


def read_seconds(folder: Path, megabytes: float, readers: int) -> float:
    """From the common start until the slowest reader has its share."""
    size = int(megabytes * MB)
    path = folder / "model.bin"
    with path.open("wb") as data:
        data.write(os.urandom(MB) * (size // MB + 1))
        data.truncate(size)
    cap = min(ONE_READER, TOGETHER // readers)
    ready, took = threading.Barrier(readers), [0.0] * readers

    def client(number: int) -> None:
        share = (number, readers) if readers > 1 else None
        params = ReloadParams(path=str(folder), shards=(path.name,), share=share, max_bytes_per_second=cap)
        prepared = prepare(params)
        ready.wait()
        took[number] = prepared.run().report.seconds

    threads = [threading.Thread(target=client, args=(number,)) for number in range(readers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return max(took)


def drills(folder: Path, asked: Sequence[tuple[int, int]], scale: float) -> list[Reading]:
    return [
        Reading(int(megabytes * scale * MB), readers, read_seconds(folder, megabytes * scale, readers))
        for megabytes, readers in asked
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--directory", type=Path)
    parser.add_argument("--scale", type=float, default=1.0, help="of all sizes; caps stay")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="predictor-", dir=options.directory))
    try:
        ladder = drills(folder, [(16 * readers, readers) for readers in LADDER], options.scale)
        fitted = drills(folder, FITTED, options.scale)
        limits = rates([Ceiling(one.reader_count, one.total_bytes / one.seconds) for one in (*ladder, *fitted)])
        assert limits is not None
        model = fit(limits, fitted[::-1])
        checked = [
            Checked(one, model.seconds(one.total_bytes, one.reader_count))
            for one in drills(folder, HELD_OUT, options.scale)
        ]
    finally:
        shutil.rmtree(folder)
    print(f"fixed {model.fixed_seconds:.3f} s, efficiency {model.efficiency_ratio:.3f}, knee seen: {limits.has_knee}")
    for one in checked:
        reading, off = one.reading, one.predicted_seconds / one.reading.seconds - 1
        print(
            f"{reading.total_bytes / MB:6.0f} MB, {reading.reader_count} readers: measured {reading.seconds:.3f} s, "
            f"predicted {one.predicted_seconds:.3f} s, {100 * off:+.1f} %"
        )
    found = error(checked)
    assert found is not None
    print(f"{found.count} held out: MAPE {100 * found.mape_ratio:.1f} %, bias {100 * found.bias_ratio:+.1f} %")


if __name__ == "__main__":
    main()
