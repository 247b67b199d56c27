"""Leaving what a command found beside the data, so that `muster resume-point` knows of it without a server."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import NamedTuple

from muster_agent.cli.output import say
from muster_agent.formats.base import Finding
from muster_agent.jobs.checkpoint_place import CheckpointPlace
from muster_agent.jobs.verify import fingerprint_of
from muster_agent.manifest.local_verdict import (
    VERDICT_VERSION,
    LocalVerdict,
    damage_sentences,
    write_verdict,
)
from muster_agent.manifest.model import Manifest, manifest_id


class Before(NamedTuple):
    """The sealed files as they lay before they were read, and when that was."""

    place: CheckpointPlace
    manifest: Manifest
    fingerprint: str
    at: str


def look_before(place: CheckpointPlace, manifest: Manifest) -> Before:
    """To be called before the first byte is read: what was proven holds as of then. Raises nothing."""
    at = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    return Before(place, manifest, _fingerprint(place, manifest), at)


def leave_verdict(
    before: Before, *, verified: bool | None, sample_ratio: float, findings: Iterable[Finding]
) -> str | None:
    """Write the verdict and return its path; None, with a message, where it cannot be written. What could not be
    decided leaves none. Raises nothing."""
    if verified is None:
        return None
    if _fingerprint(before.place, before.manifest) != before.fingerprint:
        say(f"muster: {before.place.path} changed while it was read, so no verdict was left beside it")
        return None
    verdict = LocalVerdict(
        version=VERDICT_VERSION,
        manifest_id=manifest_id(before.manifest),
        fingerprint=before.fingerprint,
        verified=verified,
        sample_ratio=sample_ratio,
        at=before.at,
        findings=damage_sentences(findings),
    )
    try:
        return write_verdict(before.place.path, verdict, before.place.files)
    except OSError as error:
        reason = f"the verdict beside {before.place.path} cannot be written ({error.strerror or error})"
        say(f"muster: {reason}: `muster resume-point` will not know of this verdict unless a server does")
        return None


def _fingerprint(place: CheckpointPlace, manifest: Manifest) -> str:
    return fingerprint_of(place.stat_all([shard.path for shard in manifest.shards]))
