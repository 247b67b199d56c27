"""The child process that reads one checkpoint whose metadata is large: `python -m muster_agent.formats.child_main N`.

It gives up what it does not need before it looks at a byte that is not ours, gets every file from its parent through
the socket N, and answers with a Draft. See child.py.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import socket
import sys
from functools import partial

from muster_agent.formats import limits, registry
from muster_agent.formats.child_tree import AskingTree
from muster_agent.formats.child_wire import Done, Failed, Pipe, Request
from muster_agent.formats.draft import Draft

_PR_SET_NO_NEW_PRIVS = 38
_CAPABILITY_VERSION_3 = 0x20080522
_OPEN_FILES = 128


def confine(memory_bytes: int, cpu_seconds: int) -> None:
    """Give up writing, capabilities, other processes, and all but so much memory and CPU time, for good."""
    os.umask(0o077)
    for what, most in (
        (resource.RLIMIT_AS, memory_bytes),
        (resource.RLIMIT_CPU, cpu_seconds),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NOFILE, _OPEN_FILES),
        (resource.RLIMIT_NPROC, 0),
    ):
        _, hard = resource.getrlimit(what)
        allowed = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(what, (allowed, allowed))
    with contextlib.suppress(OSError, AttributeError):
        _give_up_privileges(ctypes.CDLL(None, use_errno=True))


def _give_up_privileges(libc: ctypes.CDLL) -> None:
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    libc.capset(header, (ctypes.c_uint32 * 6)())


def read(request: Request, tree: AskingTree) -> Draft:
    """Run the reader that the request names. Raises whatever the reader raises."""
    folder = request.folder.folder(tree)
    if request.name is not None:
        return registry.read_file(folder, request.name, request.with_tensors)
    if request.family is not None:
        one = next(one for one in registry.FAMILY_FORMATS if one.name == request.format)
        return one.read(folder, request.family, request.with_tensors)
    return registry.format_of_checkpoint(folder).read(folder, request.with_tensors)


def main(descriptor: int, memory_bytes: int, cpu_seconds: int) -> None:
    confine(memory_bytes, cpu_seconds)
    limits.lift()
    pipe = Pipe(socket.socket(fileno=descriptor))
    # Made while there is memory for it.
    out_of_memory = partial(pipe.send, Failed(MemoryError.__name__))
    try:
        draft = read(pipe.receive(Request), AskingTree(pipe))
        say = partial(pipe.send, Done(draft))
    except EOFError:
        return
    except MemoryError:
        say = out_of_memory
    except Exception as error:
        say = partial(pipe.send, Failed(type(error).__name__))
    with contextlib.suppress(OSError):
        say()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:4]))
