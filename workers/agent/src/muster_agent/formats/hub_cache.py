"""Hugging Face's download cache: `snapshots/<revision>/` holds links to `blobs/`, which a copy or a move breaks."""

from __future__ import annotations

import os

from muster_agent.formats.codes import finding
from muster_agent.formats.draft import Draft
from muster_agent.formats.folder import Folder
from muster_agent.formats.places import lies_in

SNAPSHOTS = "snapshots"
BLOBS = "blobs"


def note_broken_links(draft: Draft, folder: Folder) -> None:
    """Links of a snapshot whose blob is in the cache, but not where they lead: the files are not there, and can be put
    right. Blobs outside the folder that is inspected are not looked for."""
    revision = os.path.dirname(folder.path)
    cache = os.path.dirname(revision)
    if not folder.targets or os.path.basename(revision) != SNAPSHOTS or not _is_inside(cache, folder.root):
        return
    blobs = folder.tree.look(os.path.join(cache, BLOBS), folder.root)
    for name, target in sorted(folder.targets.items()):
        blob = target.rsplit("/", 1)[-1]
        if blob in blobs.files:
            right = f"../../{BLOBS}/{blob}"
            detail = f"its link leads to {target!r}, which is not to be had; the file itself is {right}"
            cure = f"Put the link right: `ln -sfn {right} {name}`; downloading again is not needed."
            draft.findings.append(finding("shard_missing", path=name, detail=detail, cure=cure))


def root_of(real: str) -> str:
    """The resolved folder that links below the resolved folder `real` may not lead out of: itself, or, for a snapshot
    of the cache, the cache's folder of that one model, where its files are."""
    snapshots = real if os.path.basename(real) == SNAPSHOTS else os.path.dirname(real)
    cache = os.path.dirname(snapshots)
    is_snapshot = os.path.basename(snapshots) == SNAPSHOTS and os.path.basename(cache).startswith(_KINDS)
    return cache if is_snapshot and os.path.isdir(os.path.join(cache, BLOBS)) else real


_KINDS = ("models--", "datasets--", "spaces--")


def _is_inside(path: str, root: str) -> bool:
    return lies_in(os.path.realpath(path), root)
