"""What NVIDIA's `gdscheck -p` says about this node: what its drivers could do, which is not what a read did."""

from __future__ import annotations

import glob
import re
import shutil
import subprocess

import msgspec

from muster_agent.probes.cuda import read_cuda_devices

TIMEOUT_SECONDS = 20.0
_PLACES = "/usr/local/cuda*/gds/tools/gdscheck"
_OLD_ROWS = {"NVMe P2PDMA": ("NVMe", "p2pdma")}
"""The older form has a row of its own for what the newer one lists among a storage's modes."""
_OLD_MODE = "nvfs"


class GdsCheck(msgspec.Struct, frozen=True, kw_only=True):
    """`modes`: by kind of storage (NVMe, NFS, WekaFS ...), the ways cuFile could take to it: p2pdma, c2c and nvfs are
    direct, compat goes through the host; empty where it says unsupported. `properties`: cuFile's configuration."""

    release: str | None = None
    nvidia_fs: str | None = None
    modes: dict[str, tuple[str, ...]] = {}
    properties: dict[str, str] = {}

    def is_direct(self, storage: str) -> bool:
        """Whether cuFile could read this kind of storage without the host's memory."""
        return any(mode != "compat" for mode in self.modes.get(storage, ()))


def read_gdscheck() -> GdsCheck | None:
    """Runs the program; None where it is not installed, does not answer, or there is no driver for it to ask."""
    program = shutil.which("gdscheck") or next(iter(sorted(glob.glob(_PLACES), reverse=True)), None)
    if program is None or read_cuda_devices()[0] == 0:
        return None
    try:
        done = subprocess.run(
            [program, "-p"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return parse_gdscheck(done.stdout)


def parse_gdscheck(text: str) -> GdsCheck:
    """Both forms of the section on drivers: `NVMe : Supported`, and `NVMe : c2c, nvfs, compat`. Lines that are neither
    are passed over."""
    modes: dict[str, tuple[str, ...]] = {}
    properties: dict[str, str] = {}
    section = ""
    for line in text.splitlines():
        name, colon, value = (part.strip() for part in line.partition(":"))
        if name.isupper() and not value:
            section = name
        elif section == "DRIVER CONFIGURATION" and colon and not name.startswith("--"):
            _note_modes(modes, name, value)
        elif section == "CUFILE CONFIGURATION" and colon and "." in name:
            properties[name] = value
    return GdsCheck(
        release=_first(r"GDS release version:\s*(\S+)", text),
        nvidia_fs=_first(r"nvidia_fs version:\s*(\S+)", text),
        modes=modes,
        properties=properties,
    )


def _note_modes(modes: dict[str, tuple[str, ...]], name: str, value: str) -> None:
    storage, mode = _OLD_ROWS.get(name, (name, _OLD_MODE))
    known = modes.get(storage, ())
    if value == "Unsupported":
        modes[storage] = known
    elif value == "Supported":
        modes[storage] = (*known, mode)
    else:
        modes[storage] = (*known, *(word.strip() for word in value.split(",") if word.strip()))


def _first(pattern: str, text: str) -> str | None:
    match = re.search(pattern, text)
    return match[1] if match else None
