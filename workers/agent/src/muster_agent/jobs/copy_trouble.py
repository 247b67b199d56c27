"""What can go wrong with a copy, in words that stay."""

from __future__ import annotations

import errno
from collections.abc import Sequence

from muster_agent.formats.base import Finding

PASSING = frozenset(
    {
        "no_space", "quota", "read_only", "target_unreachable", "source_unreachable", "mount_changed", "io_error",
        "store_busy", "agent_lost", "agent_stopped",
    }
)  # fmt: skip
"""Codes of trouble that may pass by itself or by somebody's help, without a new decision."""


class CopyTrouble(Exception):
    """A copy cannot go on. `code` is stable, the message says what to do."""

    def __init__(self, code: str, message: str, *, findings: Sequence[Finding] = ()) -> None:
        super().__init__(message)
        self.code = code
        self.findings = tuple(findings)

    @property
    def may_pass(self) -> bool:
        """Whether trying again later makes sense."""
        return self.code in PASSING


_TARGET_CODES = {
    errno.ENOSPC: ("no_space", "there is no space left"),
    errno.EDQUOT: ("quota", "the quota is used up"),
    errno.EROFS: ("read_only", "the file system is mounted read-only"),
    errno.EACCES: ("denied", "this user may not write there"),
    errno.EPERM: ("denied", "this user may not write there"),
    errno.EFBIG: ("too_large", "the file system takes no file so large"),
    errno.ENAMETOOLONG: ("too_large", "the file system takes no name so long"),
}
_GONE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ESTALE, errno.ENOTCONN, errno.EHOSTDOWN, errno.ENODEV})


def target_trouble(error: OSError, place: str) -> CopyTrouble:
    """What an error of the target means."""
    number = error.errno or 0
    code, told = _TARGET_CODES.get(number, ("", ""))
    if not code:
        code = "target_unreachable" if number in _GONE else "io_error"
        told = error.strerror or str(error)
    return CopyTrouble(code, f"writing to {place} failed: {told}")


def source_trouble(error: OSError, place: str) -> CopyTrouble:
    """What an error of the source means."""
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return CopyTrouble("source_changed", f"{place} was removed or replaced while it was copied")
    told = error.strerror or str(error)
    if isinstance(error, PermissionError):
        return CopyTrouble("denied", f"this user may not read {place}")
    code = "source_unreachable" if (error.errno or 0) in _GONE else "io_error"
    return CopyTrouble(code, f"reading {place} failed: {told}")
