"""Whether this node can read storage straight into GPU memory. `read_*` looks, `parse_*` decides what was seen.

Opening cuFile without a CUDA driver spins for ever in some versions, and it may close descriptor 0 in containers, so it
is only ever tried in a child process, after the driver itself has answered.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import msgspec

from muster_agent.probes.cuda import read_cuda_devices
from muster_agent.probes.gdscheck import read_gdscheck

__all__ = ["GdsProbe", "classify_counts", "parse_probe", "read_cuda_devices", "read_gds"]

PROBE_TIMEOUT_SECONDS = 20.0
_PROBE_MODULE = "muster_agent.reload.gds"


class GdsProbe(msgspec.Struct, frozen=True, kw_only=True):
    """`usable` only when a canary read of the very file went peer to peer and nothing fell back; `reason` says why not,
    or how it was shown. `evidence` holds the counters and versions behind it."""

    usable: bool
    reason: str
    evidence: dict[str, Any] = {}


def read_gds(path: str, device_index: int = 0) -> GdsProbe:
    """Probe cuFile in a child process with a canary read of `path`; at most `PROBE_TIMEOUT_SECONDS`."""
    devices, reason = read_cuda_devices()
    if devices <= device_index:
        return GdsProbe(usable=False, reason=reason or f"there is no CUDA device {device_index}")
    command = [sys.executable, "-m", _PROBE_MODULE, path, str(device_index)]
    environment = {**os.environ, "CUFILE_LOGFILE_PATH": os.devnull}
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PROBE_TIMEOUT_SECONDS,
            env=environment,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return parse_probe(None, "", "")
    except OSError as error:
        return GdsProbe(usable=False, reason=f"the probe could not be started: {error.strerror}")
    probe = parse_probe(done.returncode, done.stdout, done.stderr)
    check = None if probe.usable else read_gdscheck()
    if check is None:
        return probe
    return msgspec.structs.replace(probe, evidence={**probe.evidence, "gdscheck": msgspec.to_builtins(check.modes)})


def parse_probe(returncode: int | None, stdout: str, stderr: str) -> GdsProbe:
    """What a probe's output means; `returncode` None where it was ended after the time limit. The last line of stdout
    is a JSON object with `counts` (p2p, nvfs, posix, unaligned), or `error`."""
    if returncode is None:
        return GdsProbe(usable=False, reason=f"cuFile did not open within {PROBE_TIMEOUT_SECONDS:.0f} s")
    try:
        report = json.loads(stdout.strip().splitlines()[-1])
    except (ValueError, IndexError):
        last = stderr.strip().splitlines()[-1:] or ["no output"]
        return GdsProbe(usable=False, reason=f"the cuFile probe ended with {returncode}: {last[0]}")
    if not isinstance(report, dict) or returncode != 0 or "error" in report:
        error = report.get("error", "no reason given") if isinstance(report, dict) else "not a report"
        return GdsProbe(usable=False, reason=f"cuFile is not usable: {error}", evidence={"probe": report})
    path, reason = classify_counts(report.get("counts"))
    return GdsProbe(usable=path == "gds", reason=reason, evidence=report)


def classify_counts(counts: dict[str, int] | None) -> tuple[str, str]:
    """(the path the bytes took: gds, mixed, host_bounce or unknown; why) from cuFile's own per-GPU counters of level 3.
    cuFile answers a read that it cannot do directly with an ordinary one and reports success, so only these tell."""
    if counts is None:
        return "unknown", "this cuFile keeps no per-path counters, so nothing shows which path the bytes took"
    direct, posix = counts.get("p2p", 0) + counts.get("nvfs", 0), counts.get("posix", 0)
    if direct and not posix:
        return "gds", f"{direct} reads went straight to GPU memory and none through the host"
    if direct:
        return "mixed", f"{direct} reads went straight to GPU memory and {posix} through the host"
    if posix:
        return "host_bounce", f"all {posix} reads went through host memory inside cuFile (compatibility mode)"
    return "unknown", "cuFile counted no reads at all"
