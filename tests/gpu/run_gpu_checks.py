"""One prepared run for a machine with an NVIDIA GPU: facts, probe, canary, reloads, as JSON on stdout.

    python tests/gpu/run_gpu_checks.py [--directory DIR] [--gigabytes 2]

On a machine without a GPU it says so and exits 0. It reads and writes only its own temporary folder and changes no
setting of the device.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import msgspec
import xxhash
from muster_agent.jobs.reload import reload
from muster_agent.jobs.seal import seal
from muster_agent.probes.filesystem import read_file_system
from muster_agent.probes.gds import read_cuda_devices, read_gds
from muster_agent.protocol.results import ReloadReport
from muster_agent.reload.gpu.device import CudaDevice
from muster_agent.reload.gpu.hasher import ChunkHasher

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "agent"))
from checkpoint_factory import write_checkpoint  # noqa: E402

COMMAND_SECONDS = 30


def first_line(path: str) -> str | None:
    """The first line of a file, None where it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.readline().strip()
    except OSError:
        return None


def output_of(*command: str) -> str | None:
    """What a program prints, None where it is not installed or fails."""
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=COMMAND_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def facts(folder: Path) -> dict[str, Any]:
    """What decides whether direct reads can work here."""
    query = ("nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader")
    return {
        "devices": read_cuda_devices()[0],
        "gpus": output_of(*query),
        "topology": output_of("nvidia-smi", "topo", "-m"),
        "kernel": platform.release(),
        "driver": first_line("/proc/driver/nvidia/version"),
        "nvidia_fs": first_line("/proc/driver/nvidia-fs/version"),
        "nvidia_fs_devices": sorted(name for name in os.listdir("/dev") if name.startswith("nvidia-fs")),
        "udev_readable": os.access("/run/udev", os.R_OK),
        "file_system": read_file_system(str(folder)).name,
        "gdscheck": output_of("gdscheck", "-p"),
    }


def summary(report: ReloadReport) -> dict[str, Any]:
    """A report without what only matters when it is wrong."""
    return {**msgspec.to_builtins(report), "gigabytes_per_second": report.bytes_per_second / 1e9}


def descriptor_zero_is_open() -> bool:
    """cuFile is known to close descriptor 0 in some containers; the probe must have kept ours."""
    try:
        os.fstat(0)
    except OSError:
        return False
    return True


HASHED_CHUNKS, CHUNK_BYTES, HASH_ROUNDS = 1024, 4 << 20, 5


def hash_checks() -> tuple[dict[str, Any], list[str]]:
    """Digests of every short length and of whole chunks against xxhash, and the kernel's rate over 4 GiB."""
    device = CudaDevice(0)
    hasher = ChunkHasher(device)
    base = device.allocate(HASHED_CHUNKS * CHUNK_BYTES)
    try:
        data = os.urandom(CHUNK_BYTES)
        device.copy_to_device(base, data)
        short = [(length % 64, length) for length in range(1025)]
        ranges = [*short, (0, CHUNK_BYTES), (0, CHUNK_BYTES - 1), (8, CHUNK_BYTES - 64 * 1024)]
        wrong = [
            f"the digest of {size} bytes at {begin} differs from xxhash with seed {seed}"
            for seed in (0, 2**64 - 1)
            for (begin, size), digest in zip(ranges, hasher.digests(base, ranges, seed), strict=True)
            if digest != xxhash.xxh3_64_intdigest(data[begin : begin + size], seed)
        ]
        chunks = [(index * CHUNK_BYTES, CHUNK_BYTES) for index in range(HASHED_CHUNKS)]
        seconds = []
        for _ in range(HASH_ROUNDS):
            began = time.monotonic()
            hasher.digests(base, chunks)
            seconds.append(time.monotonic() - began)
        rate = HASHED_CHUNKS * CHUNK_BYTES / sorted(seconds)[HASH_ROUNDS // 2]
        return {"capability": device.compute_capability(), "hash_gigabytes_per_second": rate / 1e9}, wrong[:10]
    finally:
        device.free(base)
        hasher.close()
        device.release()


def checks(folder: Path, shard: Path) -> tuple[dict[str, Any], list[str]]:
    """(results, what is not as it must be)."""
    probe = read_gds(str(shard))
    host = reload(str(folder), backend="host_direct")
    gds = reload(str(folder), backend="gds")
    warm = reload(str(folder), backend="auto", evict=False)
    results = {
        "probe": msgspec.to_builtins(probe),
        "host_direct": summary(host),
        "gds": summary(gds),
        "auto": summary(warm),
    }
    wrong = [f"{name} did not verify" for name, report in (("host", host), ("gds", gds)) if report.verified is not True]
    if (gds.effective == "gds") != probe.usable:
        wrong.append(f"the probe says usable={probe.usable}, but the reload took {gds.effective}")
    if not descriptor_zero_is_open():
        wrong.append("descriptor 0 was closed")
    return results, wrong


def main() -> int:
    """Exit 0 where all is as it must be, or there is no GPU; 1 otherwise."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--directory", default=None, help="a folder on the file system to be tried")
    parser.add_argument("--gigabytes", type=float, default=2.0)
    options = parser.parse_args()
    devices, reason = read_cuda_devices()
    if devices == 0:
        print(json.dumps({"gpu": False, "reason": reason}))
        print(f"no GPU here, nothing was checked: {reason}", file=sys.stderr)
        return 0
    work = Path(tempfile.mkdtemp(prefix="muster-gpu-", dir=options.directory))
    try:
        folder = write_checkpoint(work / "run", 1, world_size=4, rank_bytes=int(options.gigabytes * 1e9 / 4))
        if seal(str(folder)).manifest is None:
            raise SystemExit("the test checkpoint could not be sealed")
        results, wrong = checks(folder, next(iter(sorted(folder.glob("*.safetensors")))))
        hashing, hash_wrong = hash_checks()
        wrong += hash_wrong
        print(
            json.dumps({"gpu": True, "facts": facts(folder), **results, "hashing": hashing, "wrong": wrong}, indent=2)
        )
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
