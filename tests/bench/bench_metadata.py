"""How long a checkpoint takes whose metadata is huge, in a process of its own, and what else can be read meanwhile.

    python tests/bench/bench_metadata.py [--directory DIR] [--tensors 15625] [--ranks 64]

Writes DCP metadata of tensors x ranks entries with a pickle writer of its own (no torch) and empty files of the
promised sizes, then reads the checkpoint as a scan does: in a child, while this process goes on with small checkpoints.
The peer in the same run is Python's C unpickler over the same bytes with classes that do nothing; it executes what a
file asks for, holds everything, and checks nothing.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import zlib
from pathlib import Path

from metadata_writer import Shape, write_metadata
from muster_agent.formats.checkpoint import Later, begin_folder, now, read_checkpoint
from muster_agent.formats.child import Children
from muster_agent.formats.folder import look
from muster_agent.formats.verdict import AgeLimit

SAMPLE = Path(__file__).resolve().parents[1] / "data" / "dcp" / "w2" / "step-10"
PEER = """
import gc, pickle, resource, sys, time
class Thing:
    def __init__(self, *args): pass
class WithTuple(Thing):
    def __setstate__(self, state): self.state = state
class Inert(pickle.Unpickler):
    def find_class(self, module, name): return {"Size": tuple, "TensorProperties": WithTuple}.get(name, Thing)
gc.disable()
began, cpu = time.monotonic(), time.process_time()
with open(sys.argv[1], "rb") as stream: value = Inert(stream).load()
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(time.monotonic() - began, time.process_time() - cpu, peak >> 10)
"""


def write_checkpoint(folder: Path, shape: Shape) -> int:
    """A folder with huge metadata and files that are all hole; returns the metadata's size in bytes."""
    folder.mkdir(parents=True)
    for rank in range(shape.ranks):
        with (folder / f"__{rank}_0.distcp").open("wb") as data:
            data.truncate(shape.file_bytes)
    return write_metadata(folder / ".metadata", shape)


def read_as_a_scan_does(folder: Path) -> dict[str, float]:
    """Wall and CPU seconds and peak MiB of the child; how many small checkpoints were read until it was done."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began, small = time.monotonic(), 0
    with Children() as children:
        begun = begin_folder(
            look(str(folder), str(folder.parent)), children, age_limit=AgeLimit(time.time(), 0), with_tensors=False
        )
        assert isinstance(begun, Later)
        waited = time.monotonic() - began
        while not begun.wait(0):
            read_checkpoint(SAMPLE)
            small += 1
        found = now(begun)
    seconds = time.monotonic() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert found.shards and "could not be read" not in str(found.not_resumable_reasons), found.not_resumable_reasons
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    here = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "seconds": seconds,
        "cpu": cpu,
        "child_mib": after.ru_maxrss >> 10,
        "parent_mib": here >> 10,
        "until_free": waited,
        "small": small,
    }


def main() -> int:
    """Exit 1 beyond 120 s or 2 GiB."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--directory", default=None)
    parser.add_argument("--tensors", type=int, default=15_625)
    parser.add_argument("--ranks", type=int, default=64)
    options = parser.parse_args()
    shape = Shape(options.tensors, options.ranks)
    work = Path(tempfile.mkdtemp(prefix="muster-bench-", dir=options.directory))
    try:
        folder = work / "run" / "step-10"
        size = write_checkpoint(folder, shape)
        print(f"{shape.entries} entries, {size / (1 << 20):.0f} MiB, load average {os.getloadavg()[0]:.1f}")
        ours = read_as_a_scan_does(folder)
        began = time.process_time()
        zlib.crc32((folder / ".metadata").read_bytes())
        crc = time.process_time() - began
        done = subprocess.run(
            [sys.executable, "-c", PEER, str(folder / ".metadata")], capture_output=True, text=True, check=True
        )
    finally:
        shutil.rmtree(work, ignore_errors=True)
    wall, cpu, peak = map(float, done.stdout.split())
    print("| reader | wall s | CPU s | peak MiB | CPU / C unpickler |\n|---|---|---|---|---|")
    print(
        f"| whole checkpoint in a child | {ours['seconds']:.1f} | {ours['cpu']:.1f} | {ours['child_mib']} "
        f"| {ours['cpu'] / cpu:.1f} |"
    )
    print(f"| C unpickler, inert classes | {wall:.1f} | {cpu:.1f} | {peak:.0f} | 1.0 |")
    print(f"| zlib.crc32 | | {crc:.2f} | | {crc / cpu:.2f} |")
    print(
        f"this process was free after {ours['until_free']:.2f} s, read {ours['small']} small checkpoints meanwhile, "
        f"and peaked at {ours['parent_mib']} MiB"
    )
    return 0 if ours["seconds"] <= 120 and ours["child_mib"] <= 2048 else 1


if __name__ == "__main__":
    sys.exit(main())
