"""Files of `torch.save`, read without trust: is the file whole, and (where asked) which values and tensors are inside?

`inspect` looks at the end of the file only: for a zip that is its directory, without which nothing can be loaded.
`load` also reads the pickle inside, with Muster's own reader. Neither reads the payloads.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, NamedTuple

from muster_agent.formats import torch_legacy
from muster_agent.formats import torch_lookalikes as lookalikes
from muster_agent.formats.base import Finding, Role, Severity, ShardEntry, TensorRange
from muster_agent.formats.codes import finding
from muster_agent.formats.draft import Draft
from muster_agent.formats.folder import Folder, trouble
from muster_agent.formats.holes import hole_findings, judged_by_sums
from muster_agent.formats.limits import check_pickle
from muster_agent.formats.pickle_machine import PickleRefused, Record
from muster_agent.formats.safetensors import add_absent
from muster_agent.formats.torch_names import shortened
from muster_agent.formats.torch_pickle import TorchPickle, read_torch_pickle
from muster_agent.formats.torch_tensors import (
    PICKLE_SUFFIX,
    member_places,
    pickle_member,
    ranges_of,
    storage_findings,
)
from muster_agent.formats.tree import Opened
from muster_agent.formats.zip_directory import (
    LOCAL_MAGIC,
    TAIL_BYTES,
    Archive,
    Member,
    ZipRefused,
    archive_of_tail,
    find_commented_end,
    payload_begin,
)

MAX_PICKLE_BYTES = 64 * 1024 * 1024
_BARE_PICKLES = frozenset(bytes((0x80, protocol)) for protocol in range(2, 6))
_PICKLE_NAMES = (".pkl", ".pickle")
_SMALLEST_BYTES = 4
"""The pickle of nothing at all."""
_HEAD_BYTES = 512
_HEADERS_LOOKED_AT = 8


class TorchFile(NamedTuple):
    """What the structure of one file says. `kind` is `zip` (of torch.save), `torchscript`, `legacy` (torch.save before
    1.6), `pickle` (a bare one), `tar` (torch 0.1, not read), `text` (a few lines of it), or `other`."""

    kind: str
    findings: tuple[Finding, ...]
    archive: Archive | None = None

    @property
    def members(self) -> tuple[Member, ...]:
        """Those of the zip."""
        return self.archive.members if self.archive else ()

    @property
    def ok(self) -> bool:
        """Whether it is a file that could be loaded, as far as was looked."""
        return self.kind in _LOADABLE and all(found.severity is not Severity.DAMAGE for found in self.findings)

    @property
    def root(self) -> str:
        """The folder inside the zip that holds all: the name under which the file was saved, or `archive`."""
        return self.archive.names[1:].split("/", 1)[0] if self.archive else ""


class Loaded(NamedTuple):
    """A file with what its pickle holds; `pickle` is None where it could not be read. `findings` are all, those of
    `file` too. `places` are the payloads of a legacy file: (begin, size) by storage key."""

    file: TorchFile
    pickle: TorchPickle | None
    findings: tuple[Finding, ...]
    folder: Folder
    name: str
    places: dict[str, tuple[int, int]]

    @property
    def value(self) -> Any:
        """The value at the top of the pickle; None where there is none."""
        return self.pickle.value if self.pickle else None


_UNFINISHED = frozenset({"shard_empty", "shard_truncated"})
"""What a file looks like while it is written: its end is the last thing to come, and so a commit marker."""
_LOADABLE = frozenset({"zip", "torchscript", "legacy", "pickle"})


# -- the structure -----------------------------------------------------------------------------------------------------
def inspect(folder: Folder, name: str) -> TorchFile:
    """Look at the end of the file `name`, which must be one of the folder's files (a path into a sub-folder may be).
    Raises nothing: what could not be opened has the finding that says why."""
    try:
        with folder.open(name) as opened:
            return examine(opened, name)
    except OSError as error:
        return TorchFile("other", (_unread(folder, name, error),))


def examine(opened: Opened, name: str) -> TorchFile:
    """As inspect, for an open file called `name` in findings. Raises OSError."""
    size_bytes = opened.size_bytes
    begin = size_bytes - TAIL_BYTES if size_bytes > TAIL_BYTES else 0
    tail = opened.pread(size_bytes - begin, begin)
    if len(tail) != size_bytes - begin:
        detail = f"{name} became shorter while it was read"
        return TorchFile("other", (finding("shard_truncated", path=name, detail=detail),))
    try:
        archive = archive_of_tail(opened, tail, 0, size_bytes)
        if archive is None:
            return _without_end(opened, tail, name)
    except ZipRefused as error:
        return TorchFile("zip", (lookalikes.refused(error, name),))
    return _zip(opened, archive, tail, name)


def _zip(opened: Opened, archive: Archive, tail: bytes, name: str) -> TorchFile:
    begin, names = archive.begin, archive.names
    head = tail[:4] if not begin and archive.end == len(tail) else opened.pread(4, begin)
    findings: list[Finding] = []
    if head != LOCAL_MAGIC and names:
        findings.append(lookalikes.begins_wrongly(head, name, begin))
    if begin:
        findings.append(_prefixed(name, begin))
    if holes := hole_findings(opened, name):
        findings.extend(judged_by_sums(holes, opened, archive.members))
    kind = "zip"
    if f"{PICKLE_SUFFIX}\0" not in names and not names.endswith(PICKLE_SUFFIX):
        kind = "other"
        findings.append(lookalikes.unrecognised(name, "a zip, but not one of torch.save"))
    elif "/constants.pkl" in names:
        kind = "torchscript"
    elif not archive.all_stored:
        findings.append(_compressed(name))
    return TorchFile(kind, tuple(findings), archive)


def _prefixed(name: str, begin: int) -> Finding:
    detail = f"{begin} bytes lie before the zip in {name}, such as an earlier save into the same file"
    cure = "Save each state into a file of its own; check with the framework that this file loads."
    return finding("shard_oversized", path=name, detail=detail, cure=cure, severity=Severity.WARNING, end_byte=begin)


def _compressed(name: str) -> Finding:
    detail = f"members of {name} are compressed, as torch.save never does: another tool has written it again"
    cure = "Check that the framework loads it, and save it again: compressed tensors cannot be mapped or read in parts."
    return finding("metadata_unreadable", path=name, detail=detail, cure=cure, severity=Severity.WARNING)


def _without_end(opened: Opened, tail: bytes, name: str) -> TorchFile:
    """A file that does not end as a zip: a zip with a comment, a cut one, an older format, or something else."""
    size_bytes = opened.size_bytes
    if not size_bytes:
        return TorchFile("other", (finding("shard_empty", path=name, detail=f"{name} has 0 bytes"),))
    if lookalikes.is_side_text(tail, size_bytes) and not tail.startswith(b"version https://git-lfs"):
        return TorchFile("text", (lookalikes.unrecognised(name, "a few lines of text, not one of torch.save"),))
    if size_bytes < _SMALLEST_BYTES:
        return TorchFile("other", (lookalikes.too_short(name, size_bytes),))
    head = tail[:_HEAD_BYTES] if size_bytes == len(tail) else opened.pread(_HEAD_BYTES, 0)
    if head[:4] == LOCAL_MAGIC:
        archive, _ = find_commented_end(opened, 0, size_bytes)
        if archive is not None:
            return _zip(opened, archive, head if size_bytes == len(tail) else b"", name)
        return TorchFile("zip", (lookalikes.unended_zip(opened, tail, name),))
    if torch_legacy.is_legacy(head):
        read = torch_legacy.read(opened, name, MAX_PICKLE_BYTES)
        return TorchFile("legacy", (*read.findings, *hole_findings(opened, name)))
    found = lookalikes.text_or_zeros(head, tail, name, size_bytes)
    if found is not None:
        return TorchFile("other", (found,))
    if head[257:262] == b"ustar":
        what = "a tar archive, such as torch 0.1 wrote; this version does not read it"
        return TorchFile("tar", (lookalikes.unrecognised(name, what),))
    if head[:2] in _BARE_PICKLES or name.endswith(_PICKLE_NAMES):
        return TorchFile("pickle", _bare_pickle(tail, name, size_bytes))
    return TorchFile("other", (lookalikes.unrecognised(name),))


def _bare_pickle(tail: bytes, name: str, size_bytes: int) -> tuple[Finding, ...]:
    if tail.endswith(b"."):
        return ()
    detail = f"{name} is a pickle that does not end as one: it was cut at byte {size_bytes}"
    return (finding("shard_truncated", path=name, detail=detail, begin_byte=size_bytes),)


def begins_like_torch(folder: Folder, name: str) -> bool:
    """Whether the first bytes are those of a zip as torch.save writes it, or of a pickle. Raises nothing."""
    try:
        with folder.open(name) as opened:
            head = opened.pread(_HEAD_BYTES, 0)
    except OSError:
        return False
    return (head[:4] == LOCAL_MAGIC and b"/data" in head) or head[:2] in _BARE_PICKLES


# -- the values --------------------------------------------------------------------------------------------------------
def load(folder: Folder, name: str) -> Loaded:
    """As inspect, and read the pickle inside: at most MAX_PICKLE_BYTES of it. Raises only
    limits.NeedsChild, where this process should not parse it."""
    try:
        with folder.open(name) as opened:
            return _load(opened, folder, name)
    except OSError as error:
        file = TorchFile("other", (_unread(folder, name, error),))
        return Loaded(file, None, file.findings, folder, name, {})


def _load(opened: Opened, folder: Folder, name: str) -> Loaded:
    file = examine(opened, name)
    pickle: TorchPickle | None = None
    findings: list[Finding] = []
    places: dict[str, tuple[int, int]] = {}
    if not file.ok:
        return Loaded(file, None, file.findings, folder, name, places)
    if file.kind == "legacy":
        read = torch_legacy.read(opened, name, MAX_PICKLE_BYTES)
        pickle, places = read.pickle, read.places
    else:
        data = _pickled(opened, file, name, findings)
        pickle = _unpickled(data, name, findings) if data is not None else None
        if pickle is not None and file.kind != "pickle":
            findings.extend(storage_findings(pickle, file.members, name))
    findings.extend(_name_findings(pickle, name))
    return Loaded(file, pickle, (*file.findings, *findings), folder, name, places)


def _pickled(opened: Opened, file: TorchFile, name: str, findings: list[Finding]) -> bytes | None:
    """The bytes of the pickle; None with a finding where they cannot be had."""
    if file.kind == "pickle":
        if opened.size_bytes > MAX_PICKLE_BYTES:
            findings.append(_too_large(name))
            return None
        check_pickle(opened.size_bytes)
        return opened.pread(opened.size_bytes, 0)
    findings.extend(_header_findings(opened, file.members, name))
    if findings:
        return None
    member = pickle_member(file.members)
    begin = payload_begin(opened, member)
    if begin is None:
        findings.append(_foreign_bytes(member, name))
        return None
    if member.size_bytes > MAX_PICKLE_BYTES or not member.stored:
        findings.append(_too_large(name))
        return None
    check_pickle(member.size_bytes)
    return opened.pread(member.size_bytes, begin)


def _unpickled(data: bytes, name: str, findings: list[Finding]) -> TorchPickle | None:
    try:
        return read_torch_pickle(data)
    except PickleRefused as error:
        if error.too_large:
            findings.append(_too_large(name))
        else:
            detail = f"the pickle in {name} cannot be read: {error.reason}"
            code = "metadata_unsafe" if error.unsafe else "metadata_unreadable"
            findings.append(finding(code, path=name, detail=detail))
        return None


def _too_large(name: str) -> Finding:
    detail = f"the pickle in {name} is larger than Muster reads, or packed as torch.save never packs it"
    return finding("format_unknown", path=name, detail=detail)


def _header_findings(opened: Opened, members: Sequence[Member], name: str) -> list[Finding]:
    """Members spread over the file must begin where the directory says: a foreign piece of file shows there."""
    last = len(members) - 1
    chosen = members
    if len(members) > _HEADERS_LOOKED_AT:
        chosen = [members[index * last // (_HEADERS_LOOKED_AT - 1)] for index in range(_HEADERS_LOOKED_AT)]
    for member in chosen:
        if payload_begin(opened, member) is None:
            return [_foreign_bytes(member, name)]
    return []


def _foreign_bytes(member: Member, name: str) -> Finding:
    detail = f"at byte {member.header} of {name}, where member {member.name!r} should begin, lie other bytes"
    return finding("metadata_unreadable", path=name, detail=detail, begin_byte=member.header)


def _name_findings(pickle: TorchPickle | None, name: str) -> list[Finding]:
    found = []
    if pickle is not None and pickle.unsafe:
        names = shortened(pickle.unsafe)
        detail = f"{name} names {names}: loading it with an unpickler could run code; nothing was run"
        found.append(finding("metadata_unsafe", path=name, detail=detail))
    if pickle is not None and pickle.custom:
        detail = f"{name} holds objects of classes outside PyTorch: {shortened(pickle.custom)}"
        found.append(finding("custom_globals", path=name, detail=detail))
    return found


def _unread(folder: Folder, name: str, error: OSError) -> Finding:
    detail = f"{name} could not be read: {error.strerror or type(error).__name__}"
    return finding(trouble(error, os.path.join(folder.path, name)).code, path=name, detail=detail)


# -- for the formats ---------------------------------------------------------------------------------------------------
def add_torch_shard(
    draft: Draft,
    folder: Folder,
    name: str,
    *,
    rank: int | None = None,
    role: Role = Role.OTHER,
    promised_bytes: int | None = None,
    values: bool = False,
    loaded: Loaded | None = None,
) -> Loaded | None:
    """Take the file `name`, which the format says is one of torch.save, into the draft: its entry and its findings. Its
    pickle is read only with `values`; `loaded` is given where the file was read before. None, and what that means for
    the draft, where it is not among the folder's readable files."""
    seen = folder.files.get(name)
    if seen is None:
        add_absent(draft, folder, name, f"{name} belongs to the checkpoint, but is not there", rank=rank)
        return None
    if loaded is None:
        loaded = load(folder, name) if values else _unloaded(folder, name)
    draft.shards.append(
        ShardEntry(
            path=name,
            size_bytes=seen.size_bytes,
            promised_bytes=promised_bytes,
            rank=rank,
            role=role,
            mtime_ns=seen.mtime_ns,
        )
    )
    draft.findings.extend(loaded.findings)
    for found in loaded.findings:
        if found.code in _UNFINISHED and draft.committed is None:
            draft.committed = False
        if found.code == "format_unknown":
            draft.undecided = draft.undecided or found.detail
        draft.structure_known = draft.structure_known or found.code == "metadata_unsafe"
    return loaded


def _unloaded(folder: Folder, name: str) -> Loaded:
    file = inspect(folder, name)
    return Loaded(file, None, file.findings, folder, name, {})


def scalar(value: Any, *names: str) -> int | None:
    """The first of the names that is a plain integer at the top level of a file's value; None where none is."""
    for name in names:
        held = value.get(name) if isinstance(value, (dict, Record)) else None
        if type(held) is int and 0 <= held < 1 << 63:
            return held
    return None


def tensor_ranges(loaded: Loaded, shard: str) -> list[TensorRange]:
    """Where each tensor of the file lies, as ranges of `shard`; opens the file again for a zip. What cannot be placed
    is left out. Raises nothing."""
    if loaded.pickle is None or not loaded.file.ok:
        return []
    places = loaded.places
    try:
        if loaded.file.members:
            with loaded.folder.open(loaded.name) as opened:
                places = member_places(opened, loaded.file.members)
    except OSError:
        return []
    return list(ranges_of(loaded.pickle, places, shard))
