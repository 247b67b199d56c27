"""A tree that lies in another process: the child sees the checkpoint's folders only through its parent, which answers
for nothing outside of the checkpoint."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator
from itertools import islice

from muster_agent.formats import tree
from muster_agent.formats.child_wire import (
    MAX_TOGETHER,
    Answer,
    Bytes,
    Close,
    Hole,
    Holes,
    Look,
    Looked,
    Open,
    OpenAll,
    Opened,
    OpenedAll,
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
        self._ahead: dict[str, tree.Opened | Trouble] = {}

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
        if path not in self._ahead:
            return self._taken(self.ask(Open(path)))
        opened = self._ahead.pop(path)
        if isinstance(opened, Trouble):
            raise OSError(opened.number, opened.text)
        return opened

    def ahead(self, paths: Iterable[str]) -> Iterator[str]:
        """One question for many files: each costs two changes between processes, more than all else that is done."""
        left = iter(paths)
        while together := list(islice(left, MAX_TOGETHER)):
            answer = self.ask(OpenAll(together))
            assert isinstance(answer, OpenedAll)
            taken = [one if isinstance(one, Trouble) else self._taken(one) for one in answer.files]
            self._ahead = dict(zip(together, taken, strict=True))
            yield from together
            for opened in self._ahead.values():
                if not isinstance(opened, Trouble):
                    opened.close()
            self._ahead = {}

    def _taken(self, answer: Answer) -> tree.Opened:
        assert isinstance(answer, Opened)
        if answer.has_descriptor:
            return PosixFile(self.pipe.descriptors.pop(0))
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

    def answer(self, said: Said) -> tuple[Answer, list[int]]:
        """The answer, and descriptors to send along. Raises ValueError for what no reader asks."""
        try:
            answer = self._answer(said)
        except OSError as error:
            answer = _trouble(error)
        return answer, [_descriptor(self.files[one.file]) for one in _sent_along(answer)]

    def _answer(self, said: Said) -> Answer:
        match said:
            case Open(path):
                return self._open(path)
            case OpenAll(paths) if len(paths) <= MAX_TOGETHER:
                inside = [self._inside(path) for path in paths]
                return OpenedAll([self._open_or_trouble(name) for name in self.folder.ahead(inside)])
            case Pread(number, length, offset):
                return Bytes(self.files[number].pread(min(length, BLOCK_BYTES), offset))
            case Hole(number):
                return Holes(self.files[number].hole())
            case Close(number):
                self.files.pop(number).close()
                return Holes(None)
            case Look(path):
                return Looked(SentFolder.of(self._folder(path)))
            case Take(path, name):
                return self._take(self._folder(path), name)
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

    def _open(self, path: str) -> Opened:
        return self._open_inside(self._inside(path))

    def _open_inside(self, name: str) -> Opened:
        if len(self.files) >= MAX_OPEN_FILES:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        opened = self.folder.open(name)
        self.opened += 1
        self.files[self.opened] = opened
        return Opened(self.opened, opened.size_bytes, has_descriptor=isinstance(opened, PosixFile))

    def _open_or_trouble(self, name: str) -> Opened | Trouble:
        try:
            return self._open_inside(name)
        except OSError as error:
            return _trouble(error)

    def sent(self, answer: Answer) -> None:
        """A file that went to the child as a descriptor is the child's to close."""
        for one in _sent_along(answer):
            self.files.pop(one.file).close()

    def _take(self, folder: Folder, name: str) -> Took:
        self._inside(os.path.join(folder.path, name))
        known = len(folder.findings)
        reach(folder, name)
        return Took(folder.files.get(name), name in folder.blocked, folder.findings[known:])

    def close(self) -> None:
        for opened in self.files.values():
            opened.close()
        self.files.clear()


def _sent_along(answer: Answer) -> list[Opened]:
    """The files of the answer whose descriptors go with it."""
    files = answer.files if isinstance(answer, OpenedAll) else [answer]
    return [one for one in files if isinstance(one, Opened) and one.has_descriptor]


def _descriptor(opened: tree.Opened) -> int:
    assert isinstance(opened, PosixFile)
    return opened.fileno()


def _trouble(error: OSError) -> Trouble:
    return Trouble(error.errno or errno.EIO, error.strerror or type(error).__name__)
