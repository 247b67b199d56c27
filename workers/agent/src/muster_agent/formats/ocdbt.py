"""An OCDBT database in a folder: is every tree node whole, and is every byte that its values name there?

Manifests and tree nodes end with a CRC-32C of their own, so what a quick look reads of them is also verified. The
values (chunks of arrays) have none: of them the file, the place and the first bytes are looked at.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field

from muster_agent.formats.base import Finding, Severity
from muster_agent.formats.codes import finding
from muster_agent.formats.folder import Folder, trouble
from muster_agent.formats.names import unsafe_reason
from muster_agent.formats.ocdbt_codec import (
    MAX_ENVELOPE_BYTES,
    Entry,
    Manifest,
    Node,
    NodeRef,
    OcdbtRefused,
    Place,
    parse_manifest,
    parse_node,
)
from muster_agent.formats.tree import Opened

MANIFEST_NAME = "manifest.ocdbt"
_NUMBERED = re.compile(r"manifest\.(?:__)?[0-9a-f]{16}", re.ASCII)
IS_MANIFEST = re.compile(r"manifest\.(?:ocdbt|(?:__)?[0-9a-f]{16})", re.ASCII)
MAX_ENTRIES = 5_000_000
MAX_NODES = 200_000
_OPEN_FILES = 64
_MAX_LISTED = 100


@dataclass(slots=True)
class Database:
    """One database of a checkpoint. `at` is its folder's path below the checkpoint, with a `/` at its end or empty; all
    paths here are relative to the checkpoint. `severity` is that of what is found."""

    folder: Folder
    at: str
    unlisted: frozenset[str] = frozenset()
    severity: Severity = Severity.DAMAGE
    findings: list[Finding] = field(default_factory=list)
    needed: dict[str, int] = field(default_factory=dict)
    """Up to which byte each file is needed."""
    too_large: str | None = None
    entries: int = 0
    nodes: int = 0

    def report(self, code: str, path: str, detail: str, begin: int | None = None, end: int | None = None) -> None:
        if len(self.findings) < _MAX_LISTED:
            severity = None if self.severity is Severity.DAMAGE else self.severity
            found = finding(code, path=path, detail=detail, severity=severity, begin_byte=begin, end_byte=end)
            self.findings.append(found)

    def need(self, place: Place) -> str:
        """The path of the file, noted as needed to the place's end."""
        path = self.at + place.path
        self.needed[path] = max(self.needed.get(path, 0), place.offset + place.length)
        return path

    def is_hidden(self, path: str) -> bool:
        """Whether the file could not be looked at, so that it is never called missing."""
        return path in self.folder.blocked or any(path.startswith(one) for one in self.unlisted)

    @property
    def is_partly_hidden(self) -> bool:
        """Whether a part of the tree could not be looked at, so that what was not found in it may be there."""
        return any(self.is_hidden(path) for path in self.needed)


Take = Callable[[NodeRef, Entry], None]


def read_database(database: Database, take: Take, *, every_version: bool = False) -> None:
    """Walk the newest version of the tree (or every one that the manifest keeps), hand each entry to `take`, and hold
    the files against what the tree needs of them. Raises nothing: trouble is in the findings."""
    manifest = _manifest(database)
    if manifest is None or manifest.roots is None:
        return
    roots = manifest.roots if every_version else manifest.roots[-1:]
    with ExitStack() as stack:
        reader = _NodeReader(database, stack)
        for ref, node in reader.walk(roots):
            for entry in node.entries:
                _take_entry(database, ref, entry, take)
    _check_sizes(database)


def _manifest(database: Database) -> Manifest | None:
    name = database.at + MANIFEST_NAME
    manifest = _parse_manifest(database, name)
    if manifest is None or manifest.roots is not None:
        return manifest
    numbered = [one for one in _files_in(database) if _NUMBERED.fullmatch(one)]
    if not numbered:
        database.report("metadata_missing", name, f"{name} refers to numbered manifests, and there is none")
        return None
    return _parse_manifest(database, database.at + max(numbered))


def _files_in(database: Database) -> list[str]:
    start = len(database.at)
    return [name[start:] for name in database.folder.files if name.startswith(database.at)]


