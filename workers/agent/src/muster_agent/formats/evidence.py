"""What was looked at to read a checkpoint, in a form that a later look can be held against."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import msgspec
import xxhash

import muster_agent
from muster_agent.formats.base import ShardMap
from muster_agent.formats.folder import FileSeen, Folder


class Evidence(msgspec.Struct, frozen=True, array_like=True):
    """`listings`: the digest of the folder's own listing (path "") and of each sub-folder that was looked at, by path
    relative to it. `reached`: files that were asked for by name in folders that were not listed."""

    listings: tuple[tuple[str, bytes], ...]
    reached: tuple[tuple[str, FileSeen | None], ...] = ()


class Memory(Protocol):
    """What earlier scans of the same root found. All may be called from several threads, and raise nothing."""

    def knows(self, path: str) -> bool:
        """Whether anything is remembered of `path`, changed or not."""
        ...

    def recall(self, path: str, folder: Folder) -> ShardMap | None:
        """What was found at `path`, if all that was looked at then, beginning at `folder`, lies as it did."""
        ...

    def recall_listing(self, path: str, listing: bytes) -> ShardMap | None:
        """As `recall`, where nothing but one folder was looked at then, by the digest of its listing."""
        ...

    def keep(self, path: str, evidence: Evidence, shard_map: ShardMap) -> None: ...


def evidence_of(folder: Folder) -> Evidence:
    """What has been looked at through `folder` until now."""
    return Evidence(
        tuple((path, digest(one)) for path, one in _listed("", folder)),
        tuple((path + name, seen) for path, one in _listed("", folder) for name, seen in sorted(one.reached.items())),
    )


def still_holds(evidence: Evidence, folder: Folder) -> bool:
    """Whether `folder`, just looked at, and what was looked at through it lie as they did. Lists the sub-folders."""
    for path, known in evidence.listings:
        one = _find(folder, path)
        if one is None or digest(one) != known:
            return False
    return all(folder.tree.stamp(f"{folder.path}/{name}") == seen for name, seen in evidence.reached)


def digest(folder: Folder) -> bytes:
    """XXH3-128 of one listing: names, sizes, times and inodes, and in a bucket what is archived or being uploaded. The
    time of a file's last status change, and that of an object, cannot be set back, so they tell even of a file that was
    written again with its size and time of change kept."""
    names = sorted([name for name in folder.files if "/" not in name])
    listing = (
        names,
        [folder.files[name] for name in names],
        sorted(folder.identities.items()),
        sorted(folder.links),
        sorted(filter(_is_own, folder.blocked)),
        [(found.code, found.path, found.detail) for found in folder.findings if _is_own(found.path.removeprefix("/"))],
        folder.listed,
        sorted(filter(_is_own, folder.archived)),
        sorted(folder.uploads.items()),
    )
    try:
        return xxhash.xxh3_128_digest(msgspec.msgpack.encode(listing))
    except (OverflowError, UnicodeEncodeError):  # times beyond 64 bits, link targets that are no text
        return xxhash.xxh3_128_digest(repr(listing).encode("utf-8", "surrogatepass"))


def _is_own(name: str) -> bool:
    """Whether it is in the listing itself; readers add what they reached in sub-folders, with `/`."""
    return "/" not in name


def readers_version() -> str:
    """A value that differs wherever another version of the readers may understand the same files differently."""
    hasher = xxhash.xxh3_128(muster_agent.__version__.encode())
    for source in sorted(Path(__file__).parent.glob("*.py")):
        hasher.update(source.read_bytes())
    return hasher.hexdigest()


def _listed(path: str, folder: Folder) -> Iterator[tuple[str, Folder]]:
    yield path, folder
    for name, sub in sorted(folder.subs.items()):
        yield from _listed(f"{path}{name}/", sub)


def _find(folder: Folder, path: str) -> Folder | None:
    for name in path.split("/")[:-1]:
        if name not in folder.folders:
            return None
        folder = folder.sub(name)
    return folder
