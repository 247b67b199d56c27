"""Whether files agree with what their own format records of them, whatever a seal says."""

from __future__ import annotations

from collections.abc import Collection

from muster_agent.formats.base import Role, Status
from muster_agent.formats.own_checks import check_file, recorded_sums
from muster_agent.jobs.checkpoint_place import CheckpointPlace


def agree_with_own_sums(place: CheckpointPlace, paths: Collection[str]) -> bool | None:
    """Whether the shards `paths` of the checkpoint agree with the check sums that they carry, metadata by what its
    reader says; False also where the checkpoint is not whole. None where none of them carries a sum. Raises nothing."""
    shard_map = place.read()
    roles = {shard.path: shard.role for shard in shard_map.shards if shard.size_bytes is not None}
    if shard_map.status is not Status.COMPLETE or not roles.keys() >= set(paths):
        return False
    stated = {one.path: one for one in place.stat_all(list(roles))}
    sums = recorded_sums(shard_map, lambda path: place.open_file(stated[path]))
    summed = [path for path in paths if sums.get(path)]
    try:
        for path in summed:
            with place.open_file(stated[path]) as opened:
                if check_file(opened, path, sums[path]):
                    return False
    except OSError:
        return None
    others = (roles[path] for path in paths if path not in summed)
    return True if summed and all(role in (Role.METADATA, Role.OTHER) for role in others) else None
