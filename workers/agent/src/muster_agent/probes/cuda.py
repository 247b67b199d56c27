"""The CUDA driver on this node, asked without a context: nothing of a GPU is taken."""

from __future__ import annotations

import ctypes
import re

DRIVER_LIBRARY = "libcuda.so.1"
_DEVICE = re.compile(r"cuda(?::(\d+))?")


def load_driver() -> ctypes.CDLL:
    """The driver's library. Raises OSError where the node has none."""
    return ctypes.CDLL(DRIVER_LIBRARY)


def read_cuda_devices() -> tuple[int, str]:
    """(number of CUDA devices, reason where it is 0). Loads the driver library only; creates no context."""
    try:
        driver = load_driver()
    except OSError:
        return 0, "no CUDA driver on this node (libcuda.so.1 is not installed)"
    status = driver.cuInit(0)
    if status != 0:
        return 0, f"the CUDA driver does not start (cuInit gave {status})"
    count = ctypes.c_int(0)
    status = driver.cuDeviceGetCount(ctypes.byref(count))
    if status != 0 or count.value == 0:
        return 0, "the CUDA driver finds no device"
    return count.value, ""


def parse_device(device: str) -> int | None:
    """The index that `cuda:N` (or `cuda`, which is 0) names; None for `auto` and `cpu`. Raises ValueError."""
    if device in ("auto", "cpu"):
        return None
    match = _DEVICE.fullmatch(device)
    if match is None:
        raise ValueError(f"unknown device {device!r}: name auto, cpu, cuda or cuda:N")
    return int(match[1] or 0)
