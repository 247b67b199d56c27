"""One prepared run for a machine with an NVIDIA GPU: facts, correctness, rates, hazards, one drill; a table on stdout.

    python tests/gpu/run_gpu_checks.py [--directory DIR] [--gigabytes 2] [--compare-python PYTHON] [--json FILE]

It takes at most five minutes: a step that begins after that is left out and says so. Without a GPU every step says
`no GPU`, and the exit code is 0. It reads and writes only its own temporary folder and changes no setting of a device.
Exit code 1 where something is not as it must be.
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
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import xxhash
from muster_agent.jobs.reload import prepare, reload
from muster_agent.jobs.seal import seal
from muster_agent.probes.cuda import read_cuda_devices
from muster_agent.probes.filesystem import read_file_system
from muster_agent.probes.gds import GdsProbe, read_gds
from muster_agent.probes.gdscheck import read_gdscheck
from muster_agent.probes.nvidia_fs import read_nvidia_fs
from muster_agent.probes.page_cache import evict
from muster_agent.protocol.results import ReloadReport
from muster_agent.protocol.wire import ReloadParams
from muster_agent.reload.gpu.device import CudaDevice
from muster_agent.reload.gpu.hasher import ChunkHasher

TESTS = Path(__file__).resolve().parents[1]
for folder in (TESTS.parent, TESTS, TESTS / "agent", TESTS / "contract"):
    sys.path.insert(0, str(folder))
from checkpoint_factory import write_checkpoint  # noqa: E402

BUDGET_SECONDS = 300.0
CHUNK_BYTES, ROUNDS = 4 << 20, 5
HASH_GOAL_RATIO = 0.3


class Row(NamedTuple):
    """One line of the table. `ok` None where there is nothing to be right or wrong."""

    step: str
    result: str
    ok: bool | None = None


class Scene(NamedTuple):
    """What the steps work on."""

    folder: Path
    work: Path
    python: str
    hash_bytes: int

    @property
    def shards(self) -> list[str]:
        return sorted(map(str, self.folder.glob("*.safetensors")))

    @property
    def total_bytes(self) -> int:
        return sum(map(os.path.getsize, self.shards))


def rate(count: int, seconds: float) -> str:
    return f"{count / seconds / 1e9:.2f} GB/s"


def said_by(*command: str, seconds: float = 120, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs a program with variables added to its environment."""
    return subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )


def output_of(*command: str) -> str:
    """What a program prints; empty where it is not installed or fails."""
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def facts(scene: Scene) -> list[Row]:
    """What decides whether direct reads can work here."""
    check, module = read_gdscheck(), read_nvidia_fs()
    query = ("nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader")
    return [
        Row("GPUs", output_of(*query).replace("\n", "; ") or f"{read_cuda_devices()[0]} (nvidia-smi does not answer)"),
        Row("kernel, file system", f"Linux {platform.release()}, {read_file_system(str(scene.folder)).name}"),
        Row("topology", output_of("nvidia-smi", "topo", "-m").replace("\n", " | ")[:200] or "not known"),
        Row("nvidia-fs", "not loaded" if module is None else f"{module.version}, counts reads: {module.counts_reads}"),
        Row("gdscheck", "not installed" if check is None else f"{check.release}: {dict(check.modes)}"),
        Row("/run/udev readable", str(os.access("/run/udev", os.R_OK))),
    ]


def hash_correctness(_scene: Scene) -> list[Row]:
    """Digests of every length to 1,024, of tails after whole blocks and of whole chunks, with two seeds."""
    device = CudaDevice(0)
    hasher, data = ChunkHasher(device), os.urandom(CHUNK_BYTES + 2048)
    base = device.allocate(len(data))
    try:
        device.copy_to_device(base, data)
        ranges = [(length % 64, length) for length in range(1025)]
        ranges += [(tail % 17, 65536 + tail) for tail in range(1025)] + [(0, CHUNK_BYTES), (8, CHUNK_BYTES - 1)]
        wrong = sum(
            digest != xxhash.xxh3_64_intdigest(data[begin : begin + size], seed)
            for seed in (0, 2**64 - 1)
            for (begin, size), digest in zip(ranges, hasher.digests(base, ranges, seed), strict=True)
        )
    finally:
        device.free(base)
        hasher.close()
        device.release()
    return [Row("digests against xxhash", f"{wrong} of {2 * len(ranges)} differ", wrong == 0)]


