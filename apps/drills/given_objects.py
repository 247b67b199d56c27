"""Signed URLs for the shards of a drill's reload task, made when the task is handed out."""

from __future__ import annotations

import logging
from typing import Any

import msgspec
from muster_agent.formats.names import family_folder
from muster_agent.protocol.wire import GivenObject, TaskKind
from muster_agent.storage.s3_client import S3Unavailable

from apps.checkpoints.models import Placement, Shard
from apps.drills.models import Drill
from apps.fleet.models import AgentTask
from apps.storage import presigned

log = logging.getLogger(__name__)


def supplement(task: AgentTask) -> dict[str, Any]:
    """The `objects` of a reload in a bucket, where this control plane signs; else nothing: its node signs itself."""
    if task.kind != TaskKind.RELOAD or not presigned.is_on(task.params["path"]):
        return {}
    drill = Drill.objects.filter(pk=task.owner_id).select_related("placement__tier").first()
    if drill is None or drill.placement is None or drill.placement.tier.endpoint_url:
        return {}  # an endpoint that a tier names is only followed by nodes that allow its addresses
    try:
        given = _given(drill.placement, task.params["shards"])
    except (S3Unavailable, OSError) as error:
        log.warning("no URLs could be signed for %s, so its node signs for itself: %s", task.pk, error)
        return {}
    return {"objects": msgspec.to_builtins(given)}


def _given(placement: Placement, paths: list[str]) -> dict[str, GivenObject]:
    shards = {shard.path: shard for shard in placement.shards.filter(path__in=paths)}
    locations = {path: location_of(placement.path, shard, len(shards)) for path, shard in shards.items()}
    urls = presigned.urls_of(locations.values())
    return {
        path: GivenObject(urls=urls[locations[path]], size_bytes=shard.size_bytes, mtime_ns=shard.mtime_ns or 0)
        for path, shard in shards.items()
    }


def location_of(placement_path: str, shard: Shard, shard_count: int) -> str:
    """Where the shard lies: in the checkpoint's folder, in the one that a family of files shares, or it is the file."""
    if shard_count == 1 and placement_path.rpartition("/")[2] == shard.path:
        return placement_path
    return f"{family_folder(placement_path) or placement_path}/{shard.path}"
