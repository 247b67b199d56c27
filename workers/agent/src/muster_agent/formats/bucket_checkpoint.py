"""Reading one checkpoint that lies in a bucket; see `checkpoint.read_checkpoint` for one on a file system."""

from __future__ import annotations

import errno
import os

from muster_agent.formats import registry
from muster_agent.formats.base import ShardMap
from muster_agent.formats.checkpoint import (
    GRACE_SECONDS,
    could_not_look,
    read_family,
    read_folder,
    read_single_file,
)
from muster_agent.formats.folder import trouble
from muster_agent.formats.names import family_folder
from muster_agent.formats.s3_tree import S3Tree
from muster_agent.formats.verdict import AgeLimit


def read_in_bucket(
    tree: S3Tree, path: str, *, grace_seconds: float = GRACE_SECONDS, with_tensors: bool = True
) -> ShardMap:
    """Everything that can be known about the one checkpoint at `path`, as the tree lists it. Raises nothing: trouble is
    in the findings."""
    try:
        return _read(tree, path, AgeLimit(tree.clock().unix_seconds, grace_seconds), with_tensors=with_tensors)
    except OSError as error:
        return could_not_look(path, trouble(error, path), AgeLimit(tree.clock().unix_seconds, grace_seconds))


def _read(tree: S3Tree, path: str, age_limit: AgeLimit, *, with_tensors: bool) -> ShardMap:
    parent, _, name = path.rpartition("/")
    if tree.is_folder(path):
        return read_folder(tree.look(path, parent), age_limit=age_limit, with_tensors=with_tensors)
    together = family_folder(path)
    if together is not None:
        folder = tree.look(together, together)
        for family_format, family in registry.families_of(folder):
            if f"{together}/{family.pattern}" == path:
                return read_family(folder, family_format, family, age_limit=age_limit, with_tensors=with_tensors)
    folder = tree.look(parent, parent)
    if name in folder.files:
        return read_single_file(folder, name, age_limit=age_limit, with_tensors=with_tensors)
    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))


def is_in_bucket(tree: S3Tree, path: str) -> bool:
    """Whether anything lies at the path: a folder, an object, or a family of them. Raises OSError."""
    if tree.is_folder(path) or tree.seen(path) is not None:
        return True
    together = family_folder(path)
    if together is None or not tree.is_folder(together):
        return False
    families = registry.families_of(tree.look(together, together))
    return any(f"{together}/{family.pattern}" == path for _, family in families)
