"""What a copy is asked for, how far it is, and what can go wrong with it, in words that stay."""

from __future__ import annotations

import errno
from collections.abc import Sequence

import msgspec

from muster_agent.formats.base import Finding
from muster_agent.manifest.model import CHUNK_BYTES, Manifest, TensorDigest

DIGEST_CHARACTERS = 16

PASSING = frozenset(
    {
        "no_space", "quota", "read_only", "target_unreachable", "source_unreachable", "mount_changed", "io_error",
        "store_busy", "restoring",
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


class CopiedFile(msgspec.Struct, kw_only=True):
    """One file on its way. `path` is relative to the checkpoint. Up to `copied_bytes` it lies at the target (as far as
    the writer knows; the proof looks), up to `proven_bytes` it was read back there and was right."""

    path: str
    size_bytes: int
    mtime_ns: int
    mode: int = 0o644
    rank: int | None = None
    role: str = "other"
    is_link: bool = False
    is_sealed: bool = False
    """The manifest that the copy began with has its digests."""
    is_shard: bool = False
    """The checkpoint's metadata names it, so that a new seal has to cover it."""
    copied_bytes: int = 0
    proven_bytes: int = 0
    chunks: str = ""
    """XXH3-64 of every chunk copied so far, where it is not sealed."""
    xxh3_128: str = ""
    tensors: list[TensorDigest] = msgspec.field(default_factory=list)
    """Of trainable state, where this copy seals it."""
    upload: str = ""
    """A multipart upload that is under way."""
    parts: dict[str, list[str]] = msgspec.field(default_factory=dict)
    """Its finished parts: number -> [ETag, MD5 that the store compared]."""
    etag: str = ""
    """Of the whole object, once its upload is completed."""


class CopyCursor(msgspec.Struct, kw_only=True):
    """How far a copy is; enough to go on after a crash, in another process or on another host."""

    files: list[CopiedFile] = msgspec.field(default_factory=list)
    left_out: list[CopiedFile] = msgspec.field(default_factory=list)
    """Files of the source that are not copied, as the order says."""
    folders: list[str] = msgspec.field(default_factory=list)
    is_surveyed: bool = False
    is_closed: bool = False
    """Everything is written and durable at the target; what is left is the proof."""
    is_switched: bool = False
    proved_by: str = ""
    """`read_back`, or the check sum that the store compared."""
    source_mark: list[int] = msgspec.field(default_factory=list)
    target_mark: list[int] = msgspec.field(default_factory=list)
    """Device and inode of both tiers' roots: another root may be a missing mount."""
    manifest: Manifest | None = None
    """Made by this copy where the source was not sealed, or sealed with other times of files."""

    @property
    def total_bytes(self) -> int:
        return sum(one.size_bytes for one in self.files)

    @property
    def copied_bytes(self) -> int:
        return sum(one.copied_bytes for one in self.files)

    @property
    def proven_bytes(self) -> int:
        return sum(one.proven_bytes for one in self.files)


class CopyOrder(msgspec.Struct, frozen=True, kw_only=True):
    """Copy the checkpoint at `source` to `target`, both absolute; the roots are those of the tiers. `tag` names the
    copy's own leftovers, and is the same for every attempt. `manifest`: the seal of the source, None where it has
    none. `leave_out_roles`: shards of these roles are not copied."""

    source: str
    source_root: str
    target: str
    target_root: str
    tag: str
    manifest: Manifest | None = None
    leave_out_roles: tuple[str, ...] = ()
    max_bytes_per_second: int | None = None
    proof: str = "read_back"
    threads: int | None = None

    @property
    def chunk_bytes(self) -> int:
        return self.manifest.chunk_bytes if self.manifest is not None else CHUNK_BYTES


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