def hash_rate(scene: Scene) -> list[Row]:
    """The kernel over many chunks against a copy within the device's memory (which reads and writes each byte)."""
    device = CudaDevice(0)
    hasher, size = ChunkHasher(device), scene.hash_bytes
    source, target = device.allocate(size), device.allocate(size)
    chunks = [(begin, CHUNK_BYTES) for begin in range(0, size, CHUNK_BYTES)]
    try:
        hashing = best_of(lambda: hasher.digests(source, chunks))
        copying = best_of(lambda: device.copy_within(target, source, size))
    finally:
        device.free(source)
        device.free(target)
        hasher.close()
        device.release()
    ratio = copying / hashing
    return [
        Row("hash rate in GPU memory", rate(size, hashing)),
        Row("copy within GPU memory", rate(size, copying)),
        Row("hash / copy", f"{ratio:.2f} (goal {HASH_GOAL_RATIO})", ratio >= HASH_GOAL_RATIO),
    ]


def best_of(call: Callable[[], Any]) -> float:
    call()
    seconds = []
    for _ in range(ROUNDS):
        began = time.monotonic()
        call()
        seconds.append(time.monotonic() - began)
    return min(seconds)


def probe_of(scene: Scene) -> GdsProbe:
    return read_gds(max(scene.shards, key=os.path.getsize))


PROBE = "import sys; from muster_agent.probes.gds import read_gds; print(read_gds(sys.argv[1]).reason)"


def hazards(scene: Scene) -> list[Row]:
    """A cuFile that never opens, or closes descriptor 0, must not reach us."""
    began = time.monotonic()
    done = said_by(sys.executable, "-c", PROBE, scene.shards[0], CUDA_VISIBLE_DEVICES="")
    seconds = time.monotonic() - began
    before = os.fstat(0).st_ino
    probe = probe_of(scene)
    try:
        kept = os.fstat(0).st_ino == before
    except OSError:
        kept = False
    return [
        Row("probe without visible devices", f"{seconds:.1f} s: {done.stdout.strip()[:80]}", done.returncode == 0),
        Row("descriptor 0 after the probe", "kept" if kept else "LOST", kept),
        Row("gds probe", f"usable: {probe.usable}; {probe.reason[:120]}"),
    ]


def reloads(scene: Scene) -> list[Row]:
    """Every path over the same files, cold, every byte verified."""
    rows = []
    for backend in ("host_direct", "host_bounce", "gds"):
        report = reload(str(scene.folder), backend=backend)
        rows.append(told(f"reload {backend}", report))
    bounced = prepare(ReloadParams(path=str(scene.folder), shards=(), device="cuda:0", resident=True, backend="host"))
    rows.append(told("reload host_bounce, kept", report := bounced.run().report))
    bounced.close()
    copied = report.evidence.get("copy_bytes_per_second")
    rows.append(Row("pinned copies to the GPU", "-" if copied is None else f"{copied / 1e9:.2f} GB/s in each lane"))
    gds = reload(str(scene.folder), backend="gds")
    agree = (gds.effective == "gds") == probe_of(scene).usable
    rows.append(Row("probe and reload agree on gds", str(agree), agree))
    return rows


def told(name: str, report: ReloadReport) -> Row:
    cost = report.cpu_seconds / report.bytes * 1e9
    text = f"{rate(report.bytes, report.seconds)}, {cost:.3f} CPU s/GB, {report.effective}, cold: {report.cache_state}"
    return Row(name, text, report.verified is True)


PEER = """
import json, sys, time
name, files = sys.argv[1], json.loads(sys.argv[2])
import torch
torch.zeros(1, device="cuda").cpu()
if name == "safetensors":
    from safetensors.torch import load_file
    load = lambda path: load_file(path, device="cuda")
else:
    load = lambda path: torch.load(path, map_location="cuda:0", weights_only=True)
began = time.monotonic()
held = [load(path) for path in files]
torch.cuda.synchronize()
print(json.dumps(time.monotonic() - began))
"""
SAVE = """
import sys, torch
from safetensors.torch import load_file
for path in sys.argv[1:]:
    torch.save(load_file(path), path + ".pt")
"""


def peers(scene: Scene) -> list[Row]:
    """The same tensors to the device by safetensors and torch.load (weights_only=True), cold."""
    done = said_by(scene.python, "-c", SAVE, *scene.shards)
    if done.returncode != 0:
        why = (done.stderr.strip().splitlines() or ["no output"])[-1][:80]
        return [Row("safetensors, torch.load", f"not tried: {why} (name one with --compare-python)")]
    saved = [path + ".pt" for path in scene.shards]
    rows = [peer(scene, "safetensors", scene.shards), peer(scene, "torch.load", saved)]
    for path in saved:
        os.unlink(path)
    return rows


