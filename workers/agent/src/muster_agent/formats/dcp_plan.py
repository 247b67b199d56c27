"""What the metadata of a DCP checkpoint promises, and what follows from that alone: it is worked out once for all steps
whose metadata promises the same."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from muster_agent.formats.base import Finding, Role
from muster_agent.formats.codes import finding
from muster_agent.formats.dcp_values import Chunk, Offsets, Stored
from muster_agent.formats.draft import first_role, role_of, wrappers_of

COMMIT_NAME = ".metadata"
MAX_LISTED = 100
"""Findings of one kind per checkpoint; more would say the same."""

DTYPE_BITS: dict[str, int] = {
    **dict.fromkeys(("bool", "uint8", "int8", "quint8", "qint8"), 8),
    **dict.fromkeys(("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu"), 8),
    **dict.fromkeys(("float16", "bfloat16", "int16", "uint16"), 16),
    **dict.fromkeys(("float32", "int32", "uint32", "complex32", "qint32"), 32),
    **dict.fromkeys(("float64", "int64", "uint64", "complex64"), 64),
    "complex128": 128,
}


class TensorPlan(NamedTuple):
    dtype: str
    size: tuple[int, ...]
    chunks: dict[Offsets, Chunk]


class FilePlan(NamedTuple):
    """What must lie in one data file: its records by offset, where the last of them ends, and what they hold."""

    records: list[Stored]
    end_byte: int
    role: Role
    faults: tuple[Finding, ...]
    """Records that leave gaps or overlap."""


@dataclass
class Plan:
    """The union of what the metadata files of one checkpoint say. `objects` are names of pickled non-tensor values.
    Steps share it: it does not change once it is made."""

    tensors: dict[str, TensorPlan] = field(default_factory=dict)
    objects: set[str] = field(default_factory=set)
    stored: dict[tuple[str, Offsets | None], Stored] = field(default_factory=dict)
    records: list[Stored] = field(default_factory=list)
    """Every record, also where ranks that did not talk to each other stored the same chunk."""
    writers: int | None = None
    """How many ranks wrote, where the metadata says so exactly (Megatron)."""
    raw_records: bool = False
    """Records are bare tensor bytes, not zips (ByteCheckpoint)."""

    @property
    def names(self) -> list[str]:
        return [*self.tensors, *self.objects]

    @cached_property
    def roles(self) -> frozenset[Role]:
        return frozenset(map(self.role_of, self.names))

    @cached_property
    def _wrappers(self) -> frozenset[str]:
        return wrappers_of(self.names)

    def role_of(self, name: str) -> Role:
        return role_of(name, self._wrappers)

    @cached_property
    def files(self) -> dict[str, FilePlan]:
        """By the file's name, sorted."""
        records: dict[str, list[Stored]] = defaultdict(list)
        for record in self.records:
            records[record.file].append(record)
        roles = self._roles_by_file()
        return {name: _file_plan(name, records[name], roles[name]) for name in sorted(records)}

    def _roles_by_file(self) -> dict[str, set[Role]]:
        """What each file holds, by the names of its records."""
        roles: dict[str, set[Role]] = defaultdict(set)
        known: dict[str, Role] = {}
        for (name, _), record in self.stored.items():
            role = known.get(name)
            if role is None:
                role = known[name] = self.role_of(name)
            roles[record.file].add(role)
        return roles

    @cached_property
    def bare(self) -> frozenset[Stored]:
        """Records exactly as long as their tensor: some writers store bare bytes, which have no head."""
        bare = set()
        for (name, offsets), record in self.stored.items():
            tensor = self.tensors.get(name)
            chunk = tensor.chunks.get(offsets) if tensor and offsets is not None else None
            if tensor and chunk and raw_bytes(tensor, chunk) == record.length:
                bare.add(record)
        return frozenset(bare)

    @cached_property
    def uncovered(self) -> list[Finding]:
        """Chunks without a record, and tensors whose chunks do not have their volume."""
        found, stored = [], self.stored
        for name, tensor in self.tensors.items():
            lost = [offsets for offsets in tensor.chunks if (name, offsets) not in stored]
            if lost:
                detail = f"{len(lost)} of {len(tensor.chunks)} parts of {name!r} are recorded in no file"
                found.append(finding("ranges_gap", path=COMMIT_NAME, detail=detail, tensor=name))
                continue
            have, need = sum([volume(sizes) for _, sizes in tensor.chunks.values()]), volume(tensor.size)
            if have != need:
                code = "ranges_gap" if have < need else "ranges_overlap"
                detail = f"the parts of {name!r} have {have} elements, the tensor has {need}"
                found.append(finding(code, path=COMMIT_NAME, detail=detail, tensor=name))
        for name in sorted(self.objects.difference(name for name, _ in stored) if self.objects else ()):
            detail = f"the object {name!r} is recorded in no file"
            found.append(finding("ranges_gap", path=COMMIT_NAME, detail=detail, tensor=name))
        return found[:MAX_LISTED]


def _file_plan(name: str, records: list[Stored], roles: set[Role]) -> FilePlan:
    records = sorted(set(records)) if len(records) > 1 else records
    end_byte = max([record.offset + record.length for record in records])
    return FilePlan(records, end_byte, first_role(roles, default=Role.MODEL), tuple(_tiling_findings(name, records)))


def _tiling_findings(name: str, records: list[Stored]) -> list[Finding]:
    """Records sorted by offset must fill the file from 0 with no gap and no overlap."""
    reached = 0
    for record in records:
        if record.offset != reached:
            code = "ranges_gap" if record.offset > reached else "ranges_overlap"
            first, last = sorted((reached, record.offset))
            detail = f"records of {name} do not meet: one ends at byte {reached}, the next begins at {record.offset}"
            return [finding(code, path=name, detail=detail, begin_byte=first, end_byte=last)]
        reached = record.offset + record.length
    return []


def merge(plans: list[Plan]) -> Plan:
    """The union over the metadata files of ranks that saved without talking to each other."""
    union = Plan(raw_records=any(plan.raw_records for plan in plans))
    for plan in plans:
        for name, tensor in plan.tensors.items():
            known = union.tensors.get(name)
            chunks = {**known.chunks, **tensor.chunks} if known else tensor.chunks
            size = tuple(map(max, known.size, tensor.size)) if known and len(known.size) == len(tensor.size) else None
            union.tensors[name] = TensorPlan(tensor.dtype, size or tensor.size, chunks)
        union.objects |= plan.objects
        union.stored.update(plan.stored)
        union.records += plan.records
    return union


def volume(sizes: tuple[int, ...]) -> int:
    """Number of elements; 1 for a scalar."""
    return math.prod(sizes)


def raw_bytes(tensor: TensorPlan, chunk: Chunk) -> int | None:
    """Bytes of the chunk's elements; None for a data type of unknown width."""
    bits = DTYPE_BITS.get(tensor.dtype)
    return None if bits is None else volume(chunk.sizes) * bits // 8
