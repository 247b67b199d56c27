"""What `muster verify` and `muster reload` found, left beside the data for the next `muster resume-point`.

It is evidence about files of one fingerprint against one manifest, and counts for no others.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from datetime import datetime

import msgspec

from muster_agent.formats.base import Finding, Severity
from muster_agent.formats.names import beside
from muster_agent.manifest.model import VERDICT_NAME
from muster_agent.storage.small_files import POSIX_FILES, SmallFiles

VERDICT_VERSION = 1
MAX_VERDICT_BYTES = 64 * 1024
MAX_SENTENCES = 20
_MAX_SENTENCE_CHARACTERS = 500


class LocalVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """One comparison of a checkpoint's bytes with its manifest. `fingerprint` is over the sealed files as they lay;
    `sample_ratio` (0..1) is the share that was read; `at` is ISO 8601; `findings` are sentences about damage."""

    version: int
    manifest_id: str
    fingerprint: str
    verified: bool
    sample_ratio: float
    at: str
    findings: tuple[str, ...] = ()

    @property
    def is_full(self) -> bool:
        return self.sample_ratio >= 1


class VerdictUnreadable(Exception):
    """A verdict is there but cannot be used; the message names the file and says why."""


def verdict_path(checkpoint_path: str, files: SmallFiles = POSIX_FILES) -> str:
    """Where the verdict about a checkpoint lies. Raises OSError where a bucket cannot be looked at."""
    if files.is_folder(checkpoint_path):
        return f"{checkpoint_path.rstrip('/')}/{VERDICT_NAME}"
    return beside(checkpoint_path, VERDICT_NAME)


def read_verdict(checkpoint_path: str, files: SmallFiles = POSIX_FILES) -> LocalVerdict | None:
    """The verdict beside a checkpoint, None where there is none. Raises VerdictUnreadable."""
    path = checkpoint_path
    try:
        path = verdict_path(checkpoint_path, files)
        data = files.read(path, MAX_VERDICT_BYTES)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise VerdictUnreadable(f"{path} cannot be read: {error.strerror or error}") from error
    if data is None:
        raise VerdictUnreadable(f"{path} is no ordinary file of at most {MAX_VERDICT_BYTES} bytes")
    try:
        verdict = msgspec.json.decode(data, type=LocalVerdict)
    except (msgspec.MsgspecError, RecursionError, ValueError) as error:
        raise VerdictUnreadable(f"{path} is not understood: {error}") from error
    if verdict.version != VERDICT_VERSION or moment(verdict.at) is None:
        raise VerdictUnreadable(f"{path} is of another version of Muster, or says no time")
    return msgspec.structs.replace(verdict, findings=_bounded(verdict.findings))


def write_verdict(checkpoint_path: str, verdict: LocalVerdict, files: SmallFiles = POSIX_FILES) -> str:
    """Leave the verdict beside the data, unless one that says more about the same files lies there; returns its path.
    Raises OSError."""
    path = verdict_path(checkpoint_path, files)
    before = None
    with contextlib.suppress(VerdictUnreadable):
        before = read_verdict(checkpoint_path, files)
    if before is None or supersedes(verdict, before):
        files.replace(path, msgspec.json.encode(verdict) + b"\n", mode_like=checkpoint_path)
    return path


def supersedes(new: LocalVerdict, old: LocalVerdict) -> bool:
    """Whether `new`, the later one, takes the place of `old`: a sample without damage neither clears damage nor says
    as much as a full verification of the same files."""
    same = (new.manifest_id, new.fingerprint) == (old.manifest_id, old.fingerprint)
    return not same or not new.verified or new.is_full or (old.verified and not old.is_full)


def damage_sentences(findings: Iterable[Finding]) -> tuple[str, ...]:
    """One sentence for each of the first findings that are damage."""
    return _bounded(found.detail for found in findings if found.severity is Severity.DAMAGE)


def moment(text: str | None) -> datetime | None:
    """The time that an ISO 8601 text with a zone names; None where it names none."""
    try:
        at = datetime.fromisoformat(text or "")
    except ValueError:
        return None
    return at if at.tzinfo is not None else None


def _bounded(sentences: Iterable[str]) -> tuple[str, ...]:
    return tuple(sentence[:_MAX_SENTENCE_CHARACTERS] for sentence in sentences)[:MAX_SENTENCES]
