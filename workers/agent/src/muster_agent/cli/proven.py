"""What was proven or disproven of the bytes, as the seals and verdicts beside the data say: no server is asked."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from muster_agent.cli.output import say
from muster_agent.decide.evidence import candidates_of
from muster_agent.formats.base import ShardMap, Status
from muster_agent.formats.codes import finding
from muster_agent.formats.verdict import STATUS_REASONS
from muster_agent.jobs.control import JobControl
from muster_agent.jobs.inventory import read_manifests
from muster_agent.manifest.local_verdict import LocalVerdict, VerdictUnreadable, read_verdict
from muster_agent.manifest.model import Manifest
from muster_agent.protocol.trust import Trust
from muster_agent.storage.small_files import POSIX_FILES, SmallFiles


class Proven(NamedTuple):
    """Checkpoints in the order in which they were given, and what is proven of those with a seal, by path."""

    checkpoints: tuple[ShardMap, ...]
    trust: Mapping[str, Trust]


def proven(checkpoints: Sequence[ShardMap], sealed_paths: Iterable[str], files: SmallFiles = POSIX_FILES) -> Proven:
    """The checkpoints as they must be shown: one whose bytes were read and differ from their seal is damaged, however
    whole it looks. `sealed_paths` are those beside which something of Muster's own lies."""
    sealed = set(sealed_paths)
    manifests = manifests_of([one for one in checkpoints if one.path in sealed], files)
    verdicts = verdicts_of(manifests, files)
    shown, trust = [], {}
    for one in checkpoints:
        if one.path in manifests:
            (candidate,) = candidates_of([one], time.time(), manifests, (), verdicts)
            trust[one.path] = Trust.COMPLETE if candidate.damage else candidate.trust
            one = with_damage(one, candidate.damage)  # noqa: PLW2901 - it is the same one, better known
        shown.append(one)
    return Proven(tuple(shown), trust)


def manifests_of(checkpoints: Sequence[ShardMap], files: SmallFiles = POSIX_FILES) -> dict[str, Manifest]:
    """The manifests beside them, by path; what is wrong with one is said."""
    manifests, problems = read_manifests(checkpoints, JobControl(), files)
    for problem in problems:
        say(f"muster: {problem.detail}\n  what to do: {problem.cure}")
    return manifests


def verdicts_of(sealed_paths: Iterable[str], files: SmallFiles = POSIX_FILES) -> dict[str, LocalVerdict]:
    """What `muster verify` or `muster reload` left beside sealed checkpoints, by their paths."""
    verdicts = {}
    for path in sealed_paths:
        try:
            verdict = read_verdict(path, files)
        except VerdictUnreadable as reason:
            say(f"muster: the verdict {reason}\n  what to do: run `muster verify {path}` again, or remove that file")
            continue
        if verdict is not None:
            verdicts[path] = verdict
    return verdicts


def with_damage(shard_map: ShardMap, sentences: Sequence[str]) -> ShardMap:
    """The checkpoint, corrupt by what an audit found in its bytes; unchanged where it found nothing."""
    if not sentences:
        return shard_map
    status = Status.CORRUPT if shard_map.status is Status.COMPLETE else shard_map.status
    plain = [] if status is shard_map.status else [STATUS_REASONS[Status.CORRUPT]]
    return msgspec.structs.replace(
        shard_map,
        status=status,
        resumable=False,
        not_resumable_reasons=(*shard_map.not_resumable_reasons, *plain),
        findings=(*shard_map.findings, *(finding("digest_mismatch", path="", detail=each) for each in sentences)),
    )