def peer(scene: Scene, name: str, files: Sequence[str]) -> Row:
    evict(files)
    done = said_by(scene.python, "-c", PEER, name, json.dumps(list(files)))
    if done.returncode != 0:
        return Row(f"{name} to the GPU", (done.stderr.strip().splitlines() or ["failed"])[-1][:100])
    return Row(f"{name} to the GPU", rate(sum(map(os.path.getsize, files)), json.loads(done.stdout.splitlines()[-1])))


def drill(scene: Scene) -> list[Row]:
    """One drill, made through the API and run by a real agent on this GPU."""
    from checkpoint_files import write_checkpoint as write_small
    from live import LiveAgent
    from test_drill_end_to_end import Stack

    folder = scene.work / "drill"
    folder.mkdir()
    backend = "gds" if probe_of(scene).usable else "host_bounce"
    stack = Stack(folder)
    try:
        write_small(folder / "tier" / "run-1", 10, ranks=4, shard_bytes=16 << 20)
        stack.agents = [LiveAgent(stack.server, folder, name="gpu-1", roots=[folder / "tier"]).start()]
        tier = stack.post("tiers/", cluster="contract", name="nvme", kind="local_nvme", uri=str(folder / "tier"))
        stack.finished(f"scans/{stack.post('scans', tier=tier['id'])['id']}/")
        [placement] = stack.get("placements/")["items"]
        for mode in ("seal", "verify"):
            stack.finished(f"audits/{stack.post('audits', placement=placement['id'], mode=mode)['id']}/")
        made = stack.post("drills", run="run-1", kind="reload", backend=backend)
        ended = stack.finished(f"drills/{made['id']}")
        ranks = stack.get(f"drills/{ended['id']}/ranks")["items"]
    finally:
        stack.stop()
    paths = {str(rank["effective"]) for rank in ranks}
    passed = ended["outcome"] == "passed" and ended["verified"] is True and paths == {backend}
    took = ", ".join(sorted(paths)) or ended["reason"]
    return [Row(f"drill with {backend} by an agent", f"{ended['outcome']}: {took}", passed)]


STEPS: dict[str, Callable[[Scene], list[Row]]] = {
    "facts": facts,
    "digests": hash_correctness,
    "hash rate": hash_rate,
    "hazards": hazards,
    "reloads": reloads,
    "other loaders": peers,
    "drill": drill,
}


def run_steps(scene: Scene) -> list[Row]:
    """Each step in turn; one that fails is a row, and the others go on."""
    rows, ends_at = [], time.monotonic() + BUDGET_SECONDS
    for name, step in STEPS.items():
        if time.monotonic() > ends_at:
            rows.append(Row(name, "left out: the five minutes are over"))
            continue
        try:
            rows += step(scene)
        except Exception as error:
            rows.append(Row(name, f"FAILED: {type(error).__name__}: {str(error)[:200]}", False))
    return rows


def table(rows: Sequence[Row]) -> str:
    marks = {True: "ok", False: "WRONG", None: ""}
    lines = ["| step | result | |", "|---|---|---|"]
    return "\n".join([*lines, *(f"| {row.step} | {row.result} | {marks[row.ok]} |" for row in rows)])


def main() -> int:
    """Exit 0 where all is as it must be, or there is no GPU; 1 otherwise."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--directory", default=None, help="a folder on the file system to be tried")
    parser.add_argument("--gigabytes", type=float, default=2.0)
    parser.add_argument("--compare-python", default=os.environ.get("MUSTER_COMPARE_PYTHON", sys.executable))
    parser.add_argument("--json", default=None, help="a file for the rows")
    options = parser.parse_args()
    devices, reason = read_cuda_devices()
    if devices == 0:
        print(table([Row(name, "no GPU") for name in STEPS]))
        print(f"nothing was checked: {reason}", file=sys.stderr)
        return 0
    work = Path(tempfile.mkdtemp(prefix="muster-gpu-", dir=options.directory))
    try:
        folder = write_checkpoint(work / "run", 1, world_size=4, rank_bytes=int(options.gigabytes * 1e9 / 4))
        if seal(str(folder)).manifest is None:
            raise SystemExit("the test checkpoint could not be sealed")
        hash_bytes = max(CHUNK_BYTES, int(options.gigabytes * 2e9) // CHUNK_BYTES * CHUNK_BYTES)
        rows = run_steps(Scene(folder, work, options.compare_python, hash_bytes))
    finally:
        shutil.rmtree(work, ignore_errors=True)
    print(f"{time.strftime('%Y-%m-%d')}, {platform.node()}\n\n{table(rows)}")
    if options.json:
        Path(options.json).write_text(json.dumps([row._asdict() for row in rows], indent=2))
    return 1 if any(row.ok is False for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
