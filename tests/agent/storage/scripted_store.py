"""An object store on loopback whose every answer a test writes: the faults that no real store gives on demand."""

from __future__ import annotations

import socket
import ssl
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

ETAG = '"first"'


@dataclass
class Asked:
    """One request. `number` counts them from 0."""

    number: int
    target: str
    headers: dict[str, str]

    @property
    def range(self) -> tuple[int, int] | None:
        """(first, last) byte; None where all was asked for."""
        text = self.headers.get("range", "").removeprefix("bytes=")
        return (int(text.split("-")[0]), int(text.split("-")[1])) if text else None


@dataclass
class Answer:
    """`body` is sent as it is, then `then` happens to the connection."""

    status: int
    headers: dict[str, str]
    body: bytes = b""
    then: Callable[[socket.socket], None] = lambda _connection: None
    before: Callable[[], object] = lambda: None


Script = Callable[[Asked], Answer]


@dataclass
class ScriptedStore:
    """Answers by `script` while inside a `with` block; without one it serves `data` well."""

    data: bytes = b""
    script: Script | None = None
    tls: ssl.SSLContext | None = None
    asked: list[Asked] = field(default_factory=list)
    connections: int = 0

    def __enter__(self) -> ScriptedStore:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.url = f"{'https' if self.tls else 'http'}://127.0.0.1:{self.port}"
        self._open: list[socket.socket] = []
        self._lock = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)  # wakes who waits in accept, which would keep it open
        self._listener.close()
        for one in self._open:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def good(self, asked: Asked, data: bytes | None = None, etag: str = ETAG) -> Answer:
        """What a store answers."""
        data = self.data if data is None else data
        if asked.headers.get("if-match", etag) != etag:
            return refusal(412, "PreconditionFailed")
        if asked.range is None:
            return Answer(200, {"ETag": etag, "Content-Length": str(len(data))}, data)
        first, last = asked.range
        body = data[first : last + 1]
        if not body:
            return refusal(416, "InvalidRange")
        place = f"bytes {first}-{first + len(body) - 1}/{len(data)}"
        return Answer(206, {"ETag": etag, "Content-Range": place, "Content-Length": str(len(body))}, body)

    def _accept(self) -> None:
        while True:
            try:
                connection, _address = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with suppress(OSError):
            if self.tls is not None:
                connection = self.tls.wrap_socket(connection, server_side=True)
            with self._lock:
                self._open.append(connection)
                self.connections += 1
            reader = connection.makefile("rb")
            while line := reader.readline():
                headers = {}
                while (header := reader.readline().strip()) != b"":
                    name, _, value = header.decode().partition(": ")
                    headers[name.lower()] = value
                with self._lock:
                    asked = Asked(len(self.asked), line.split()[1].decode(), headers)
                    self.asked.append(asked)
                answer = self.script(asked) if self.script else self.good(asked)
                answer.before()
                head = [f"HTTP/1.1 {answer.status} Scripted", *(f"{name}: {v}" for name, v in answer.headers.items())]
                connection.sendall("\r\n".join([*head, "", ""]).encode() + answer.body)
                answer.then(connection)


def refusal(status: int, code: str, message: str = "scripted", **headers: str) -> Answer:
    """An error as S3 writes it."""
    body = f"<Error><Code>{code}</Code><Message>{message}</Message></Error>".encode()
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Answer(status, {"Content-Length": str(len(body)), **named}, body)


def end(connection: socket.socket) -> None:
    """An orderly end."""
    connection.shutdown(socket.SHUT_RDWR)


def reset(connection: socket.socket) -> None:
    """As a node that went away: with nothing to linger for, the kernel sends a reset."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()
    raise OSError("closed")
