"""A real file system that misbehaves when told to: a folder mounted again through FUSE.

The protocol of /dev/fuse, spoken by a process of its own, so that a read which hangs hangs nobody else. Faults
are a JSON file that is read again at every request:

    {"shard.bin": {"read_errno": 5, "from_byte": 4194304}, "*": {"refuse_direct": true}}

Keys: `read_errno` (for reads that reach `from_byte`), `open_errno`, `hang` (reads get no answer), `short` (at most so
many bytes for each request), `refuse_direct` (O_DIRECT gives EINVAL at open, as old FUSE file systems do), and
`truncate_to`, `grow_by` or `unlink` at the read that reaches `from_byte`, once.
"""

from __future__ import annotations

import array
import errno
import json
import os
import shutil
import signal
import socket
import stat
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

LOOKUP, FORGET, GETATTR, OPEN, READ, STATFS, RELEASE, FLUSH = 1, 2, 3, 14, 15, 17, 18, 25
INIT, OPENDIR, READDIR, RELEASEDIR, ACCESS, INTERRUPT, BATCH_FORGET = 26, 27, 28, 29, 34, 36, 42
_IN = struct.Struct("<IIQQIIIHH")
_OUT = struct.Struct("<IiQ")
_ATTR = struct.Struct("<6Q10I")
_MAX_PAGES_FLAG, _PAGES = 1 << 22, 256
_ROOT = 1


def why_unavailable() -> str | None:
    """What keeps us from mounting through FUSE; None where nothing does. A machine without the device cannot be helped
    by installing anything."""
    if shutil.which("fusermount3") is None:
        return "the program fusermount3 is missing: install Debian's package fuse3"
    return None if os.access("/dev/fuse", os.R_OK | os.W_OK) else "this machine has no /dev/fuse for us"


class FaultyMount:
    """Use it in `with`: `path` shows what lies in `folder`."""

    def __init__(self, folder: Path, path: Path) -> None:
        self.folder, self.path = folder, path
        self._control = path.with_name(path.name + ".faults.json")
        self._server: subprocess.Popen[bytes] | None = None

    def fault(self, **faults: dict[str, Any]) -> None:
        """Replace all faults; `any_file` stands for every file, and an underscore in a name for itself."""
        self.faults({"*" if name == "any_file" else name: fault for name, fault in faults.items()})

    def faults(self, faults: dict[str, dict[str, Any]]) -> None:
        """Replace all faults, by file name."""
        fresh = self._control.with_suffix(".new")
        fresh.write_text(json.dumps(faults))
        fresh.rename(self._control)

    def __enter__(self) -> FaultyMount:
        self.path.mkdir(parents=True, exist_ok=True)
        self.faults({})
        command = [sys.executable, __file__, str(self.folder), str(self.path), str(self._control)]
        self._server = subprocess.Popen(command, stdin=subprocess.DEVNULL)
        ends_at = time.monotonic() + 30
        while not os.path.ismount(self.path):
            if self._server.poll() is not None or time.monotonic() > ends_at:
                raise RuntimeError(f"the FUSE server did not mount {self.path}")
            time.sleep(0.02)
        return self

    def __exit__(self, *_error: object) -> None:
        assert self._server is not None
        # ending the server ends every read that hangs, with an error
        self._server.send_signal(signal.SIGKILL)
        self._server.wait(30)
        subprocess.run(["fusermount3", "-u", "-z", str(self.path)], check=False, stderr=subprocess.DEVNULL)


