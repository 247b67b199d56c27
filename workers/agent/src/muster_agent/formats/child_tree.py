"""A tree that lies in another process: the child sees the checkpoint's folders only through its parent, which answers
for nothing outside of the checkpoint."""

from __future__ import annotations

import errno
import os

from muster_agent.formats import tree
from muster_agent.formats.child_wire import (
    Answer,
    Bytes,
    Close,
    Hole,
    Holes,
    Look,
    Looked,
    Open,
    Opened,
    Pipe,
    Pread,
    Said,
    SentFolder,
    Take,
    Took,
    Trouble,
)
from muster_agent.formats.folder import FileSeen, Folder, reach
from muster_agent.formats.posix_file import PosixFile

BLOCK_BYTES = 8 * 1024 * 1024
MAX_OPEN_FILES = 64


# -- in the child ------------------------------------------------------------------------------------------------------
class AskingTree:
    """See `tree.Tree`."""

    def __init__(self, pipe: Pipe) -> None:
        self.pipe = pipe

    def ask(self, said: Said) -> Answer:
        """Raises the OSError that the parent met."""
        self.pipe.send(said)
        answer: Answer = self.pipe.receive(Answer)
        if isinstance(answer, Trouble):
            raise OSError(answer.number, answer.text)
        return answer

    def look(self, path: str, root: str) -> Folder:
        answer = self.ask(Look(path))
        assert isinstance(answer, Looked)
        return answer.folder.folder(self)

    def open(self, path: str) -> tree.Opened:
        answer = self.ask(Open(path))
        assert isinstance(answer, Opened)
        if answer.has_descriptor:
            return PosixFile(self.pipe.descriptors.pop())
        return _AskedFile(self, answer.file, answer.size_bytes)

    def take(self, folder: Folder, name: str) -> None:
        answer = self.ask(Take(folder.path, name))
        assert isinstance(answer, Took)
        if answer.seen is not None:
            folder.files[name] = answer.seen
        if answer.blocked:
            folder.blocked.add(name)
        folder.findings.extend(answer.findings)

    def stamp(self, _path: str) -> FileSeen | None:
        """The parent keeps what the reading depends on."""
        return None


class _AskedFile(tree.Opened):
    """See `tree.Opened`. A file of a tree that has no descriptors."""

    def __init__(self, asking: AskingTree, number: int, size_bytes: int) -> None:
        self.asking = asking
        self.number = number
        self.size_bytes = size_bytes

    def pread(self, length_bytes: int, offset_bytes: int) -> bytes:
        parts: list[bytes] = []
        while length_bytes > 0:
            answer = self.asking.ask(Pread(self.number, min(length_bytes, BLOCK_BYTES), offset_bytes))
            assert isinstance(answer, Bytes)
            if not answer.data:
                break
            parts.append(answer.data)
            length_bytes, offset_bytes = length_bytes - len(answer.data), offset_bytes + len(answer.data)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def hole(self) -> tuple[int, int] | None:
        answer = self.asking.ask(Hole(self.number))
        assert isinstance(answer, Holes)
        return answer.hole

    def close(self) -> None:
        self.asking.ask(Close(self.number))


# -- in the parent -----------------------------------------------------------------------------------------------------
class AnsweringTree:
    """Answers for the checkpoint in `folder` and what lies below it."""

    def __init__(self, folder: Folder) -> None:
        self.folder = folder
        self.files: dict[int, tree.Opened] = {}
        self.opened = 0

    def answer(self, said: Said) -> tuple[Answer, int | None]:
        """The answer, and a descriptor to send along. Raises ValueError for what no reader asks."""
        try:
            return self._answer(said)
        except OSError as error:
            return Trouble(error.errno or errno.EIO, error.strerror or type(error).__name__), None

    def _answer(self, said: Said) -> tuple[Answer, int | None]:
        match said:
            case Open(path):
                return self._open(path)
            case Pread(number, length, offset):
                return Bytes(self.files[number].pread(min(length, BLOCK_BYTES), offset)), None
            case Hole(number):
                return Holes(self.files[number].hole()), None
            case Close(number):
                self.files.pop(number).close()
                return Holes(None), None
            case Look(path):
                return Looked(SentFolder.of(self._folder(path))), None
            case Take(path, name):
                return self._take(self._folder(path), name), None
            case _:
                raise ValueError("not a question")

    def _inside(self, path: str) -> str:
        """The path relative to the checkpoint."""
        prefix = self.folder.path.rstrip("/") + "/"
        if not path.startswith(prefix) or ".." in path.split("/") or "\0" in path:
            raise ValueError("it asks for something outside of the checkpoint")
        return path[len(prefix) :]

    def _folder(self, path: str) -> Folder:
        """Looked at once, and kept with the folder that it lies in, as when the reader runs here."""
        folder = self.folder
        for name in self._inside(path).split("/") if path != folder.path else ():
            folder = folder.sub(name)
        return folder

    def _open(self, path: str) -> tuple[Answer, int | None]:
        if len(self.files) >= MAX_OPEN_FILES:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        opened = self.folder.open(self._inside(path))
        self.opened += 1
        self.files[self.opened] = opened
        if not isinstance(opened, PosixFile):
            return Opened(self.opened, opened.size_bytes, has_descriptor=False), None
        return Opened(self.opened, opened.size_bytes, has_descriptor=True), opened.fileno()

    def sent(self, answer: Answer) -> None:
        """A file that went to the child as a descriptor is the child's to close."""
        if isinstance(answer, Opened) and answer.has_descriptor:
            self.files.pop(answer.file).close()

    def _take(self, folder: Folder, name: str) -> Took:
        self._inside(os.path.join(folder.path, name))
        known = len(folder.findings)
        reach(folder, name)
        return Took(folder.files.get(name), name in folder.blocked, folder.findings[known:])

    def close(self) -> None:
        for opened in self.files.values():
            opened.close()
        self.files.clear()