def _parse_manifest(database: Database, name: str) -> Manifest | None:
    if name not in database.folder.files:
        if not database.is_hidden(name):
            database.report("metadata_missing", name, f"{name} is not there: it names the tree of all arrays")
        return None
    try:
        return parse_manifest(database.folder.read(name, MAX_ENVELOPE_BYTES))
    except OSError as error:
        _report_trouble(database, name, error)
    except OcdbtRefused as refused:
        database.report("metadata_unreadable", name, f"{name} cannot be used: {refused.reason}")
    return None


def _report_trouble(database: Database, name: str, error: OSError) -> None:
    code = trouble(error, database.folder.path + "/" + name).code
    database.findings.append(finding(code, path=name, detail=f"{name} could not be read: {error.strerror}"))


class _NodeReader:
    """Reads nodes, each place once, with few files open at a time."""

    def __init__(self, database: Database, stack: ExitStack) -> None:
        self._database = database
        self._stack = stack
        self._open: dict[str, Opened] = {}
        self._seen: set[tuple[str, int, bytes]] = set()

    def walk(self, roots: tuple[NodeRef, ...]) -> Iterator[tuple[NodeRef, Node]]:
        waiting = list(roots)
        while waiting:
            ref = waiting.pop()
            key = (ref.place.path, ref.place.offset, ref.prefix)
            if key in self._seen:
                continue
            self._seen.add(key)
            if len(self._seen) > MAX_NODES or self._database.entries > MAX_ENTRIES:
                self._database.too_large = f"its tree has more than {MAX_ENTRIES} entries or {MAX_NODES} nodes"
                return
            node = self._node(ref)
            if node is not None:
                self._database.nodes += 1
                self._database.entries += len(node.entries)
                yield ref, node
                waiting.extend(reversed(node.children))

    def _node(self, ref: NodeRef) -> Node | None:
        database, place = self._database, ref.place
        if not _is_safe(database, place):
            return None
        name, end = database.need(place), place.offset + place.length
        seen = database.folder.files.get(name)
        if seen is None or seen.size_bytes < end:
            return None
        try:
            if place.length > MAX_ENVELOPE_BYTES:
                raise OcdbtRefused(f"it would have {place.length} bytes, more than any node")
            return parse_node(self._opened(name).pread(place.length, place.offset), ref)
        except OSError as error:
            _report_trouble(database, name, error)
        except OcdbtRefused as refused:
            detail = f"the tree node at byte {place.offset} of {name} cannot be used: {refused.reason}"
            database.report("metadata_unreadable", name, detail, place.offset, end)
        return None

    def _opened(self, name: str) -> Opened:
        if name not in self._open:
            if len(self._open) >= _OPEN_FILES:
                self._open.pop(next(iter(self._open))).close()
            self._open[name] = self._stack.enter_context(self._database.folder.open(name))
        return self._open[name]


def _is_safe(database: Database, place: Place) -> bool:
    reason = unsafe_reason(place.path)
    if reason is None:
        return True
    database.report("path_unsafe", database.at + MANIFEST_NAME, f"the file name {ascii(place.path[:200])} {reason}")
    return False


def _take_entry(database: Database, ref: NodeRef, entry: Entry, take: Take) -> None:
    if entry.place is not None:
        if database.at + entry.place.path not in database.needed and not _is_safe(database, entry.place):
            return
        database.need(entry.place)
    take(ref, entry)


def _check_sizes(database: Database) -> None:
    for name, end in sorted(database.needed.items()):
        seen = database.folder.files.get(name)
        if seen is None:
            if not database.is_hidden(name):
                tree = f"the tree of arrays that {database.at + MANIFEST_NAME} begins"
                database.report("shard_missing", name, f"{tree} places data in {name}, which is not there")
        elif seen.size_bytes < end:
            code = "shard_truncated" if seen.size_bytes else "shard_empty"
            detail = f"{name} has {seen.size_bytes} bytes, and the tree of arrays needs {end}"
            database.report(code, name, detail, seen.size_bytes, end)


def read_value(database: Database, entry: Entry, limit_bytes: int) -> bytes | None:
    """The value of an entry, None where it is larger than `limit_bytes` or cannot be read. Raises nothing."""
    if entry.place is None:
        return entry.value if entry.value is not None and len(entry.value) <= limit_bytes else None
    name = database.at + entry.place.path
    if entry.place.length > limit_bytes or name not in database.folder.files:
        return None
    try:
        with database.folder.open(name) as opened:
            return opened.pread(entry.place.length, entry.place.offset)
    except OSError:
        return None
