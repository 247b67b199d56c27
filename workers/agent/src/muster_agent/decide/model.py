"""The question and the answer of a resume decision, shared by the CLI, the API and the pages."""

from __future__ import annotations

import msgspec

from muster_agent.protocol.trust import Trust


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """One placement as the decision sees it. `damage` holds sentences about damage that some audit found and that still
    applies to these very files; `as_of` is the ISO time of the newest evidence behind `trust`."""

    path: str
    step: int | None
    format: str
    status: str
    resumable: bool
    not_resumable_reasons: tuple[str, ...] = ()
    world_size: int | None = None
    dp: int | None = None
    """Data-parallel ranks (of its data-loader state, where only that depends on them), where the format tells."""
    tp: int | None = None
    pp: int | None = None
    must_match: tuple[str, ...] = ()
    """Which of `world_size`, `dp`, `tp` and `pp` the asking job must share with the one that saved."""
    trust: Trust = Trust.LISTED
    as_of: str | None = None
    age_seconds: float | None = None
    files_age_seconds: float | None = None
    """The age of its middle file: one that was repaired or added later does not make the checkpoint younger."""
    total_bytes: int = 0
    tier: str | None = None
    tier_order: int = 0
    damage: tuple[str, ...] = ()
    source: str = "disk"


class Pointer(msgspec.Struct, frozen=True, kw_only=True):
    """What the framework's own latest-file says. `binding` where it is written after all ranks finished (Megatron,
    ByteCheckpoint, DLRover): a step newer than a binding pointer is not a resume candidate."""

    path: str
    step: int | None
    binding: bool = False
    target: str | None = None
    """The name that it names, beside it; None where it names a step by number only."""
    problem: str | None = None
    """Why it cannot be followed, as half a sentence; None where it can."""


class PointerChoice(msgspec.Struct, frozen=True, kw_only=True):
    """What the framework would load by itself: by its pointer, or by its own rule where it has none. `path` and `step`
    are None where it would load nothing. `is_same` says whether that is the decision's own choice."""

    rule: str
    path: str | None
    step: int | None
    is_same: bool
    reason: str


class ResumeRequest(msgspec.Struct, frozen=True, kw_only=True):
    require: Trust = Trust.COMPLETE
    step: int | None = None
    max_age_seconds: float | None = None
    world_size: int | None = None
    dp: int | None = None
    tp: int | None = None
    pp: int | None = None
    format: str | None = None


class Skipped(msgspec.Struct, frozen=True, kw_only=True):
    path: str
    step: int | None
    reasons: tuple[str, ...]


class ResumeDecision(msgspec.Struct, frozen=True, kw_only=True):
    """`outcome`: found, nothing_resumable, no_checkpoints, step_absent, or unknown where there may be a point in what
    could not be looked at. `skipped` names every newer step that was
    passed over, with reasons, and those of another history of training. `nearest_steps` are the existing ones around a
    step that is absent, nearest first. `predicted_seconds` is added by the control plane."""

    outcome: str
    path: str | None = None
    step: int | None = None
    tier: str | None = None
    status: str | None = None
    trust: str | None = None
    as_of: str | None = None
    source: str = "disk"
    predicted_seconds: float | None = None
    pointer: Pointer | None = None
    skipped: tuple[Skipped, ...] = ()
    nearest_steps: tuple[int, ...] = ()
    pointer_choice: PointerChoice | None = None
