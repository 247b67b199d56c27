"""From what Slurm's programs print to nodes, jobs and partitions. Pure.

Slurm's JSON differs between versions: states are a word (22.05) or a list of words (23.02 on), numbers are plain or
`{"set": true, "infinite": false, "number": 7}`, lists are text with commas or lists. Every reader here takes both.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import Any

from apps.fleet.schedulers.base import PARKED_REASON, Partition, SchedulerError, SchedulerJob, SchedulerNode
from apps.fleet.schedulers.hostlist import expand

_WORKING = frozenset({"idle", "mixed", "allocated", "completing"})
_HARMLESS_FLAGS = frozenset({"completing", "planned", "cloud", "dynamic_norm", "dynamic_future"})
_GPU = re.compile(r"(?:^|,)gpu(?::[^:,()]+)?:(\d+)")
_CRED_EXPIRE = re.compile(r"^AuthInfo\s*=.*\bcred_expire=(\d+)", re.MULTILINE)
DEFAULT_CRED_EXPIRE_SECONDS = 120
"""Slurm's own, where AuthInfo names none; the requeued job waits one second longer."""


def parse_nodes(text: str) -> tuple[SchedulerNode, ...]:
    """`scontrol show nodes --json` or, of Slurm before 23.02, `sinfo --json`. Raises SchedulerError."""
    return tuple(_node(row) for row in _rows(text, "nodes"))


def lists_nodes(text: str) -> bool:
    """Whether this answer of `sinfo --json` has single nodes, and not groups of them."""
    try:
        return "nodes" in json.loads(text)
    except ValueError:
        return False


def parse_jobs(text: str) -> tuple[SchedulerJob, ...]:
    """`squeue --json`. Raises SchedulerError."""
    return tuple(_job(row) for row in _rows(text, "jobs"))


def parse_partitions(text: str) -> tuple[Partition, ...]:
    """`scontrol show partition -o`: one line of KEY=VALUE for each."""
    rows = [dict(re.findall(r"(\w+)=(\S*)", line)) for line in text.splitlines() if line.startswith("PartitionName=")]
    return tuple(
        Partition(
            name=row["PartitionName"],
            state=row.get("State", "unknown").lower(),
            node_count=int(row["TotalNodes"]) if row.get("TotalNodes", "").isdigit() else 0,
        )
        for row in rows
    )


def parse_partitions_json(text: str) -> tuple[Partition, ...]:
    """`GET /slurm/v0.0.N/partitions/`. Raises SchedulerError."""
    return tuple(_partition(row) for row in _rows(text, "partitions"))


def _partition(row: dict[str, Any]) -> Partition:
    """Up to v0.0.38 everything lies flat; later the state is in `partition`, and the count in `nodes`."""
    inner, nodes = row.get("partition"), row.get("nodes")
    state = _words(inner.get("state") if isinstance(inner, dict) else row.get("state"))
    count = _number(nodes.get("total") if isinstance(nodes, dict) else row.get("total_nodes"))
    return Partition(name=str(row.get("name") or ""), state="+".join(state) or "unknown", node_count=count or 0)


def parse_rest_version(text: str) -> str:
    """From the `meta` of any answer of slurmrestd: `22.05.8`; "" where it does not say."""
    try:
        meta = json.loads(text).get("meta") or {}
        told = meta.get("Slurm") or meta.get("slurm") or {}
        release = str(told.get("release") or "")
    except (ValueError, AttributeError):
        return ""
    found = re.search(r"\d+(?:\.\d+)+", release)
    return found[0] if found else ""


def problems_of(text: str) -> list[str]:
    """What an answer of slurmrestd says went wrong."""
    try:
        errors = json.loads(text).get("errors") or ()
    except (ValueError, AttributeError):
        return []
    told = [one.get("description") or one.get("error") or "" for one in errors if isinstance(one, dict)]
    return [one for one in told if one]


def parse_version(text: str) -> str:
    """`scontrol --version`: `slurm-wlm 22.05.8`."""
    return text.strip().rpartition(" ")[2]


def parse_requeue_hold(text: str) -> float | None:
    """Seconds for which `scontrol show config` lets a requeued job wait: until no credential of its last run is valid
    any more. None where the text says nothing of AuthInfo."""
    if "AuthInfo" not in text:
        return None
    found = _CRED_EXPIRE.search(text)
    return float(int(found[1]) if found else DEFAULT_CRED_EXPIRE_SECONDS) + 1.0


def _rows(text: str, key: str) -> list[dict[str, Any]]:
    try:
        document = json.loads(text)
        rows = document[key]
    except (ValueError, KeyError, TypeError) as error:
        raise SchedulerError(f"Slurm's answer holds no list of {key}: {text.strip()[:200] or 'it is empty'}") from error
    problems = [problem.get("error", "") for problem in document.get("errors") or ()]
    if problems and not rows:
        raise SchedulerError(f"Slurm gave no {key}: {'; '.join(problems)[:300]}")
    return [row for row in rows if isinstance(row, dict)]


def _node(row: dict[str, Any]) -> SchedulerNode:
    base, *flags = [*_words(row.get("state")), *_words(row.get("state_flags"))] or ["unknown"]
    reason = str(row.get("reason") or "")
    usable = base in _WORKING and _HARMLESS_FLAGS.issuperset(flags)
    found = _GPU.findall(str(row.get("gres") or ""))
    memory_mib = _number(row.get("real_memory"))
    return SchedulerNode(
        name=str(row.get("name") or ""),
        state="+".join([base, *flags]),
        usable=usable,
        parked=base == "idle" and "drain" in flags and reason.startswith(PARKED_REASON),
        reason=reason,
        cpu_count=_number(row.get("cpus")),
        gpu_count=sum(map(int, found)),
        memory_bytes=memory_mib * 2**20 if memory_mib is not None else None,
        partitions=_words(row.get("partitions"), lower=False),
        features=_words(row.get("active_features"), lower=False),
    )


def _job(row: dict[str, Any]) -> SchedulerJob:
    return SchedulerJob(
        job_id=str(row.get("job_id") or ""),
        name=str(row.get("name") or ""),
        state="+".join(_words(row.get("job_state"))) or "unknown",
        user=str(row.get("user_name") or ""),
        partition=str(row.get("partition") or ""),
        nodes=_hosts(str(row.get("nodes") or "")),
        reason="" if row.get("state_reason") in (None, "None") else str(row["state_reason"]),
        restart_count=_number(row.get("restart_cnt")) or 0,
        submitted_at=_moment(row.get("submit_time")),
        eligible_at=_moment(row.get("eligible_time")),
        started_at=_moment(row.get("start_time")),
    )


def _hosts(text: str) -> tuple[str, ...]:
    """The names; text that is no list of hosts stays as it is, so that nothing is hidden."""
    try:
        return expand(text)
    except ValueError:
        return (text,)


def _words(value: Any, *, lower: bool = True) -> tuple[str, ...]:
    """A word, text with commas, or a list of words."""
    given = value if isinstance(value, list) else str(value or "").split(",")
    words = (str(word).strip() for word in given)
    return tuple(word.lower() if lower else word for word in words if word)


def _number(value: Any) -> int | None:
    if isinstance(value, dict):
        value = value.get("number") if value.get("set") and not value.get("infinite") else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _moment(value: Any) -> datetime | None:
    seconds = _number(value)
    try:
        return datetime.fromtimestamp(seconds, UTC) if seconds else None
    except (OverflowError, ValueError, OSError):
        return None
