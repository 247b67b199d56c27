"""From what lies on disk, and evidence about it, to candidates.

The disk says what exists; a manifest or the server only add trust, and only where they speak of these very files.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime

import msgspec

from muster_agent.decide.model import Candidate
from muster_agent.formats.base import Finding, Severity, ShardMap, Status
from muster_agent.formats.checkpoint import files_of
from muster_agent.formats.fingerprint import fingerprint
from muster_agent.formats.verdict import COULD_NOT_LOOK, NOT_THERE, STATUS_REASONS
from muster_agent.manifest.compare import matches
from muster_agent.manifest.local_verdict import LocalVerdict, moment
from muster_agent.manifest.model import Manifest, manifest_id
from muster_agent.protocol.trust import Trust


class ServerEvidence(msgspec.Struct, frozen=True, kw_only=True):
    """What the control plane knows of one placement; it counts only for files with this fingerprint."""

    path: str
    fingerprint: str
    trust: str
    manifest_id: str | None = None
    as_of: str | None = None
    damage: tuple[str, ...] = ()
    damage_at: str | None = None
    """When the newest of that damage was found; None where the server does not say, and then it always stands."""
    tier: str | None = None
    tier_order: int = 0


def from_disk(shard_map: ShardMap, now_unix_seconds: float) -> Candidate:
    """What the disk alone proves: `complete` where every promised shard is there with the right size, as of now."""
    mtime_ns, middle_ns = shard_map.newest_mtime_ns, shard_map.middle_mtime_ns
    return Candidate(
        path=shard_map.path,
        step=shard_map.step,
        format=shard_map.format,
        status=shard_map.status.value,
        resumable=shard_map.resumable,
        not_resumable_reasons=_explained(shard_map),
        world_size=shard_map.world_size,
        dp=shard_map.dp,
        tp=shard_map.tp,
        pp=shard_map.pp,
        must_match=shard_map.must_match,
        total_bytes=shard_map.total_bytes,
        trust=Trust.COMPLETE if shard_map.status is Status.COMPLETE else Trust.LISTED,
        as_of=datetime.fromtimestamp(now_unix_seconds, UTC).isoformat(timespec="seconds"),
        age_seconds=None if mtime_ns is None else max(0.0, now_unix_seconds - mtime_ns / 1e9),
        files_age_seconds=None if middle_ns is None else now_unix_seconds - middle_ns / 1e9,
    )


def _explained(shard_map: ShardMap) -> tuple[str, ...]:
    """The reasons, with the first finding behind the status named where it is about something wrong."""
    status = shard_map.status
    if status not in (Status.CORRUPT, Status.INCOMPLETE, Status.UNREADABLE):
        return shard_map.not_resumable_reasons
    behind = [found for found in shard_map.findings if _is_behind(found, status)]
    if not behind:
        return shard_map.not_resumable_reasons
    plain, told = STATUS_REASONS[status], sentence(behind[0])
    return tuple(f"{reason}: {told}" if reason == plain else reason for reason in shard_map.not_resumable_reasons)


def _is_behind(found: Finding, status: Status) -> bool:
    if status is Status.UNREADABLE:
        return found.code in COULD_NOT_LOOK and found.severity is not Severity.NOTE
    is_absence = found.code in NOT_THERE
    return (
        found.severity is Severity.DAMAGE
        and found.code not in COULD_NOT_LOOK
        and (is_absence == (status is Status.INCOMPLETE))
    )


def sentence(found: Finding) -> str:
    """What a finding says, with the file that it is about: by its path in the checkpoint, or a folder by its name."""
    name = found.path.rpartition("/")[2]
    if name in found.detail:
        return found.detail
    return f"{name if names_a_place(found) else found.path}: {found.detail}"


def names_a_place(found: Finding) -> bool:
    """Whether it is about a folder or a checkpoint as a whole, named from the root on, not one of its files."""
    return found.path.startswith(("/", "s3://"))


def with_manifest(candidate: Candidate, shard_map: ShardMap, manifest: Manifest) -> Candidate:
    """`sealed` where the manifest lists files of the sizes and times that lie there; unchanged where it does not."""
    same, _ = matches(manifest, files_of(shard_map))
    if not same or not _may_rise(candidate, Trust.SEALED):
        return candidate
    return msgspec.structs.replace(candidate, trust=Trust.SEALED, as_of=manifest.sealed_at, source="disk+manifest")


def of_these_files(shard_map: ShardMap, evidence: Sequence[ServerEvidence]) -> list[ServerEvidence]:
    """What the server knows of these very files."""
    own = [one for one in evidence if one.path == shard_map.path]
    mark = fingerprint(files_of(shard_map)) if own else ""
    return [one for one in own if one.fingerprint == mark]


def verdict_that_applies(
    shard_map: ShardMap, manifest: Manifest | None, verdict: LocalVerdict | None
) -> LocalVerdict | None:
    """The verdict where it speaks of these files and this manifest, else None. Damage counts by the sealed files alone;
    to be all good, nothing may have been added to them either."""
    if verdict is None or manifest is None or verdict.manifest_id != manifest_id(manifest):
        return None
    sealed = {shard.path for shard in manifest.shards}
    files = [one for one in files_of(shard_map) if verdict.verified or one[0] in sealed]
    return verdict if fingerprint(files) == verdict.fingerprint else None


def _with_verdict(candidate: Candidate, verdict: LocalVerdict) -> Candidate:
    if not verdict.verified:
        more = len(verdict.findings) - _SHOWN_SENTENCES
        sentences = [*verdict.findings[:_SHOWN_SENTENCES], *([f"and {more} more like these"] if more > 0 else [])]
        said = "; ".join(sentences) or "its bytes are not those that were sealed"
        damage = f"{said} (muster verify or reload at {verdict.at}; verify it again once it is repaired)"
        return msgspec.structs.replace(candidate, damage=(*candidate.damage, damage))
    if not verdict.is_full or not _may_rise(candidate, Trust.VERIFIED):
        return candidate
    return msgspec.structs.replace(candidate, trust=Trust.VERIFIED, as_of=verdict.at, source="disk+manifest")


_SHOWN_SENTENCES = 3


def _is_overruled(verdict: LocalVerdict, own: Sequence[ServerEvidence]) -> bool:
    """Whether the server verified every byte of these files after the verdict found damage in them."""
    return not verdict.verified and any(
        one.trust == Trust.VERIFIED.value and _is_later(one.as_of, verdict.at) for one in own
    )


def _without_overruled(one: ServerEvidence, verdict: LocalVerdict | None) -> ServerEvidence:
    """The server's word, less damage that was found before every byte was verified here."""
    if verdict is None or not (verdict.verified and verdict.is_full) or not _is_later(verdict.at, one.damage_at):
        return one
    return msgspec.structs.replace(one, damage=())


