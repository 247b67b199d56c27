"""What a copy or a removal is asked for, and how far it is: data that goes to agents and back, and into the control
plane's rows."""

from __future__ import annotations

import msgspec

from muster_agent.manifest.model import CHUNK_BYTES, Manifest, TensorDigest
from muster_agent.protocol.stores import StoreAt

Known = tuple[str, int, int]
"""Path inside the checkpoint, size in bytes, mtime in ns."""


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
    """Its finished parts: number -> [ETag, MD5 that the store compared, its CRC where the upload has one]."""
    checksum: str = ""
    """The kind of CRC that the store compares in that upload: `crc64nvme`, `crc32c` or none."""
    sent_sum: str = ""
    """That CRC of the whole object as it was sent, such as `crc64nvme:ae8b14860a799888`."""
    refusals: int = 0
    """How often the store was too busy to complete that upload."""
    etag: str = ""
    """Of the whole object, once its upload is completed."""

    def forget_upload(self) -> None:
        """It is sent anew."""
        self.upload, self.etag, self.parts, self.checksum, self.sent_sum = "", "", {}, "", ""

    def lose(self) -> None:
        """Nothing of it counts as copied any more."""
        self.copied_bytes = self.proven_bytes = self.refusals = 0
        self.forget_upload()
        if not self.is_sealed:
            self.chunks, self.xxh3_128, self.tensors = "", "", []


class CopyCursor(msgspec.Struct, kw_only=True):
    """How far a copy is; enough to go on after a crash, in another process or on another host."""

    files: list[CopiedFile] = msgspec.field(default_factory=list)
    left_out: list[CopiedFile] = msgspec.field(default_factory=list)
    """Files of the source that are not copied, as the order says."""
    folders: list[str] = msgspec.field(default_factory=list)
    is_restore_asked: bool = False
    """The store was asked to bring the source back from its archive."""
    is_surveyed: bool = False
    is_closed: bool = False
    """Everything is written and durable at the target; what is left is the proof."""
    is_switched: bool = False
    debt_seconds: float = 0.0
    """How long nothing more may be moved, so that the rate is kept over slices too."""
    proved_by: str = ""
    """`read_back`, or the check sum that the store compared."""
    proof_note: str = ""
    """Why it was not a better one."""
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
    source_store: StoreAt = StoreAt()
    target_store: StoreAt = StoreAt()
    tag: str
    manifest: Manifest | None = None
    leave_out_roles: tuple[str, ...] = ()
    max_bytes_per_second: int | None = None
    proof: str = "read_back"
    threads: int | None = None

    @property
    def chunk_bytes(self) -> int:
        return self.manifest.chunk_bytes if self.manifest is not None else CHUNK_BYTES


class ColderCopy(msgspec.Struct, frozen=True, kw_only=True):
    """A verified copy on a slower tier, with every file as it was when it was verified."""

    tier: str
    path: str
    root: str
    store: StoreAt = StoreAt()
    files: tuple[Known, ...]


class RemovalOrder(msgspec.Struct, frozen=True, kw_only=True):
    """Remove the checkpoint at `source`: the rules of the rows have been asked, and what is left is to look at the
    storage. `tag` names what it hides meanwhile, and is the same for every attempt."""

    source: str
    source_root: str
    source_store: StoreAt = StoreAt()
    tag: str
    source_mark: tuple[int, ...] = ()
    known: tuple[Known, ...] | None = None
    """Exactly these files may go. None: all that lie there, if those in `recorded` are still those of `fingerprint`."""
    recorded: tuple[str, ...] = ()
    fingerprint: str = ""
    colder: tuple[ColderCopy, ...] | None = None
    """One of these must lie there now; None where it goes for good."""
    lacks_nothing: bool = False
    """The colder copy must have each file of the source, also those that no format knows."""
    stays: str = ""
    """A rule speaks against it by now: only a removal that was under way before is finished."""
