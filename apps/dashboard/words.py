"""How states look: tone (colour and shape) and word, one table for all pages. Pure."""

from __future__ import annotations

from typing import Literal, NamedTuple

Tone = Literal["ok", "warn", "bad", "info", "none"]


class Look(NamedTuple):
    tone: Tone
    word: str
    running: bool = False


LOOKS: dict[str, dict[str, Look]] = {
    "status": {
        "complete": Look("ok", "complete"),
        "uncommitted": Look("warn", "uncommitted"),
        "incomplete": Look("bad", "incomplete"),
        "in_progress": Look("info", "in progress", running=True),
        "corrupt": Look("bad", "corrupt"),
        "unreadable": Look("warn", "unreadable"),
        "archived": Look("none", "archived"),
        "unknown": Look("none", "unknown"),
        "missing": Look("bad", "missing"),
        "rotated_away": Look("none", "rotated away"),
    },
    "trust": {
        "listed": Look("none", "listed"),
        "complete": Look("none", "complete"),
        "sealed": Look("info", "sealed"),
        "verified": Look("ok", "verified"),
        "reloaded": Look("ok", "reloaded"),
        "resumed": Look("ok", "resumed"),
    },
    "drill_state": {
        "scheduled": Look("none", "scheduled"),
        "waiting": Look("info", "waiting", running=True),
        "preparing": Look("info", "preparing", running=True),
        "running": Look("info", "running", running=True),
        "validating": Look("info", "validating", running=True),
        "finished": Look("none", "finished"),
    },
    "drill_outcome": {
        "passed": Look("ok", "passed"),
        "failed": Look("bad", "failed"),
        "cancelled": Look("none", "cancelled"),
        "skipped": Look("none", "skipped"),
        "lost": Look("bad", "lost"),
    },
    "objective": {
        "met": Look("ok", "in time"),
        "breached": Look("warn", "breached"),
        "none": Look("none", "no objective"),
    },
    "objective_standing": {
        "over_budget": Look("bad", "over its budget"),
        "missed": Look("warn", "has missed"),
        "not_drilled": Look("info", "not drilled in 28 days"),
        "no_objective": Look("none", "no objective"),
        "in_time": Look("ok", "in time"),
    },
    "agent": {
        "pending": Look("warn", "pending approval"),
        "online": Look("ok", "online"),
        "busy": Look("info", "busy"),
        "draining": Look("none", "draining"),
        "stale": Look("warn", "stale"),
        "lost": Look("bad", "lost"),
        "revoked": Look("none", "revoked"),
        "incompatible": Look("warn", "incompatible"),
        "absent": Look("none", "no agent"),
    },
    "audit": {
        "queued": Look("none", "queued"),
        "running": Look("info", "running", running=True),
        "passed": Look("ok", "passed"),
        "damaged": Look("bad", "damage found"),
        "refused": Look("warn", "refused"),
        "failed": Look("bad", "failed"),
        "cancelled": Look("none", "cancelled"),
    },
    "repair": {
        "surveying": Look("info", "surveying", running=True),
        "writing": Look("info", "writing", running=True),
        "proving": Look("info", "proving", running=True),
        "done": Look("ok", "done"),
        "failed": Look("bad", "failed"),
        "cancelled": Look("none", "cancelled"),
    },
    "scan": {
        "queued": Look("none", "queued"),
        "running": Look("info", "running", running=True),
        "finished": Look("ok", "finished"),
        "failed": Look("bad", "failed"),
        "cancelled": Look("none", "cancelled"),
    },
    "transfer": {
        "planned": Look("none", "planned"),
        "copying": Look("info", "copying", running=True),
        "proving": Look("info", "proving", running=True),
        "switching": Look("info", "switching", running=True),
        "retiring": Look("info", "retiring", running=True),
        "done": Look("ok", "done"),
        "paused": Look("warn", "paused"),
        "cancelled": Look("none", "cancelled"),
        "failed": Look("bad", "failed"),
    },
    "retention": {
        "move": Look("info", "moves"),
        "retire": Look("info", "is removed here"),
        "expire": Look("warn", "expires"),
        "stay": Look("none", "stays"),
    },
    "change": {
        "appeared": Look("ok", "appeared"),
        "changed": Look("info", "changed"),
        "vanished": Look("bad", "vanished"),
        "rotated_away": Look("none", "rotated away"),
    },
    "alert": {
        "open": Look("bad", "open"),
        "acknowledged": Look("warn", "acknowledged"),
        "resolved": Look("ok", "resolved"),
    },
    "delivery": {
        "pending": Look("info", "on its way", running=True),
        "delivered": Look("ok", "delivered"),
        "failed": Look("bad", "failed"),
        "cancelled": Look("none", "cancelled"),
    },
    "alert_severity": {
        "critical": Look("bad", "critical"),
        "warning": Look("warn", "warning"),
        "info": Look("info", "info"),
    },
    "severity": {
        "damage": Look("bad", "damage"),
        "warning": Look("warn", "warning"),
        "note": Look("none", "note"),
    },
    "rank": {
        "done": Look("ok", "done"),
        "passed": Look("ok", "passed"),
        "failed": Look("bad", "failed"),
        "cancelled": Look("none", "cancelled"),
        "unsupported": Look("warn", "unsupported"),
        "lost": Look("bad", "lost"),
    },
    "task": {
        "queued": Look("none", "queued"),
        "leased": Look("info", "handed out", running=True),
        "acked": Look("info", "acknowledged", running=True),
        "running": Look("info", "running", running=True),
        "cancelling": Look("warn", "cancelling", running=True),
        "orphaned": Look("warn", "orphaned"),
        "reported": Look("info", "reported"),
        "done": Look("ok", "done"),
        "failed": Look("bad", "failed"),
        "cancelled": Look("none", "cancelled"),
        "unsupported": Look("warn", "unsupported"),
        "lost": Look("bad", "lost"),
    },
    "recovery": {
        "open": Look("bad", "not back yet", running=True),
        "closed": Look("ok", "back"),
    },
    "readiness": {
        "nothing_resumable": Look("bad", "nothing to resume"),
        "not_proven": Look("bad", "not proven"),
        "breached": Look("warn", "breached"),
        "drill_failed": Look("bad", "last drill failed"),
        "never_drilled": Look("warn", "never drilled"),
        "restart_untimed": Look("warn", "restart never timed"),
        "stale_proof": Look("warn", "stale proof"),
        "ready": Look("ok", "ready"),
    },
    "checklist": {
        "passed": Look("ok", "passed"),
        "stale": Look("warn", "stale"),
        "failed": Look("bad", "failed"),
        "missing": Look("none", "not shown yet"),
    },
}

RESCHEDULING = {
    "ending": "Ended what was left of the job",
    "hold": "Held the requeued job back",
    "queue": "Waited for nodes",
    "starting": "Started the job's own script",
}
STANDBY_STEPS = {
    "probe_spare": "Checked the spare",
    "drain_node": "Took the node out",
    "bring_in": "Brought the spare in",
    "gate": "Checked the node that comes back",
    "return_node": "Brought the node back",
    "park_spare": "Parked the spare again",
}
TRUST_MEANS = {
    "listed": "seen on disk, nothing more",
    "complete": "every promised shard is there, with the right size",
    "sealed": "digests recorded; bytes not re-read since",
    "verified": "bytes re-read and equal since sealing",
    "reloaded": "a drill loaded it on agents",
    "resumed": "a training step advanced from it",
}


def look(kind: str, value: str) -> Look:
    """The look of a state; a word that this table does not know shows plainly, never as something good."""
    return LOOKS[kind].get(value) or Look("none", value.replace("_", " ") or "none yet")