def _is_later(one: str | None, other: str | None) -> bool:
    """Whether both are times, and `one` is the later."""
    first, second = moment(one), moment(other)
    return first is not None and second is not None and first > second


def _with_one(candidate: Candidate, one: ServerEvidence) -> Candidate:
    candidate = msgspec.structs.replace(
        candidate,
        damage=(*candidate.damage, *one.damage),
        tier=one.tier,
        tier_order=one.tier_order,
        source="disk+server",
    )
    trust = _trust(one.trust)
    if trust is None or not _may_rise(candidate, trust):
        return candidate
    return msgspec.structs.replace(candidate, trust=trust, as_of=one.as_of)


def _may_rise(candidate: Candidate, trust: Trust) -> bool:
    """Evidence never makes more of a checkpoint that the disk shows not to be complete."""
    return candidate.status == Status.COMPLETE.value and trust.rung > candidate.trust.rung


def _trust(word: str) -> Trust | None:
    """None for a word of a newer server."""
    return Trust(word) if word in set(Trust) else None


def candidates_of(
    shard_maps: Iterable[ShardMap],
    now_unix_seconds: float,
    manifests: Mapping[str, Manifest],
    evidence: Sequence[ServerEvidence],
    verdicts: Mapping[str, LocalVerdict] | None = None,
) -> list[Candidate]:
    """One candidate per checkpoint on disk, with what its manifest, the verdict beside it and the server add. Damage
    from either counts, unless every byte of the same files was verified later."""
    found = []
    for shard_map in shard_maps:
        candidate = from_disk(shard_map, now_unix_seconds)
        manifest = manifests.get(shard_map.path)
        verdict = verdict_that_applies(shard_map, manifest, (verdicts or {}).get(shard_map.path))
        own = of_these_files(shard_map, evidence)
        if manifest is not None:
            candidate = with_manifest(candidate, shard_map, manifest)
        if verdict is not None and not _is_overruled(verdict, own):
            candidate = _with_verdict(candidate, verdict)
        for one in own:
            candidate = _with_one(candidate, _without_overruled(one, verdict))
        found.append(candidate)
    return found
