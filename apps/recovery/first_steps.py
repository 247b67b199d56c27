"""The way from an empty installation to a first answer, one cluster at a time: what has happened, and what to do next.
Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any


class Step(StrEnum):
    """In order: each needs the one before it."""

    CLUSTER = "cluster"
    TIER = "tier"
    AGENT = "agent"
    SCAN = "scan"
    SEAL = "seal"
    VERIFY = "verify"
    DRILL = "drill"


class Progress(StrEnum):
    DONE = "done"
    WAITING = "waiting"
    NEXT = "next"
    LATER = "later"


@dataclass(frozen=True, kw_only=True)
class ClusterFacts:
    """What the rows of one cluster tell; all empty where there is no cluster yet.

    `agent_at`: the first agent that was let in. `is_reached`: an online agent, or the workers, may list the tier.
    `scan_state` is of the newest scan. `found_at`: the first copy. `run`, `checkpoint`, `placement` and `step` are of
    the newest copy that a restart could use. `sealed_at`, `verified_at` and `drilled_at`: the first of each that still
    stands.
    """

    cluster: str = ""
    cluster_name: str = ""
    cluster_at: datetime | None = None
    tier: str = ""
    tier_uri: str = ""
    tier_at: datetime | None = None
    agent_at: datetime | None = None
    agent_is_pending: bool = False
    token_until: datetime | None = None
    is_reached: bool = False
    scan_state: str = ""
    found_at: datetime | None = None
    placement: str = ""
    checkpoint: str = ""
    run: str = ""
    run_name: str = ""
    step: int | None = None
    sealed_at: datetime | None = None
    sealing: bool = False
    verified_at: datetime | None = None
    verifying: bool = False
    drilled_at: datetime | None = None
    drilling: bool = False


@dataclass(frozen=True)
class ApiRequest:
    """The REST request that does a step."""

    path: str
    body: dict[str, Any] = field(default_factory=dict)
    method: str = "POST"


@dataclass(frozen=True, kw_only=True)
class FirstStep:
    """One step. `note` says what it waits for, or why it cannot go on; `request` is None where it is done, or where
    what it needs is not there yet."""

    step: Step
    title: str
    why: str
    progress: Progress
    done_at: datetime | None
    note: str
    request: ApiRequest | None


def first_steps(facts: ClusterFacts) -> tuple[FirstStep, ...]:
    """All of them in order; exactly one is `next` or `waiting`, unless all are done."""
    done_at = _done(facts)
    reached = next((step for step in Step if done_at[step] is None), None)
    return tuple(_step(step, facts, done_at[step], is_next=step is reached) for step in Step)


def are_done(steps: tuple[FirstStep, ...]) -> bool:
    return all(step.progress is Progress.DONE for step in steps)


def current(steps: tuple[FirstStep, ...]) -> FirstStep | None:
    """The one to do now, or that is being done; None where all are."""
    return next((step for step in steps if step.progress in (Progress.NEXT, Progress.WAITING)), None)


def _step(step: Step, facts: ClusterFacts, done_at: datetime | None, *, is_next: bool) -> FirstStep:
    title, why = _WORDS[step]
    is_waiting, note = _NOTES[step](facts) if is_next else (False, "")
    progress = Progress.DONE if done_at else Progress.LATER
    if is_next:
        progress = Progress.WAITING if is_waiting else Progress.NEXT
    return FirstStep(
        step=step,
        title=title,
        why=why,
        progress=progress,
        done_at=done_at,
        note=note,
        request=_REQUESTS[step](facts) if done_at is None else None,
    )


def _done(facts: ClusterFacts) -> dict[Step, datetime | None]:
    return {
        Step.CLUSTER: facts.cluster_at,
        Step.TIER: facts.tier_at,
        Step.AGENT: facts.agent_at,
        Step.SCAN: facts.found_at,
        Step.SEAL: facts.sealed_at,
        Step.VERIFY: facts.verified_at,
        Step.DRILL: facts.drilled_at,
    }


_WORDS = {
    Step.CLUSTER: ("Name the cluster", "Nodes, tiers and runs belong to one; roles are given on it."),
    Step.TIER: ("Add the tier", "The folder or bucket that your training jobs save to."),
    Step.AGENT: ("Join the first agent", "It runs on a node, dials out, and reads checkpoints where they lie."),
    Step.SCAN: (
        "Scan the tier",
        "Reads metadata only, and names what is whole, what is broken and what to do about it.",
    ),
    Step.SEAL: ("Seal the newest checkpoint", "Records digests of every byte, so that any later change is noticed."),
    Step.VERIFY: ("Verify it", "Reads every byte again and compares: from now on the checkpoint is proven."),
    Step.DRILL: ("Drill", "Reads it back as a restart would, and tells how long that takes, by phase."),
}

_Note = tuple[bool, str]
"""Whether something is at work, and what is to be said."""


def _nothing(_facts: ClusterFacts) -> _Note:
    return False, ""


def _agent_note(facts: ClusterFacts) -> _Note:
    if facts.agent_is_pending:
        return True, "An agent has joined and waits for an admin's approval, on the page Nodes."
    if facts.token_until is not None:
        return True, "A join token is open: run its command on the node."
    return False, ""


def _scan_note(facts: ClusterFacts) -> _Note:
    if facts.scan_state in ("queued", "running"):
        return True, "It is being listed."
    if not facts.is_reached:
        return False, f"Nobody who is online may read {facts.tier_uri}: join an agent with that as its --root."
    if facts.scan_state == "finished":
        return False, f"No checkpoint lies below {facts.tier_uri}: is that where your jobs save to?"
    if facts.scan_state == "failed":
        return False, "The last scan failed; its page says why."
    return False, ""


def _seal_note(facts: ClusterFacts) -> _Note:
    if facts.sealing:
        return True, "It is being read."
    if not facts.placement:
        return False, "None of the checkpoints that were found is whole: the page Checkpoints says what each lacks."
    return False, ""


def _verify_note(facts: ClusterFacts) -> _Note:
    return (True, "It is being read.") if facts.verifying else _seal_note(facts)


def _drill_note(facts: ClusterFacts) -> _Note:
    return (True, "A drill is at work.") if facts.drilling else (False, "")


_NOTES: dict[Step, Callable[[ClusterFacts], _Note]] = {
    Step.CLUSTER: _nothing,
    Step.TIER: _nothing,
    Step.AGENT: _agent_note,
    Step.SCAN: _scan_note,
    Step.SEAL: _seal_note,
    Step.VERIFY: _verify_note,
    Step.DRILL: _drill_note,
}


def _cluster_request(_facts: ClusterFacts) -> ApiRequest:
    return ApiRequest("clusters/", {"name": "main"})


def _tier_request(facts: ClusterFacts) -> ApiRequest | None:
    if not facts.cluster:
        return None
    place = {"kind": "parallel_fs", "uri": "/path/to/checkpoints"}
    return ApiRequest("tiers/", {"cluster": facts.cluster_name, "name": "fast", **place})


def _agent_request(facts: ClusterFacts) -> ApiRequest | None:
    return ApiRequest("join-tokens/", {"cluster": facts.cluster}) if facts.cluster else None


def _scan_request(facts: ClusterFacts) -> ApiRequest | None:
    return ApiRequest("scans/", {"tier": facts.tier}) if facts.tier else None


def _audit_request(mode: str) -> Callable[[ClusterFacts], ApiRequest | None]:
    def of(facts: ClusterFacts) -> ApiRequest | None:
        return ApiRequest("audits/", {"placement": facts.placement, "mode": mode}) if facts.placement else None

    return of


def _drill_request(facts: ClusterFacts) -> ApiRequest | None:
    return ApiRequest("drills/", {"run": facts.run, "kind": "reload"}) if facts.run else None


_REQUESTS: dict[Step, Callable[[ClusterFacts], ApiRequest | None]] = {
    Step.CLUSTER: _cluster_request,
    Step.TIER: _tier_request,
    Step.AGENT: _agent_request,
    Step.SCAN: _scan_request,
    Step.SEAL: _audit_request("seal"),
    Step.VERIFY: _audit_request("verify"),
    Step.DRILL: _drill_request,
}
