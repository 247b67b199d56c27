"""What a format brings to the registry: how it knows its own, and how it reads it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from muster_agent.formats.draft import Draft
from muster_agent.formats.folder import Folder


def _owns_nothing(_folder: Folder) -> Iterable[str]:
    return ()


class FolderFormat(NamedTuple):
    """A checkpoint that is one folder. `claims` looks at names, and at content only where names cannot tell. `owns`
    names the sub-folders that belong to the checkpoint although they are named like steps."""

    name: str
    claims: Callable[[Folder], bool]
    read: Callable[[Folder, bool], Draft]
    owns: Callable[[Folder], Iterable[str]] = _owns_nothing


class FileFormat(NamedTuple):
    """A checkpoint that is one file. `claims` and `read` get the folder and the file's name."""

    name: str
    claims: Callable[[Folder, str], bool]
    read: Callable[[Folder, str, bool], Draft]


class Family(NamedTuple):
    """One step of several in a folder, or one that lies over several folders. `pattern` is its path relative to the
    folder, with `{rank}` (or another word in braces) where its files differ, as launchers write it; `files` and
    `folders` are the names in the folder that belong to it and to nothing else."""

    pattern: str
    step: int | None
    files: frozenset[str] = frozenset()
    folders: frozenset[str] = frozenset()


class FamilyFormat(NamedTuple):
    """`families` finds those of a folder, cheaply where there is none. Shard paths of the draft that `read` gives are
    relative to that same folder."""

    name: str
    families: Callable[[Folder], list[Family]]
    read: Callable[[Folder, Family, bool], Draft]
