"""Where the tensors of a file of `torch.save` lie, and whether every storage that its pickle refers to is there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from muster_agent.formats.base import Finding, TensorRange
from muster_agent.formats.codes import finding
from muster_agent.formats.dcp_plan import DTYPE_BITS
from muster_agent.formats.draft import role_of
from muster_agent.formats.torch_pickle import TorchPickle
from muster_agent.formats.torch_values import StorageRef, TensorValue, named_tensors
from muster_agent.formats.tree import Opened
from muster_agent.formats.zip_directory import Member, payload_begin

PICKLE_SUFFIX = "/data.pkl"
_MAX_LISTED = 20


def pickle_member(members: Sequence[Member]) -> Member:
    """The member that holds the pickle. Raises StopIteration for a zip that has none."""
    return next(member for member in members if member.name.endswith(PICKLE_SUFFIX))


def storage_prefix(members: Sequence[Member]) -> str:
    """What the names of the storages begin with; their keys follow."""
    return pickle_member(members).name.removesuffix(PICKLE_SUFFIX) + "/data/"


def storage_findings(pickle: TorchPickle, members: Sequence[Member], name: str) -> list[Finding]:
    """Every storage that the pickle of the zip called `name` refers to must be a member that is long enough."""
    prefix = storage_prefix(members)
    sizes = {member.name: (member.size_bytes, member.stored) for member in members}
    found: list[Finding] = []
    for key, storage in pickle.storages.items():
        held, is_stored = sizes.get(prefix + key, (None, True))
        needed = storage_bytes(storage)
        if held is None:
            detail = f"member {prefix + key!r} of {name}, which its tensors need, is not in it"
            found.append(finding("ranges_gap", path=name, detail=detail))
        elif needed is not None and is_stored and held < needed:
            detail = f"member {prefix + key!r} of {name} has {held} bytes, its tensors need {needed}"
            found.append(finding("shard_truncated", path=name, detail=detail))
        if len(found) >= _MAX_LISTED:
            break
    return found


def storage_bytes(storage: StorageRef) -> int | None:
    """Bytes of a storage; None where its data type is not known."""
    bits = DTYPE_BITS.get(storage.dtype)
    return None if bits is None else storage.element_count * bits // 8


def member_places(opened: Opened, members: Sequence[Member]) -> dict[str, tuple[int, int]]:
    """(begin, size) in the file of each storage's payload, by its key. Raises OSError."""
    prefix = storage_prefix(members)
    places = {}
    for member in members:
        if member.stored and member.name.startswith(prefix):
            begin = payload_begin(opened, member)
            if begin is not None:
                places[member.name.removeprefix(prefix)] = (begin, member.size_bytes)
    return places


def ranges_of(pickle: TorchPickle, places: Mapping[str, tuple[int, int]], shard: str) -> Iterator[TensorRange]:
    """Each tensor that lies within its storage's payload, as a range of `shard`."""
    for name, tensor in named_tensors(pickle.value):
        place, span = places.get(tensor.storage.key), _span(tensor)
        if place is not None and span is not None and span[0] + span[1] <= place[1]:
            yield TensorRange(
                name=name or "value",
                shard=shard,
                offset_bytes=place[0] + span[0],
                length_bytes=span[1],
                dtype=tensor.dtype,
                shape=tensor.shape,
                role=role_of(name),
            )


def _span(tensor: TensorValue) -> tuple[int, int] | None:
    """(offset, length) in bytes of what the view touches of its storage; None where that cannot be told."""
    bits = DTYPE_BITS.get(tensor.storage.dtype)
    if bits is None or tensor.offset_elements < 0 or len(tensor.shape) != len(tensor.stride):
        return None
    if any(size < 0 for size in (*tensor.shape, *tensor.stride)):
        return None
    last = sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride, strict=True))
    count = 0 if 0 in tensor.shape else last + 1
    return tensor.offset_elements * bits // 8, count * bits // 8