def _mount(place: str) -> int:
    """The descriptor of /dev/fuse for a fresh mount at `place`."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    environment = {**os.environ, "_FUSE_COMMFD": str(theirs.fileno())}
    options = f"ro,nosuid,nodev,fsname=faulty,max_read={_PAGES * 4096}"
    subprocess.run(["fusermount3", "-o", options, "--", place], env=environment, pass_fds=[theirs.fileno()], check=True)
    received = array.array("i")
    _, ancillary, _, _ = ours.recvmsg(1, socket.CMSG_SPACE(received.itemsize))
    received.frombytes(ancillary[0][2][: received.itemsize])
    return received[0]


class _Server:
    def __init__(self, fd: int, folder: str, control: str) -> None:
        self._fd, self._folder, self._control = fd, folder, control
        self._names: dict[int, str] = {_ROOT: ""}
        self._done: set[tuple[str, str]] = set()

    def serve(self) -> None:
        while True:
            try:
                request = os.read(self._fd, (1 << 20) + 4096)
            except OSError as error:
                if error.errno in (errno.EINTR, errno.EAGAIN, errno.ENOENT):
                    continue
                return
            _, opcode, unique, node, *_ = _IN.unpack_from(request)
            if opcode in (FORGET, BATCH_FORGET, INTERRUPT):
                continue
            try:
                answer = self._answer(opcode, node, request[_IN.size :])
            except OSError as error:
                self._send(unique, -(error.errno or errno.EIO), b"")
                continue
            if answer is not None:
                self._send(unique, 0, answer)

    def _send(self, unique: int, code: int, body: bytes) -> None:
        try:
            os.write(self._fd, _OUT.pack(_OUT.size + len(body), code, unique) + body)
        except OSError as error:
            if error.errno != errno.ENOENT:  # whoever asked is gone
                raise

    def _answer(self, opcode: int, node: int, body: bytes) -> bytes | None:
        """The reply's body; None for no reply at all. Raises the OSError to reply with."""
        if opcode == INIT:
            return struct.pack("<4I2HII2HI7I", 7, 31, 1 << 20, _MAX_PAGES_FLAG, 16, 12, 4096, 1, _PAGES, 0, 0, *[0] * 7)
        if opcode == LOOKUP:
            return self._lookup(node, body.rstrip(b"\0").decode())
        if opcode == GETATTR:
            return struct.pack("<QII", 0, 0, 0) + self._attributes(node)
        if opcode == OPEN:
            return self._open(node, struct.unpack_from("<I", body)[0])
        if opcode == READ:
            return self._read(node, *struct.unpack_from("<QI", body, 8))
        if opcode == OPENDIR:
            return struct.pack("<QII", 0, 0, 0)
        if opcode == READDIR:
            return self._list(node, *struct.unpack_from("<QI", body, 8))
        if opcode == STATFS:
            return struct.pack("<5Q10I", 1 << 20, 1 << 19, 1 << 19, 1 << 20, 1 << 19, 4096, 255, 4096, *[0] * 7)
        if opcode in (RELEASE, RELEASEDIR, FLUSH, ACCESS):
            return b""
        raise OSError(errno.ENOSYS, "not offered")

    def _path(self, node: int) -> str:
        return os.path.join(self._folder, self._names[node])

    def _faults(self, node: int) -> dict[str, Any]:
        with open(self._control, encoding="utf-8") as file:
            table = json.load(file)
        return {**table.get("*", {}), **table.get(os.path.basename(self._names[node]), {})}

    def _lookup(self, node: int, name: str) -> bytes:
        relative = os.path.join(self._names[node], name)
        found = os.stat(os.path.join(self._folder, relative))
        self._names[found.st_ino + 1] = relative
        return struct.pack("<4Q2I", found.st_ino + 1, 0, 0, 0, 0, 0) + self._attributes(found.st_ino + 1)

    def _attributes(self, node: int) -> bytes:
        at = os.stat(self._path(node))
        return _ATTR.pack(
            node, at.st_size, -(-at.st_size // 512), *(int(one) for one in (at.st_atime, at.st_mtime, at.st_ctime)),
            *(one % 1_000_000_000 for one in (at.st_atime_ns, at.st_mtime_ns, at.st_ctime_ns)),
            at.st_mode, at.st_nlink, at.st_uid, at.st_gid, 0, 4096, 0,
        )  # fmt: skip

    def _open(self, node: int, flags: int) -> bytes:
        faults = self._faults(node)
        if faults.get("open_errno"):
            raise OSError(faults["open_errno"], "told to")
        if faults.get("refuse_direct") and flags & os.O_DIRECT:
            raise OSError(errno.EINVAL, "no direct reads here")
        os.stat(self._path(node))
        return struct.pack("<QII", 0, 0, 0)

    def _read(self, node: int, offset: int, size: int) -> bytes | None:
        faults = self._faults(node)
        if offset + size > faults.get("from_byte", 0):
            if faults.get("hang"):
                return None
            if faults.get("read_errno"):
                raise OSError(faults["read_errno"], "told to")
            self._change(node, faults)
        with open(self._path(node), "rb", buffering=0) as file:
            file.seek(offset)
            return file.read(min(size, faults.get("short", size)))

    def _change(self, node: int, faults: dict[str, Any]) -> None:
        path = self._path(node)
        for change in ("truncate_to", "grow_by", "unlink"):
            if change not in faults or (path, change) in self._done:
                continue
            self._done.add((path, change))
            if change == "unlink":
                os.unlink(path)
            else:
                size = os.path.getsize(path)
                os.truncate(path, faults[change] if change == "truncate_to" else size + faults[change])

    def _list(self, node: int, offset: int, size: int) -> bytes:
        out = b""
        names = [".", "..", *sorted(os.listdir(self._path(node)))]
        for number, name in enumerate(names[offset:], offset + 1):
            mode = os.stat(os.path.join(self._path(node), name)).st_mode
            encoded = name.encode()
            entry = struct.pack("<QQII", number, number, len(encoded), stat.S_IFMT(mode) >> 12) + encoded
            entry += b"\0" * (-len(entry) % 8)
            if len(out) + len(entry) > size:
                break
            out += entry
        return out


if __name__ == "__main__":
    _Server(_mount(sys.argv[2]), sys.argv[1], sys.argv[3]).serve()
