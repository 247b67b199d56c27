"""`torch.save` calls the folder inside its zip after the file that it writes, so a file that lies under another one's
name shows it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import lru_cache

from muster_agent.formats.base import Finding
from muster_agent.formats.codes import finding

_MAX_LISTED = 100


def misplaced_findings(roots: Mapping[str, str], expected: Collection[str] = ()) -> list[Finding]:
    """Files of one checkpoint that hold the state of another of its files. `roots`: the folder inside each file's zip,
    by the file's path in the checkpoint; `expected`: files that belong to it too, there or not. A name inside that
    none of them has means nothing: the whole may have been renamed, or written through a stream."""
    suspects = [name for name, root in roots.items() if root != _stem(name)]
    inside = {roots[name] for name in suspects}
    names: dict[str, list[str]] = {}
    for name in (*expected, *roots) if inside else ():
        if _stem(name) in inside:
            names.setdefault(_stem(name), []).append(name)
    found = []
    for name in sorted(suspects) if names else ():
        others = names.get(roots[name])
        if others:
            other = _nearest(name, others)
            detail = f"{name} was saved as {other}: it holds that file's state, and what belongs here is gone"
            cure = "If the two were swapped, swap them back; else copy the file from another placement."
            found.append(finding("ranges_gap", path=name, detail=detail, cure=cure))
    return found[:_MAX_LISTED]


def _nearest(name: str, others: list[str]) -> str:
    """Which of `others`, which only differ in their folders, to name: the one beside `name`, or the only one, or the
    name that all have."""
    beside = name.rpartition("/")[0]
    near = next((other for other in others if other.rpartition("/")[0] == beside), None)
    return near or (others[0] if len(others) == 1 else others[0].rpartition("/")[2])


@lru_cache(maxsize=1 << 14)
def _stem(name: str) -> str:
    return name.rsplit("/", 1)[-1].rsplit(".", 1)[0]
