"""Files of Keras: weights in HDF5 (`model.weights.h5`, older `model.h5`), or a `.keras` zip with such a file inside."""

from __future__ import annotations

import os

from muster_agent.formats.base import Finding, Role, Severity, TensorRange
from muster_agent.formats.codes import finding
from muster_agent.formats.draft import Draft, lone_file
from muster_agent.formats.folder import Folder, trouble
from muster_agent.formats.foreign import UNKNOWN_FORMAT
from muster_agent.formats.hdf5 import SIGNATURE, DataSet, Hdf5Refused, Walker, read_superblock
from muster_agent.formats.names import is_like_a_checkpoint
from muster_agent.formats.tree import Opened
from muster_agent.formats.zip_directory import ZipRefused, payload_begin, read_archive

FORMAT = "keras"
_SURE = (".keras", ".weights.h5")
_LIKELY = (".h5", ".hdf5")
"""Anybody's data: only where the name is a checkpoint's."""
_OWN_GROUPS = frozenset(
    {
        *("layers", "vars", "optimizer", "model_weights", "optimizer_weights", "top_level_model_weights"),
        "_layer_checkpoint_dependencies",
    }
)
_STEP_ENDINGS = ("/vars/0", *(f"/{word}{end}" for word in ("iter", "iteration", "iterations") for end in ("", ":0")))
_INSIDE = "model.weights.h5"


class _Part(Opened):
    """The bytes of one stored member of a zip."""

    def __init__(self, opened: Opened, begin: int, size_bytes: int) -> None:
        self._opened, self.begin, self.size_bytes = opened, begin, size_bytes

    def pread(self, length_bytes: int, offset_bytes: int) -> bytes:
        wanted = max(min(length_bytes, self.size_bytes - offset_bytes), 0)
        return self._opened.pread(wanted, self.begin + offset_bytes)

    def hole(self) -> tuple[int, int] | None:
        return None

    def close(self) -> None:
        return


def claims_file(folder: Folder, name: str) -> bool:
    lower = name.lower()
    if lower.endswith(_SURE):
        return True
    if not lower.endswith(_LIKELY) or not is_like_a_checkpoint(name) or name not in folder.files:
        return False
    try:
        return not folder.files[name].size_bytes or folder.read(name, len(SIGNATURE)) == SIGNATURE
    except OSError:
        return False


def read_file(folder: Folder, name: str, with_tensors: bool) -> Draft:
    """Whole is a file that ends where its superblock says, and whose groups lead to data sets inside of it."""
    draft = lone_file(FORMAT, name, folder.files[name])
    if draft.findings:
        return draft
    try:
        with folder.open(name) as opened:
            _read(draft, _hdf5_in(opened, name), name, with_tensors)
    except Hdf5Refused as error:
        code = "shard_truncated" if error.ends_early else "metadata_unreadable"
        draft.findings.append(finding(code, path=name, detail=f"{name} is not whole: {error.reason}"))
    except ZipRefused as error:
        draft.findings.append(finding(error.code, path=name, detail=f"{name} is not whole: {error.detail}"))
    except OSError as error:
        code = trouble(error, os.path.join(folder.path, name)).code
        draft.findings.append(finding(code, path=name, detail=f"{name} could not be read: {error.strerror}"))
    return draft


def _hdf5_in(opened: Opened, name: str) -> Opened:
    """The HDF5 that the file is, or that lies in it. Raises ZipRefused, Hdf5Refused and OSError."""
    if not name.lower().endswith(".keras") or opened.pread(len(SIGNATURE), 0) == SIGNATURE:
        return opened
    archive = read_archive(opened, 0, opened.size_bytes)
    if archive is None:
        raise Hdf5Refused("a zip ends with a list of its members, and this file does not", ends_early=True)
    member = next((one for one in archive.members if one.name == _INSIDE), None)
    begin = payload_begin(opened, member) if member is not None and member.stored else None
    if member is None or begin is None:
        raise Hdf5Refused(f"there is no {_INSIDE} in it that can be read")
    return _Part(opened, begin, member.size_bytes)


def _read(draft: Draft, opened: Opened, name: str, with_tensors: bool) -> None:
    head = read_superblock(opened)
    draft.committed = False if head.is_open else None
    if head.end_byte != opened.size_bytes:
        draft.findings.append(_size_finding(name, opened.size_bytes, head.end_byte))
        if head.end_byte > opened.size_bytes:
            return
    if head.root is None:
        draft.undecided = f"{name} is an HDF5 file of a newer kind, whose groups this version does not read"
        return
    found = list(Walker(opened).data_sets(head.root))
    if not any(one.name.partition("/")[0] in _OWN_GROUPS for one in found):
        draft.format, draft.undecided = UNKNOWN_FORMAT, f"{name} is an HDF5 file, and none of Keras"
        return
    draft.roles = {_role(one) for one in found}
    draft.step = next((step for one in found if (step := _step(opened, one)) is not None), None)
    if with_tensors:
        base = opened.begin if isinstance(opened, _Part) else 0
        draft.tensors.extend(_range(one, name, base) for one in found if one.offset is not None)


def _size_finding(name: str, size_bytes: int, end_byte: int) -> Finding:
    detail = f"{name} has {size_bytes} bytes, and by its own head it ends at {end_byte}"
    first, last = sorted((size_bytes, end_byte))
    code, severity = ("shard_truncated", None) if size_bytes < end_byte else ("shard_oversized", Severity.WARNING)
    return finding(code, path=name, detail=detail, severity=severity, begin_byte=first, end_byte=last)


def _role(one: DataSet) -> Role:
    return Role.OPTIMIZER if one.name.startswith(("optimizer/", "optimizer_weights/")) else Role.MODEL


def _step(opened: Opened, one: DataSet) -> int | None:
    """The optimizer's count of steps, which it keeps as its first variable."""
    is_count = _role(one) is Role.OPTIMIZER and one.name.endswith(_STEP_ENDINGS) and "int" in one.dtype
    if not is_count or one.shape or one.offset is None or not 0 < one.length <= 8:
        return None
    step = int.from_bytes(opened.pread(one.length, one.offset), "little")
    return step if step < 1 << 63 else None


def _range(one: DataSet, name: str, base: int) -> TensorRange:
    return TensorRange(
        name=one.name,
        shard=name,
        offset_bytes=base + (one.offset or 0),
        length_bytes=one.length,
        dtype=one.dtype,
        shape=one.shape,
        role=_role(one),
    )
