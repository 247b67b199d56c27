"""From a reader's facts to a status: one pure function for every format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

import msgspec

from muster_agent.formats.base import Finding, Role, Severity, ShardMap, Status
from muster_agent.formats.codes import finding
from muster_agent.formats.draft import Draft
from muster_agent.formats.shape import shape_findings
from muster_agent.formats.times import duration

COULD_NOT_LOOK = frozenset(
    {"permission_denied", "listing_failed", "link_escapes_root", "link_broken", "metadata_unsafe", "path_unsafe"}
)
_WHOLE = (Status.COMPLETE, Status.UNCOMMITTED, Status.ARCHIVED)
_LARGEST_SKEW_NS = 24 * 3600 * 1_000_000_000
NOT_THERE = frozenset({"shard_missing", "metadata_missing"})
_NOT_YET = NOT_THERE | {"shard_empty"}
"""What a save that has no commit marker leaves for a moment: a file not made yet, or made and still empty."""
_ARRIVING = _NOT_YET | {"shard_truncated"}
"""What a copy that is still running leaves, which may bring the commit marker first."""
LEAST_GRACE_SECONDS = 600.0
SAVES_IN_GRACE = 3.0


def grace_seconds_for(save_seconds: Sequence[float]) -> float:
    """How long after its last change a save may still be running: ten minutes, or three times what the run's saves
    took where that is longer (the median of `save_seconds`, the known ones)."""
    return max(LEAST_GRACE_SECONDS, SAVES_IN_GRACE * median(save_seconds) if save_seconds else 0.0)


class AgeLimit:
    """The grace period: what changed within it may still be being written. `is_growing` says that it was seen to
    change, so that no clock is needed."""

    def __init__(
        self, now_unix_seconds: float, grace_seconds: float, *, may_learn: bool = False, is_growing: bool = False
    ) -> None:
        self.now_ns = int(now_unix_seconds * 1e9)
        self.grace_ns = int(grace_seconds * 1e9)
        self.is_growing = is_growing
        self._latest_ns = self.now_ns + (_LARGEST_SKEW_NS if may_learn else 0)

    def is_recent(self, mtime_ns: int | None) -> bool:
        """Clocks differ between hosts, so a change up to one grace period in the future counts as recent too."""
        return self.is_growing or (mtime_ns is not None and abs(self.now_ns - mtime_ns) < self.grace_ns)

    def learn(self, mtime_ns: int | None) -> None:
        """Where the clock is not the storage's own: no earlier than a time that the storage has written, unless that is
        so far ahead that no clock can be meant."""
        if mtime_ns is not None and self.now_ns < mtime_ns <= self._latest_ns:
            self.now_ns = mtime_ns

    def growing(self) -> AgeLimit:
        """The same for a checkpoint that changed between two looks."""
        return AgeLimit(self.now_ns / 1e9, self.grace_ns / 1e9, is_growing=True)


def conclude(
    draft: Draft, *, path: str, run: str, named_step: int | None, newest_mtime_ns: int | None, age_limit: AgeLimit
) -> ShardMap:
    """The ShardMap of a checkpoint: status, whether it can be resumed from, and the findings that follow from those."""
    recent = age_limit.is_recent(newest_mtime_ns)
    arriving = recent and (draft.temporary_is_recent or _marker_came_first(draft, age_limit))
    status = status_of(draft, recent=recent, arriving=arriving)
    reasons = [*draft.not_resumable_reasons, *_reasons(draft, status)]
    if (draft.settling or draft.committed is False) and status in (Status.INCOMPLETE, Status.UNCOMMITTED):
        reasons.extend(_abandoned(newest_mtime_ns, age_limit))
    findings = [
        *(draft.findings if status is not Status.IN_PROGRESS else map(_as_of_a_running_save, draft.findings)),
        *_status_findings(status, path, draft.marker, has_marker=bool(draft.committed)),
        *_undecided_findings(draft, status, path),
        *_step_findings(draft, named_step, path),
        *_role_findings(draft.roles if status in _WHOLE else None, path, _USUAL_NAMES.get(draft.format, {})),
        *shape_findings(draft.shards, draft.world_size, path),
    ]
    return ShardMap(
        path=path,
        run=run,
        format=draft.format,
        step=draft.step if draft.step is not None else named_step,
        status=status,
        resumable=not reasons,
        not_resumable_reasons=tuple(reasons),
        world_size=draft.world_size,
        dp=draft.dp,
        tp=draft.tp,
        pp=draft.pp,
        ep=draft.ep,
        must_match=draft.must_match,
        shards=tuple(draft.shards),
        tensors=tuple(draft.tensors),
        findings=tuple(findings),
        newest_mtime_ns=newest_mtime_ns,
    )


def _marker_came_first(draft: Draft, age_limit: AgeLimit) -> bool:
    """Whether all metadata came here just now and before every whole data file, as a copy may bring it, so that the
    rest may be on its way. A save writes its marker last: what is not whole after that is damage."""
    times = [shard.mtime_ns or 0 for shard in draft.shards if shard.role is Role.METADATA and shard.size_bytes]
    if not draft.committed or not times or not all(map(age_limit.is_recent, times)):
        return False
    damaged = {found.path for found in draft.findings if found.severity is Severity.DAMAGE}
    data = [shard for shard in draft.shards if shard.role is not Role.METADATA and shard.path not in damaged]
    return all(shard.mtime_ns is None or shard.mtime_ns >= max(times) for shard in data)


def status_of(draft: Draft, *, recent: bool, arriving: bool = False) -> Status:
    """Definite knowledge comes first: damage seen is damage, even where another shard could not be looked at.
    `arriving`: something says that files are being copied here."""
    codes = {found.code for found in draft.findings if found.severity is Severity.DAMAGE}
    could_not = {found.code for found in draft.findings if found.severity is not Severity.NOTE} & COULD_NOT_LOOK
    if draft.structure_known and not draft.withheld:
        could_not = could_not - {"metadata_unsafe"}
    if recent and not could_not and (is_unfinished(draft) or (arriving and codes and codes <= _ARRIVING)):
        return Status.IN_PROGRESS
    if codes - COULD_NOT_LOOK - NOT_THERE:
        return Status.CORRUPT
    if codes & NOT_THERE:
        return Status.INCOMPLETE
    if could_not:
        return Status.UNREADABLE
    if draft.undecided:
        return Status.ARCHIVED if _is_archived(draft) else Status.UNKNOWN
    if draft.committed is False or draft.settling:
        return Status.UNCOMMITTED
    return Status.ARCHIVED if _is_archived(draft) else Status.COMPLETE


def _is_archived(draft: Draft) -> bool:
    return any(found.code == "archived" for found in draft.findings)


def is_unfinished(draft: Draft) -> bool:
    """Whether a save may be behind what is wrong: its marker is missing, something says that it was running, or, where
    the format has no marker, all that is wrong is what is not there yet."""
    codes = {found.code for found in draft.findings if found.severity is Severity.DAMAGE}
    return draft.settling or draft.committed is False or (draft.committed is None and bool(codes) and codes <= _NOT_YET)


def _abandoned(newest_mtime_ns: int | None, age_limit: AgeLimit) -> list[str]:
    if newest_mtime_ns is None or age_limit.now_ns - newest_mtime_ns < LEAST_GRACE_SECONDS * 1e9:
        return []
    age_seconds = (age_limit.now_ns - newest_mtime_ns) / 1e9
    return [f"its save was abandoned: nothing in it has changed for {duration(age_seconds)}"]


def _reasons(draft: Draft, status: Status) -> list[str]:
    reasons = [] if status is Status.COMPLETE else [STATUS_REASONS[status]]
    if draft.undecided:
        reasons.append(draft.undecided)
    if any(found.code == "metadata_unsafe" and found.severity is Severity.DAMAGE for found in draft.findings):
        reasons.append("loading it would run code that no checkpoint needs")
    if draft.roles and Role.MODEL not in draft.roles:
        reasons.append("it holds no model")
    if draft.roles is not None and Role.OPTIMIZER not in draft.roles and status is Status.COMPLETE:
        reasons.append("it holds no optimizer state")
    return reasons


STATUS_REASONS = {
    Status.UNCOMMITTED: "its save never wrote the commit marker",
    Status.INCOMPLETE: "parts of it are not there",
    Status.IN_PROGRESS: "a save seems to be still running",
    Status.CORRUPT: "it is damaged",
    Status.UNREADABLE: "it could not be read",
    Status.ARCHIVED: "it must first be restored from the archive",
    Status.UNKNOWN: "its state is not known",
}


def _status_findings(status: Status, path: str, marker: str, *, has_marker: bool) -> list[Finding]:
    if status is Status.UNCOMMITTED:
        which = f" ({marker})" if marker else ""
        detail = f"all files are there, but the commit marker{which} is not"
        return [finding("uncommitted", path=path, detail=detail)]
    if status is Status.IN_PROGRESS:
        no_marker = "no commit marker yet, and the newest change is recent"
        copied = "files are not whole yet, and the newest change is recent, as while a save or a copy of one runs"
        return [finding("in_progress", path=path, detail=copied if has_marker else no_marker)]
    return []


def _as_of_a_running_save(found: Finding) -> Finding:
    """What would be damage at rest is only what has not been written yet while a save runs."""
    if found.severity is not Severity.DAMAGE and found.code != "temporary_left":
        return found
    return msgspec.structs.replace(found, severity=Severity.NOTE, cure=_WAIT)


_WAIT = "Wait for the save to end, then look again; leave its files alone until then."


def _step_findings(draft: Draft, named: int | None, path: str) -> list[Finding]:
    if draft.step is None or named is None or draft.step == named:
        return []
    source = f" ({draft.step_source})" if draft.step_source else ""
    detail = f"the name says step {named}, the state inside{source} says {draft.step}"
    return [finding("step_mismatch", path=path, detail=detail)]


def _undecided_findings(draft: Draft, status: Status, path: str) -> list[Finding]:
    """What nothing else is said of must not be unknown without a word."""
    if status is not Status.UNKNOWN or draft.undecided is None or draft.findings:
        return []
    return [finding("format_unknown", path=path, detail=draft.undecided, cure=_LOOK_AGAIN)]


_LOOK_AGAIN = "Its files were not judged; leave them alone, and see what `muster explain` says of the checkpoint."


_USUAL_NAMES: dict[str, dict[Role, str]] = {
    "accelerate": {Role.OPTIMIZER: "optimizer.bin", Role.RNG: "random_states_0.pkl"},
    "hf_trainer": {Role.OPTIMIZER: "optimizer.pt", Role.RNG: "rng_state.pth"},
}
"""What formats whose state lies in a file of its own usually call it."""


def _role_findings(roles: set[Role] | None, path: str, usual: Mapping[Role, str]) -> list[Finding]:
    """Random-number and loader state are only missed where training state is there at all."""
    if not roles:
        return []
    if Role.OPTIMIZER not in roles:
        return [
            finding(
                "optimizer_missing",
                path=path,
                detail=f"no tensor of optimizer state was found{_usually(usual, Role.OPTIMIZER)}",
            )
        ]
    found = []
    if Role.RNG not in roles:
        found.append(
            finding("rng_missing", path=path, detail=f"no random-number state was found{_usually(usual, Role.RNG)}")
        )
    if Role.DATALOADER not in roles:
        found.append(finding("dataloader_missing", path=path, detail="no data-loader state was found"))
    return found


def _usually(usual: Mapping[Role, str], role: Role) -> str:
    return f" (it is usually in {usual[role]})" if role in usual else ""
