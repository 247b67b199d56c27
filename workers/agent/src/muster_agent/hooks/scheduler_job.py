"""Which job of the scheduler this process belongs to, from its environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any


def scheduler_job(environment: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """`{"job_id": "4711", "job_restart_count": 1}` in a Slurm job, else empty. Slurm sets the count from the first
    requeue on."""
    job_id, count = environment.get("SLURM_JOB_ID"), environment.get("SLURM_RESTART_COUNT", "0")
    if not job_id:
        return {}
    return {"job_id": job_id, "job_restart_count": int(count) if count.isdecimal() else 0}
