"""Looking into DCP data files: do records begin as records do, where do tensors lie, and which step is inside?"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator

from muster_agent.formats.base import Finding, TensorRange
from muster_agent.formats.codes import finding
from muster_agent.formats.dcp_plan import Plan, TensorPlan, raw_bytes
from muster_agent.formats.dcp_values import Chunk, Stored
from muster_agent.formats.folder import Folder, trouble
from muster_agent.formats.holes import hole_findings, judged_by_sums
from muster_agent.formats.names import step_of_name
from muster_agent.formats.spread import spread
from muster_agent.formats.torch_record import ZIP_MAGIC, tensor_bytes
from muster_agent.formats.tree import Opened
from muster_agent.formats.zip_directory import END_BYTES, Member, ZipRefused, is_whole_end, read_archive

FILES_LOOKED_AT = 16
HEADS_PER_FILE = 8
"""Record heads looked at per file: the first, the last and some between. A foreign file fails at the first of them."""
_MAX_LISTED = 100
_STEP_NAMES = ("train_state.step", "train_state.global_step")
_WEAK_STEP_NAMES = ("step", "global_step", "iteration")
"""Believed only where the folder's name gives no step: a tensor of such a name may count something else."""
_INTEGER_BYTES = {"int64": 8, "int32": 4, "uint8": 1, "int16": 2}


def record_findings(folder: Folder, plan: Plan, *, every_file: bool) -> list[Finding]:
    """Records that do not begin or end as `torch.save` begins and ends them, and files that could not be opened. Of
    more than FILES_LOOKED_AT files only a spread is opened, and of their records some, unless `every_file`: opening
    each costs more than listing it. Of a file with a hole every record is looked at, since a hole is how a write that
    never reached the storage shows."""
    names = [name for name in plan.files if name in folder.files]
    found: list[Finding] = []
    for name in folder.ahead(names if every_file else spread(names, FILES_LOOKED_AT)):
        promised = plan.files[name]
        records = [record for record in promised.records if record not in plan.bare]
        fits = promised.end_byte == folder.files[name].size_bytes
        try:
            with folder.open(name) as opened:
                holes = hole_findings(opened, name)
                if fits and not plan.raw_records:
                    faults = _zip_findings(opened, name, records, every_record=every_file or bool(holes))
                    found.extend(faults)
                    if holes and not faults and len(records) == len(promised.records):
                        holes = judged_by_sums(holes, opened, _members(opened, records))
                found.extend(holes)
        except OSError as error:
            detail = f"{name} could not be read: {error.strerror}"
            found.append(finding(trouble(error, os.path.join(folder.path, name)).code, path=name, detail=detail))
    return found


def _zip_findings(opened: Opened, name: str, records: list[Stored], *, every_record: bool) -> list[Finding]:
    """Records that are not the zips that `torch.save` writes. Raises OSError."""
    zips = [item for item in records if not item.transformed and item.length]
    if every_record:
        faults = ((item, _fault_of(opened, item)) for item in zips)
        return [_record_finding(name, item, fault) for item, fault in faults if fault][:_MAX_LISTED]
    for item in spread(zips, HEADS_PER_FILE):
        if opened.pread(4, item.offset) != ZIP_MAGIC:
            return [_record_finding(name, item, _BEGIN_FAULT)]
    last = zips[-1] if zips else None
    if last is not None and not is_whole_end(opened.pread(END_BYTES, last.offset + last.length - END_BYTES)):
        return [_record_finding(name, last, _END_FAULT)]
    return []


def _members(opened: Opened, records: Iterable[Stored]) -> list[Member]:
    """Of all records that are zips; none where some are none, so that nothing vouches for a part of the file."""
    members: list[Member] = []
    for item in records:
        archive = None if item.transformed else read_archive(opened, item.offset, item.offset + item.length)
        if archive is None:
            return []
        members += archive.members
    return members


_BEGIN_FAULT = "does not begin as a record does"
_END_FAULT = "does not end as a record does: its directory is gone"


def _fault_of(opened: Opened, record: Stored) -> str | None:
    if opened.pread(4, record.offset) != ZIP_MAGIC:
        return _BEGIN_FAULT
    try:
        return None if read_archive(opened, record.offset, record.offset + record.length) else _END_FAULT
    except ZipRefused as refused:
        return f"cannot be read: {refused.detail}"


def _record_finding(name: str, record: Stored, fault: str) -> Finding:
    begin, end = record.offset, record.offset + record.length
    detail = f"the record at byte {begin} of {name} {fault}"
    return finding("metadata_unreadable", path=name, detail=detail, begin_byte=begin, end_byte=end)


def step_inside(folder: Folder, plan: Plan) -> tuple[int | None, str]:
    """The training step that the state itself holds as an integer scalar, and the file that it lies in; None where it
    holds none."""
    weak = () if step_of_name(os.path.basename(folder.path)) is not None else _WEAK_STEP_NAMES
    for name in (*_STEP_NAMES, *weak):
        tensor, record = plan.tensors.get(name), plan.stored.get((name, ()))
        width = _INTEGER_BYTES.get(tensor.dtype) if tensor and tensor.size == () else None
        if record is None or width is None or record.file not in folder.files:
            continue
        try:
            with folder.open(record.file) as opened:
                place = tensor_bytes(opened, record.offset, record.length, width)
                value = int.from_bytes(opened.pread(width, place[0]), "little", signed=True) if place else -1
        except OSError:
            continue
        if value >= 0:
            return value, record.file
    return None, ""


def ranges_of(folder: Folder, plan: Plan) -> Iterator[TensorRange]:
    """Where each tensor's bytes lie: inside the record where that can be told, else the whole record. Pickled objects
    are given as one range of type `object`."""
    by_file: dict[str, list[tuple[str, tuple[int, ...] | None, Stored]]] = defaultdict(list)
    for (name, offsets), record in plan.stored.items():
        by_file[record.file].append((name, offsets, record))
    for file in folder.ahead(sorted(by_file.keys() & folder.files.keys())):
        try:
            with folder.open(file) as opened:
                for name, offsets, record in sorted(by_file[file], key=lambda item: item[2].offset):
                    yield _range(opened, plan, name, offsets, record)
        except OSError:
            continue


def _range(opened: Opened, plan: Plan, name: str, offsets: tuple[int, ...] | None, record: Stored) -> TensorRange:
    tensor = plan.tensors.get(name)
    chunk = tensor.chunks.get(offsets) if tensor and offsets is not None else None
    begin, end = record.offset, record.offset + record.length
    if tensor and chunk:
        begin, end = _inner(opened, tensor, chunk, record) or (begin, end)
    return TensorRange(
        name=name,
        shard=record.file,
        offset_bytes=begin,
        length_bytes=end - begin,
        dtype=tensor.dtype if tensor else "object",
        shape=chunk.sizes if chunk else (),
        role=plan.role_of(name),
    )


def _inner(opened: Opened, tensor: TensorPlan, chunk: Chunk, record: Stored) -> tuple[int, int] | None:
    expected = raw_bytes(tensor, chunk)
    if expected is None or record.transformed or record.length == expected:
        return None
    return tensor_bytes(opened, record.offset, record.length, expected)
