"""Bodies and queries: runs."""

# Generated from docs/openapi.yaml by `make openapi`; changes here are lost.
from __future__ import annotations

from typing import Literal, NotRequired, TypedDict

RequiredTrustEnum = Literal["complete", "sealed", "verified"]


class Attempt(TypedDict):
    id: str
    launch_id: str
    agent: str | None
    resumed_from_step: int | None
    resumed_from_path: str
    last_step: int | None
    started_at: str
    ended_at: str | None
    last_report_at: str


class Checklist(TypedDict):
    """A run's five steps. `passed`: all of them, within the age that was asked for."""

    run: str
    run_name: str
    max_age_seconds: float
    passed: bool
    score: float
    steps: list[ChecklistStep]


class ChecklistStep(TypedDict):
    """One step. `points` of `weight` count for the score: a stale step half, a failed or missing one nothing."""

    step: str
    title: str
    verdict: str
    weight: int
    points: float
    evidence_kind: NotRequired[str | None]
    evidence_id: NotRequired[str | None]
    evidence_at: NotRequired[str | None]
    age_seconds: float | None
    detail: str
    next_action: str


class PatchedUpdateRunRequest(TypedDict):
    """A plain serializer that refuses fields it does not know, each with a pointer to it."""

    rto_objective_seconds: NotRequired[float | None]
    rpo_objective_seconds: NotRequired[float | None]
    gpu_count: NotRequired[int | None]
    required_trust: NotRequired[RequiredTrustEnum]
    archived: NotRequired[bool]
    frozen_tensors: NotRequired[list[str]]


class Run(TypedDict):
    id: str
    cluster: str
    cluster_name: str
    name: str
    rto_objective_seconds: float | None
    rpo_objective_seconds: float | None
    gpu_count: int | None
    required_trust: RequiredTrustEnum
    frozen_tensors: list[str]
    created_at: str
    archived_at: str | None


class Step(TypedDict):
    attempt: str
    step: int
    at: str
    loss: float | None


class ListRunsQuery(TypedDict, total=False):
    """Of `list_runs`."""

    archived: bool
    cluster: str
    cursor: str
    limit: int
    name: str
    sort: Literal["created_at", "-created_at", "name", "-name"]


class GetChecklistQuery(TypedDict, total=False):
    """Of `get_checklist`."""

    max_age_seconds: int


class GetResumePointQuery(TypedDict, total=False):
    """Of `get_resume_point`."""

    checkpoint_format: str
    dp: int
    evidence: bool
    max_age: str
    pp: int
    require: Literal["listed", "complete", "sealed", "verified", "reloaded", "resumed"]
    step: int
    tp: int
    world_size: int


class ListRunAttemptsQuery(TypedDict, total=False):
    """Of `list_run_attempts`."""

    cursor: str
    limit: int
    sort: Literal["started_at", "-started_at", "last_report_at", "-last_report_at"]


class ListRunStepsQuery(TypedDict, total=False):
    """Of `list_run_steps`."""

    cursor: str
    limit: int
    sort: Literal["at", "-at", "step", "-step"]
