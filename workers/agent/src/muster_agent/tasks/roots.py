"""Paths that a task may touch: only what really lies under the node's configured roots, links included. A root may be a
part of a bucket, whose names are keys: nothing in them is resolved."""

from __future__ import annotations

import os
from collections.abc import Iterable

from muster_agent.formats.names import beside, is_text
from muster_agent.formats.places import PlaceInvalid, is_bucket, lies_in, place_of, resolved
from muster_agent.manifest.model import FILE_MANIFEST_SUFFIX, VERDICT_NAME

MAX_ENTRIES = 200_000
"""Beyond this many entries of one checkpoint, its links are not looked at one by one."""


class PathOutsideRoots(Exception):
    """The message names the path and says why it is refused."""


class Roots:
    """The folders that tasks may read. `resolve` follows every link first, so what it gives has none left."""

    def __init__(self, roots: Iterable[str]) -> None:
        self.roots = tuple(place_of(root) if is_bucket(root) else resolved(root) for root in roots)

    def resolve(self, path: str) -> str:
        """The real path, if it is one of the roots or inside one. Raises PathOutsideRoots.

        It is compared component by component: `/data` does not contain `/data2`.
        """
        real = _real(path)
        if not self._contains(real):
            led = "" if real in (path, os.path.normpath(path)) else f" (it leads to {real})"
            raise PathOutsideRoots(f"{path}{led} is outside this agent's roots: {', '.join(self.roots) or 'none'}")
        return real

    def resolve_checkpoint(self, path: str) -> str:
        """As `resolve`, and no link inside the checkpoint may lead out of the roots either."""
        real = self.resolve(path)
        for link in () if is_bucket(real) else _links_of(real):
            led = _real(link)
            if not self._contains(led):
                raise PathOutsideRoots(f"{link} is a link to {led}, outside this agent's roots")
        return real

    def _contains(self, real: str) -> bool:
        return any(lies_in(real, root) for root in self.roots)


def require_in_tier(path: str, tier_root: str) -> None:
    """Raises PathOutsideRoots where the path does not really lie in what is called its tier, which may be larger than a
    root, and is only looked at because the path is in it."""
    if not lies_in(_real(path), _real(tier_root)):
        raise PathOutsideRoots(f"{path} does not lie in its tier {tier_root}")


def _real(path: str) -> str:
    if is_bucket(path):
        try:
            return place_of(path)
        except PlaceInvalid as invalid:
            raise PathOutsideRoots(str(invalid)) from None
    if not path.startswith("/") or "\0" in path or not is_text(path):
        raise PathOutsideRoots(f"{path!r} is not an absolute path")
    try:
        return os.path.realpath(path)
    except (OSError, ValueError) as error:
        raise PathOutsideRoots(f"{path!r} cannot be followed to where it leads: {error}") from None


def _links_of(real: str) -> Iterable[str]:
    """In the checkpoint, or beside one that is a file."""
    if os.path.isdir(real):
        return _links_below(real)
    own = (beside(real, suffix) for suffix in (FILE_MANIFEST_SUFFIX, VERDICT_NAME))
    return [path for path in own if os.path.islink(path)]


def _links_below(folder: str) -> Iterable[str]:
    """Links in a folder tree; a folder that cannot be listed has none that could be followed."""
    waiting, seen = [folder], 0
    while waiting:
        try:
            entries = list(os.scandir(waiting.pop()))
        except OSError:
            continue
        for entry in entries:
            seen += 1
            if seen > MAX_ENTRIES:
                raise PathOutsideRoots(f"{folder} has more than {MAX_ENTRIES} entries; its links cannot all be checked")
            if entry.is_symlink():
                yield entry.path
            elif entry.is_dir(follow_symlinks=False):
                waiting.append(entry.path)
