"""What passes between a process and the child that reads a checkpoint for it: MessagePack with its length in front."""

from __future__ import annotations

import array
import os
import socket
import time
from collections.abc import Sequence
from typing import Any

import msgspec

from muster_agent.formats.base import Finding
from muster_agent.formats.draft import Draft
from muster_agent.formats.folder import FileSeen, Folder
from muster_agent.formats.reader import Family
from muster_agent.formats.tree import Tree

MAX_MESSAGE_BYTES = 1 << 30
MAX_TOGETHER = 32
"""Files that are opened by one question, and so descriptors that come along with one answer."""


class SentFolder(msgspec.Struct, kw_only=True):
    """A Folder without its tree."""

    path: str
    root: str
    files: dict[str, FileSeen]
    folders: list[str]
    links: set[str]
    blocked: set[str]
    findings: list[Finding]
    listed: bool
    gone: bool
    mtime_ns: int | None

    @classmethod
    def of(cls, folder: Folder) -> SentFolder:
        return cls(**{name: getattr(folder, name) for name in cls.__struct_fields__})

    def folder(self, tree: Tree) -> Folder:
        return Folder(**msgspec.structs.asdict(self), tree=tree)


class Request(msgspec.Struct, kw_only=True):
    """Which reader to run: the folder's own; for the file `name` in it; or, with `family`, that of `format`."""

    folder: SentFolder
    format: str
    name: str | None = None
    family: Family | None = None
    with_tensors: bool = False


# -- what the child asks and says --------------------------------------------------------------------------------------
class Look(msgspec.Struct, tag=True):
    path: str


class Take(msgspec.Struct, tag=True):
    path: str
    name: str


class Open(msgspec.Struct, tag=True):
    path: str


class OpenAll(msgspec.Struct, tag=True):
    """At most MAX_TOGETHER."""

    paths: list[str]


class Pread(msgspec.Struct, tag=True):
    file: int
    length_bytes: int
    offset_bytes: int


class Hole(msgspec.Struct, tag=True):
    file: int


class Close(msgspec.Struct, tag=True):
    file: int


class Done(msgspec.Struct, tag=True):
    draft: Draft


class Failed(msgspec.Struct, tag=True):
    """`exception` is the name of its class; no text of the child's is trusted any further."""

    exception: str


Said = Look | Take | Open | OpenAll | Pread | Hole | Close | Done | Failed


# -- what it is answered -----------------------------------------------------------------------------------------------
class Took(msgspec.Struct, tag=True):
    seen: FileSeen | None
    blocked: bool
    findings: list[Finding]


class Looked(msgspec.Struct, tag=True):
    folder: SentFolder


class Opened(msgspec.Struct, tag=True):
    """`has_descriptor` where the file comes along as an open descriptor; else it is read through its number."""

    file: int
    size_bytes: int
    has_descriptor: bool


class Bytes(msgspec.Struct, tag=True):
    data: bytes


class Holes(msgspec.Struct, tag=True):
    hole: tuple[int, int] | None


class Trouble(msgspec.Struct, tag=True):
    """An operating-system error."""

    number: int
    text: str


class OpenedAll(msgspec.Struct, tag=True):
    """In the order of the question."""

    files: list[Opened | Trouble]


Answer = Took | Looked | Opened | OpenedAll | Bytes | Holes | Trouble


class Pipe:
    """One end. Messages are received whole; a length beyond the bound ends the talk before anything is allocated."""

    def __init__(self, end: socket.socket) -> None:
        self.end = end
        self.descriptors: list[int] = []
        """Descriptors that came along with the last message."""

    def send(self, message: object, descriptors: Sequence[int] = ()) -> None:
        raw = msgspec.msgpack.encode(message)
        head = len(raw).to_bytes(8, "little")
        if descriptors:
            socket.send_fds(self.end, [head], descriptors)
        else:
            self.end.sendall(head)
        self.end.sendall(raw)

    def receive(self, kind: Any, deadline: float | None = None) -> Any:
        """The next message. Raises EOFError at the end, TimeoutError behind `deadline` (monotonic), ValueError for
        what is no such message."""
        size = int.from_bytes(self._exactly(8, deadline, with_descriptors=True), "little")
        if size > MAX_MESSAGE_BYTES:
            raise ValueError("a message is too long")
        return msgspec.msgpack.decode(self._exactly(size, deadline), type=kind)

    def _exactly(self, count: int, deadline: float | None, *, with_descriptors: bool = False) -> bytearray:
        raw = bytearray(count)
        view, place = memoryview(raw), 0
        while place < count:
            self._wait(deadline)
            if with_descriptors and place == 0:
                taken = self._with_descriptors(view)
            else:
                taken = self.end.recv_into(view[place:])
            if not taken:
                raise EOFError
            place += taken
        return raw

    def _with_descriptors(self, view: memoryview) -> int:
        taken, ancillary, _flags, _address = self.end.recvmsg_into([view], socket.CMSG_SPACE(4 * MAX_TOGETHER))
        for level, kind, data in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                numbers = array.array("i")
                numbers.frombytes(data[: len(data) - len(data) % numbers.itemsize])
                self.descriptors.extend(numbers)
        return taken

    def _wait(self, deadline: float | None) -> None:
        if deadline is not None:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError
            self.end.settimeout(left)

    def close(self) -> None:
        for descriptor in self.descriptors:
            os.close(descriptor)
        self.descriptors.clear()
        self.end.close()
