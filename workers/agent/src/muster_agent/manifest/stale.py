"""A stale save: two steps that hold bit-identical trained state, all of it or that of a whole file. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from fnmatch import fnmatchcase

import msgspec
import xxhash

from muster_agent.formats.base import Finding, Severity
from muster_agent.formats.codes import finding
from muster_agent.manifest.model import Manifest, TensorDigest

NAMED_TENSORS = 20


class StaleVerdict(StrEnum):
    STALE = "stale"
    PARTLY = "partly"
    """All trained tensors of at least one file are those of the other step, while others changed."""
    CHANGED = "changed"
    NOT_DECIDABLE = "not_decidable"
    """One of the two names no tensors, or they hold different sets of tensors."""


class StaleComparison(msgspec.Struct, frozen=True, kw_only=True):
    """`equal_bytes` of `trained_bytes` are the same at both steps, frozen ones left out; `tensors` are the first names
    of those in question."""

    verdict: StaleVerdict
    reason: str
    finding: Finding | None = None
    equal_bytes: int = 0
    trained_bytes: int = 0
    tensors: tuple[str, ...] = ()


def compare_steps(older: Manifest, newer: Manifest, frozen: Sequence[str] = ()) -> StaleComparison:
    """Whether `newer` saved the same trained state as `older`. `frozen` are patterns (`visual.*`) of tensors that
    training leaves as they are. Where the tensors lie in the files does not matter; some equal tensors are normal, all
    of them, or all of one file, are not."""
    before, after = _by_tensor(older, frozen), _by_tensor(newer, frozen)
    if not older.tensors or not newer.tensors:
        return _undecided("the manifests do not record the digests of tensors")
    if not after:
        return _undecided("every tensor is declared frozen")
    if before.keys() != after.keys():
        return _undecided("the two steps hold different tensors")
    if older.step == newer.step:
        return _undecided("both manifests are of one step")
    equal = {name for name in after if _digests(before[name]) == _digests(after[name])}
    files = _files(after)
    stale = {path for path, names in files.items() if names <= equal} if len(equal) < len(after) else set(files)
    return _judged(older, newer, after, equal, stale, is_whole=len(stale) == len(files))


def _judged(
    older: Manifest,
    newer: Manifest,
    after: Mapping[str, list[TensorDigest]],
    equal: set[str],
    stale: set[str],
    *,
    is_whole: bool,
) -> StaleComparison:
    total, same = _bytes(after.values()), _bytes(after[name] for name in equal)
    share = f"{len(equal)} of {len(after)} trained tensors, {100 * same / (total or 1):.1f} % of their bytes,"
    names = tuple(sorted(equal))[:NAMED_TENSORS]
    if not stale:
        reason = f"{len(after) - len(equal)} of {len(after)} tensors changed"
        reason += f"; {share} are as at step {older.step}" if equal else ""
        return StaleComparison(
            verdict=StaleVerdict.CHANGED, reason=reason, equal_bytes=same, trained_bytes=total, tensors=names
        )
    where = "" if is_whole else f", among them all of {', '.join(sorted(stale)[:3])}"
    detail = f"{share} of step {newer.step} are bit-identical to step {older.step}{where} ({', '.join(names[:3])})"
    found = finding(
        "stale_save",
        path="" if is_whole else min(stale),
        detail=detail,
        severity=None if is_whole else Severity.WARNING,
        cure=None if is_whole else "If these are frozen, declare them for the run; else look at what that rank saves.",
    )
    verdict = StaleVerdict.STALE if is_whole else StaleVerdict.PARTLY
    return StaleComparison(
        verdict=verdict, reason=detail, finding=found, equal_bytes=same, trained_bytes=total, tensors=names
    )


def trained_digest(manifest: Manifest, frozen: Sequence[str] = ()) -> str:
    """One digest over the names and digests of all trained tensors: equal at two steps where all of them are. Empty
    where there are none."""
    hasher, tensors = xxhash.xxh3_128(), _by_tensor(manifest, frozen)
    for name in sorted(tensors):
        hasher.update(f"{name}\0{' '.join(_digests(tensors[name]))}\0".encode())
    return hasher.hexdigest() if tensors else ""


def _undecided(reason: str) -> StaleComparison:
    return StaleComparison(verdict=StaleVerdict.NOT_DECIDABLE, reason=reason)


def _by_tensor(manifest: Manifest, frozen: Sequence[str]) -> dict[str, list[TensorDigest]]:
    """By name, frozen ones left out; a tensor that is split over several shards has several digests."""
    tensors: dict[str, list[TensorDigest]] = {}
    for tensor in manifest.tensors:
        if not any(fnmatchcase(tensor.name, pattern) for pattern in frozen):
            tensors.setdefault(tensor.name, []).append(tensor)
    return tensors


def _digests(pieces: Iterable[TensorDigest]) -> list[str]:
    return [piece.xxh3_64 for piece in pieces]


def _files(tensors: Mapping[str, list[TensorDigest]]) -> dict[str, set[str]]:
    """The names of the tensors in each file that has any."""
    files: dict[str, set[str]] = {}
    for name, pieces in tensors.items():
        for piece in pieces:
            files.setdefault(piece.shard, set()).add(name)
    return files


def _bytes(tensors: Iterable[list[TensorDigest]]) -> int:
    return sum(piece.length_bytes for pieces in tensors for piece in pieces)
