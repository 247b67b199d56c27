"""A manifest as a list that `xxh128sum -c` checks without Muster."""

from __future__ import annotations

from muster_agent.manifest.model import Manifest


def checksum_list(manifest: Manifest) -> str:
    """One line per shard, to be checked from inside the checkpoint's folder. A name with a backslash or a line break is
    escaped as `xxh128sum` does it: the line begins with a backslash."""
    return "".join(_line(shard.xxh3_128, shard.path) for shard in manifest.shards)


def _line(digest: str, path: str) -> str:
    escaped = path.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
    return f"{'' if escaped == path else chr(92)}{digest}  {escaped}\n"
