"""From what an agent answered to the outcome of an audit. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from muster_agent.decide.evidence import sentence
from muster_agent.formats.base import Finding, Severity
from muster_agent.formats.fingerprint import fingerprint
from muster_agent.manifest.model import Manifest
from muster_agent.manifest.rewrites import CHANGED
from muster_agent.protocol.wire import SealBody, VerifyBody

PASSED, DAMAGED, REFUSED, FAILED, CANCELLED = "passed", "damaged", "refused", "failed", "cancelled"
_FAILURES = {
    "lost": "the agent was lost while it read; start it again, or audit from another node",
    "unsupported": "this agent is too old for this audit; update it",
}


@dataclass(frozen=True, slots=True)
class Verdict:
    """`damage`: what the bytes were found to be wrong in; empty unless the outcome is `damaged`."""

    outcome: str
    reason: str = ""
    damage: tuple[Finding, ...] = ()
    sampled: bool = False
    checked_bytes: int | None = None
    checked_chunks: int | None = None
    total_chunks: int | None = None
    seconds: float | None = None


def of_failed_task(outcome: str, error: str) -> Verdict:
    """A task that ended without an answer."""
    if outcome == CANCELLED:
        return Verdict(CANCELLED, error or "cancelled")
    known = _FAILURES.get(outcome)
    return Verdict(FAILED, f"{known} ({error})" if known and error else known or error or "the agent gave no reason")


def of_seal(body: SealBody) -> Verdict:
    """A refused seal is damage only where unchanged files have other bytes than a seal of them says; any other refusal
    says that there is nothing whole to seal, which the next scan shows too."""
    if body.manifest is not None:
        return Verdict(
            PASSED,
            checked_bytes=body.manifest.total_bytes,
            seconds=body.seconds,
        )
    damage = tuple(found for found in body.findings if found.code == "digest_mismatch")
    reason = _reason(damage or body.findings) or "the agent gave no reason"
    return Verdict(DAMAGED if damage else REFUSED, reason, damage, seconds=body.seconds)


def of_verification(body: VerifyBody, sample_ratio: float) -> Verdict:
    """`verified` None means that not everything could be looked at, or that files were written again since the seal:
    that is neither good nor damaged."""
    sampled = 0 < sample_ratio < 1 or 0 < body.checked_chunks < body.total_chunks
    damage = tuple(found for found in body.findings if found.severity is Severity.DAMAGE)
    if body.verified is False:
        outcome, reason = DAMAGED, _reason(damage or body.findings)
    elif body.verified is None:
        changed = [found for found in body.findings if found.code == CHANGED]
        outcome, damage = FAILED, ()
        reason = _reason(changed or body.findings) or "it could not be read to its end"
    else:
        outcome, damage = PASSED, ()
        reason = f"sampled: {body.checked_chunks} of {body.total_chunks} chunks were compared" if sampled else ""
    return Verdict(
        outcome,
        reason,
        damage or (body.findings if outcome == DAMAGED else ()),
        sampled=sampled,
        checked_bytes=body.checked_bytes,
        checked_chunks=body.checked_chunks,
        total_chunks=body.total_chunks,
        seconds=body.seconds,
    )


def sealed_fingerprint(manifest: Manifest) -> str:
    """The fingerprint of the files that a manifest speaks for."""
    return fingerprint((shard.path, shard.size_bytes, shard.mtime_ns) for shard in manifest.shards)


def _reason(findings: Iterable[Finding]) -> str:
    """The first finding and its cure; how many more there are."""
    listed = list(findings)
    if not listed:
        return ""
    more = f" ({len(listed) - 1} more findings)" if len(listed) > 1 else ""
    return f"{sentence(listed[0])}{more}. {listed[0].cure}"
