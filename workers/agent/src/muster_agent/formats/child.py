"""Reading a checkpoint in a child process, for metadata that is large.

The child has limits on memory, CPU time and files, may not write, and has neither capabilities nor privileges. It opens
nothing by itself: files come as open descriptors from this process, which answers for the one checkpoint only, so a
bucket can stand behind a folder here too. What the child answers is a Draft, as if the reader had run here.

    with Children() as children:
        reading = children.start(Request(folder=SentFolder.of(folder), format=name), folder)
        ...                        # go on with other checkpoints meanwhile
        draft = reading.result()   # waits

Which checkpoints need it is not decided beforehand: a reader that meets a large pickle raises `limits.NeedsChild`
before it is read, and then the whole reading is done again in the child, where the limit is lifted. A child that ends
early gives a Draft that is `undecided` and says so: large is neither damaged nor missing.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from types import TracebackType
from typing import Self

from muster_agent.formats.child_tree import AnsweringTree
from muster_agent.formats.child_wire import Done, Failed, Pipe, Request, Said, SentFolder
from muster_agent.formats.draft import Draft
from muster_agent.formats.folder import Folder
from muster_agent.formats.reader import Family

MEMORY_BYTES = 2 * 1024 * 1024 * 1024
CPU_SECONDS = 240
WALL_SECONDS = 900.0
CHILDREN = 1
"""Children at a time: each may use MEMORY_BYTES."""
_KEPT_VARIABLES = ("LD_LIBRARY_PATH", "PYTHONHOME")
"""Without them some installations of Python do not start."""


class ReaderFault(Exception):
    """The reader failed in the child."""


class Reading:
    """One checkpoint that is being read in a child, or waits for its turn."""

    def __init__(self, request: Request, folder: Folder, turn: threading.Semaphore) -> None:
        self._request = request
        self._folder = folder
        self._turn = turn
        self._draft: Draft | None = None
        self._fault: str | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._cancelled = threading.Event()
        self._thread = threading.Thread(target=self._run, name="child-reading", daemon=True)
        self._thread.start()

    def result(self) -> Draft:
        """Waits. Raises ReaderFault where the reader itself failed; every other end is a Draft."""
        self._thread.join()
        if self._fault is not None:
            raise ReaderFault(self._fault)
        assert self._draft is not None
        return self._draft

    def wait(self, seconds: float) -> bool:
        """Whether it has ended, waited for that long at most."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def cancel(self) -> None:
        """End the child; the result is then undecided. Harmless after its end."""
        self._cancelled.set()
        process = self._process
        if process is not None and process.poll() is None:
            process.kill()

    def _run(self) -> None:
        try:
            with self._turn:
                self._draft = self._undecided("the reading was cancelled") if self._cancelled.is_set() else self._read()
        except Exception as error:
            self._fault = type(error).__name__

    def _read(self) -> Draft:
        here, there = socket.socketpair()
        pipe, tree = Pipe(here), AnsweringTree(self._folder)
        try:
            with there:
                self._process = _spawn(there)
        except OSError as error:
            pipe.close()
            return self._undecided(f"no process could be started to read it ({error.strerror})")
        try:
            pipe.send(self._request)
            said = _talk(pipe, tree, time.monotonic() + WALL_SECONDS)
        except (EOFError, BrokenPipeError, ConnectionResetError):
            return self._undecided(_end_of(self._ended()))
        except TimeoutError:
            return self._undecided(f"it could not be read within {WALL_SECONDS:.0f} s")
        finally:
            pipe.close()
            tree.close()
            self._ended()
        if isinstance(said, Done):
            return said.draft
        if said.exception == "MemoryError":
            return self._undecided(f"it could not be read within {MEMORY_BYTES >> 20} MiB of memory")
        raise ReaderFault(said.exception)

    def _ended(self) -> int:
        """Its return code; it is killed where it still runs."""
        if self._process is None:
            return 0
        try:
            return self._process.wait(1)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()

    def _undecided(self, reason: str) -> Draft:
        return Draft(self._request.format, roles=None, undecided=reason)


def _spawn(there: socket.socket) -> subprocess.Popen[bytes]:
    arguments = (there.fileno(), MEMORY_BYTES, CPU_SECONDS)
    return subprocess.Popen(
        [sys.executable, "-P", "-s", "-m", "muster_agent.formats.child_main", *map(str, arguments)],
        env={
            **{name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ},
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            "PYTHONDONTWRITEBYTECODE": "1",
        },
        cwd="/",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        pass_fds=(there.fileno(),),
        start_new_session=True,
    )


def _talk(pipe: Pipe, tree: AnsweringTree, deadline: float) -> Done | Failed:
    while True:
        said: Said = pipe.receive(Said, deadline)
        if isinstance(said, (Done, Failed)):
            return said
        answer, descriptors = tree.answer(said)
        pipe.send(answer, descriptors)
        tree.sent(answer)


def _end_of(return_code: int) -> str:
    if return_code in (-signal.SIGXCPU, -signal.SIGKILL):
        return f"it could not be read within {CPU_SECONDS} s of CPU time and {MEMORY_BYTES >> 20} MiB of memory"
    return "the process that read it ended early"


class Children:
    """Readings in child processes, at most CHILDREN at a time; leaving the block ends those that still run."""

    def __init__(self) -> None:
        self._turn = threading.Semaphore(CHILDREN)
        self._readings: list[Reading] = []

    def start(self, request: Request, folder: Folder) -> Reading:
        """Returns at once. `folder` answers for what the child asks; `request` was made of it."""
        reading = Reading(request, folder, self._turn)
        self._readings.append(reading)
        return reading

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for reading in self._readings:
            reading.cancel()


def request_of(
    folder: Folder, format: str, *, name: str | None = None, family: Family | None = None, with_tensors: bool = False
) -> Request:
    """The request for the checkpoint that `folder` is, or that its file `name` or its `family` is."""
    return Request(folder=SentFolder.of(folder), format=format, name=name, family=family, with_tensors=with_tensors)
