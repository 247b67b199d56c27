"""What several subjects share."""

# Generated from docs/openapi.yaml by `make openapi`; changes here are lost.
from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict

MissedEnum = Literal["run_once", "skip"]


class AgentEvent(TypedDict):
    id: int
    attempt: int
    seq: int
    kind: str
    at: str
    mono_seconds: float
    phase: str
    edge: str
    rank: int | None
    data: dict[str, Any]


class CopyEvidence(TypedDict):
    path: str
    fingerprint: str
    manifest_id: str | None
    trust: str
    as_of: str
    damage: list[str]
    damage_at: str | None
    tier: str
    tier_order: int


class Pointer(TypedDict):
    path: str
    step: int | None


class PointerChoice(TypedDict):
    """What the framework would load by itself."""

    rule: str
    path: str | None
    step: int | None
    is_same: bool
    reason: str


class ResumePoint(TypedDict):
    """The JSON of `muster resume-point --json`; `resume.decision_json` makes it."""

    outcome: str
    path: str | None
    step: int | None
    tier: str | None
    status: str | None
    trust: str | None
    as_of: str | None
    source: str
    predicted_seconds: float | None
    pointer: Pointer | None
    skipped: list[Skipped]
    nearest_steps: list[int]
    pointer_choice: PointerChoice | None
    evidence: NotRequired[list[CopyEvidence]]


class Skipped(TypedDict):
    path: str
    step: int | None
    reasons: list[str]


class Problem(TypedDict):
    type: str
    title: str
    status: int
    detail: str
    instance: NotRequired[str | None]
    request_id: NotRequired[str | None]
    errors: list[dict[str, Any]]
