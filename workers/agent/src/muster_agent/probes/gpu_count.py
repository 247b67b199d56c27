"""How many NVIDIA GPUs this node's driver has, without loading CUDA: a process that has may no longer fork."""

from __future__ import annotations

import os
from pathlib import Path

DRIVER_FOLDER = Path("/proc/driver/nvidia/gpus")


def read_gpu_count(folder: Path = DRIVER_FOLDER) -> int | None:
    """0 where no driver is loaded; None where it is and does not let this process look."""
    try:
        return len(os.listdir(folder))
    except FileNotFoundError:
        return 0
    except OSError:
        return None
