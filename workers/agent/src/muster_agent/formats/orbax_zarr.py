"""An Orbax item without OCDBT: one zarr folder for each array, one file for each of its chunks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from muster_agent.formats.base import Severity
from muster_agent.formats.draft import Draft
from muster_agent.formats.folder import FileSeen, Folder
from muster_agent.formats.orbax_arrays import ArraySeen, integer_of
from muster_agent.formats.orbax_tree import role_of_param
from muster_agent.formats.spread import spread
from muster_agent.formats.zarr import CHUNK_NAME, METADATA_NAMES, PROBED_FILES, ZarrArray, probe_findings, take_chunks
from muster_agent.formats.zarr_grid import MAX_DOCUMENT_BYTES, parse_grid

_MAX_SCALAR_BYTES = 4096


@dataclass(slots=True)
class ZarrItem:
    """The arrays below `at`; `found` is filled by `read`."""

    folder: Folder
    at: str
    unlisted: frozenset[str]
    stores_all: bool = False
    """Whether the writer leaves no chunk out, not even one of fill values only."""
    found: dict[str, ArraySeen] = field(default_factory=dict)
    _chunks: dict[str, dict[str, FileSeen]] = field(default_factory=dict)

    def read(self, draft: Draft, with_tensors: bool) -> None:
        """Take the arrays, and the findings about single chunks, into the draft."""
        self._group()
        files: list[tuple[ZarrArray, str]] = []
        for array in self._described():
            absent = Severity.DAMAGE if self.stores_all and not self._is_hidden(array.at) else None
            take_chunks(draft, array, absent=absent, with_tensors=with_tensors)
            files += [(array, name) for name in array.files]
        for array, name in spread(files, PROBED_FILES):
            draft.findings.extend(probe_findings(self.folder, array, [name]))

    def _group(self) -> None:
        start = len(self.at)
        paths = [name for name in self.folder.files if name.startswith(self.at)]
        for path in paths:
            head, _, tail = path[start:].rpartition("/")
            if tail in METADATA_NAMES and head:
                self.found[head] = ArraySeen()
                self._chunks[head] = {}
        for path in paths:
            parts = path[start:].split("/")
            for end in range(1, len(parts)):
                name, chunk = "/".join(parts[:end]), "/".join(parts[end:])
                if name in self.found and CHUNK_NAME.fullmatch(chunk):
                    self._chunks[name][chunk] = self.folder.files[path]
                    self.found[name].chunks += 1
                    break

    def _described(self) -> Iterator[ZarrArray]:
        for name, array in self.found.items():
            below = f"{self.at}{name}/"
            for own in METADATA_NAMES:
                if below + own in self.folder.files:
                    try:
                        array.grid = parse_grid(self.folder.read(below + own, MAX_DOCUMENT_BYTES))
                    except (ValueError, OSError) as error:
                        array.problem = f"its description cannot be used: {error}"
            if array.grid is not None:
                blocked = frozenset(path.removeprefix(below) for path in self.folder.blocked if path.startswith(below))
                yield ZarrArray(name, role_of_param(name), array.grid, self._chunks[name], below, blocked)

    def _is_hidden(self, below: str) -> bool:
        """Whether a folder that could not be listed may hold chunks of the array."""
        return any(one.startswith(below) or below.startswith(one) for one in self.unlisted)

    def integer(self, name: str) -> int | None:
        """The value of the integer scalar of this name; None where there is none, or it cannot be read."""
        array = self.found.get(name)
        if array is None or array.grid is None or array.grid.shape or array.chunks != 1:
            return None
        chunk = next(iter(self._chunks[name]))
        try:
            return integer_of(array.grid, self.folder.read(f"{self.at}{name}/{chunk}", _MAX_SCALAR_BYTES))
        except OSError:
            return None
