"""Whether the next save of the run saved last fits onto every single target of the storage, not only onto their sum."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from muster_agent.formats.base import Finding, ShardMap, Status
from muster_agent.formats.checkpoint import absolute_path
from muster_agent.formats.codes import finding
from muster_agent.probes.lustre import read_stripe_count
from muster_agent.probes.lustre_space import TargetSpace, short_of

_GIB = 1 << 30
_SHOWN = 3
_ASKED = 8
"""Of the largest files how many are asked for their stripes."""


def target_findings(
    place: str,
    checkpoints: Iterable[ShardMap],
    spaces: Sequence[TargetSpace],
    stripes: Callable[[str], int | None] = read_stripe_count,
) -> list[Finding]:
    """A warning where a target has less room than the newest whole checkpoint put onto one target by a single file: a
    save like it may fail there. Nothing where no target is known, or nothing whole lies here to go by."""
    whole = [one for one in checkpoints if one.status is Status.COMPLETE and one.newest_mtime_ns is not None]
    newest = max(whole, key=lambda one: (one.newest_mtime_ns or 0, one.path), default=None)
    if not spaces or newest is None:
        return []
    needed_bytes = _largest_piece_bytes(newest, stripes)
    short = short_of(spaces, needed_bytes)
    if not short:
        return []
    names = ", ".join(f"{one.target} ({one.free_bytes / _GIB:.1f} GiB left)" for one in short[:_SHOWN])
    more = f" and {len(short) - _SHOWN} more" if len(short) > _SHOWN else ""
    free_bytes = sum(one.free_bytes for one in spaces)
    detail = (
        f"{len(short)} of {len(spaces)} storage targets have no room for a part of a file as large as the "
        f"{needed_bytes / _GIB:.1f} GiB that {newest.path} put onto one: {names}{more}; that all together have "
        f"{free_bytes / _GIB:.1f} GiB does not help a file that is striped over a full one"
    )
    return [finding("target_full", path=place, detail=detail)]


def _largest_piece_bytes(shard_map: ShardMap, stripes: Callable[[str], int | None]) -> int:
    """What the largest files put onto each of their targets; a file of unknown stripes is taken to lie on one."""
    largest = sorted(shard_map.shards, key=lambda one: one.size_bytes or 0)[-_ASKED:]
    pieces = [-(-(one.size_bytes or 0) // (stripes(absolute_path(shard_map, one.path)) or 1)) for one in largest]
    return max(pieces, default=0)
