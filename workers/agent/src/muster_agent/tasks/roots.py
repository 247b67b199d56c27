"""Paths that a task may touch: only what really lies under the node's configured roots, links included. A root may be a
part of a bucket, whose names are keys: nothing in them is resolved."""

from __future__ import annotations

import os
from collections.abc import Iterable

from muster_agent.formats.places import PlaceInvalid, is_bucket, place_of, resolved

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
        for link in () if is_bucket(real) else _links_below(real):
            if not self._contains(os.path.realpath(link)):
                raise PathOutsideRoots(f"{link} is a link to {os.path.realpath(link)}, outside this agent's roots")
        return real

    def _contains(self, real: str) -> bool:
        return any(real == root or real.startswith(root.rstrip("/") + "/") for root in self.roots)


def _real(path: str) -> str:
    if is_bucket(path):
        try:
            return place_of(path)
        except PlaceInvalid as invalid:
            raise PathOutsideRoots(str(invalid)) from None
    if not path.startswith("/") or "\0" in path:
        raise PathOutsideRoots(f"{path!r} is not an absolute path")
    return os.path.realpath(path)


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
