"""Real receivers on loopback, for tests of channels: an HTTP and a mail server, which keep what they were sent."""

from __future__ import annotations

import socketserver
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Got:
    """One request."""

    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Says:
    """How the receiver answers; `after_seconds` first waits, `drip_seconds` between the bytes of the status line."""

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b"ok"
    after_seconds: float = 0.0
    drip_seconds: float = 0.0


class Receiver:
    """An HTTP server. `says` is taken in order, the last one for ever."""

    def __init__(self, *says: Says) -> None:
        self.got: list[Got] = []
        self.says = list(says) or [Says()]
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.got.append(Got(self.path, {k.lower(): v for k, v in self.headers.items()}, body))
                said = receiver.says.pop(0) if len(receiver.says) > 1 else receiver.says[0]
                time.sleep(said.after_seconds)
                if said.drip_seconds:
                    return self._drip(said.drip_seconds)
                self.send_response(said.status)
                for name, value in {"Content-Length": str(len(said.body)), **said.headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(said.body)
                return None

            def _drip(self, seconds: float) -> None:
                try:
                    for byte in b"HTTP/1.1 200 OK\r\nX-A: " + b"a" * 1000:
                        self.wfile.write(bytes([byte]))
                        self.wfile.flush()
                        time.sleep(seconds)
                except OSError:
                    return

            def log_message(self, *_arguments: Any) -> None:
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class MailServer:
    """SMTP, as far as a client that sends one mail needs it. `refusals` are said to RCPT, in order, before it takes
    any."""

    def __init__(self) -> None:
        self.mails: list[tuple[list[str], str]] = []
        self.refusals: list[str] = []
        server = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                self.recipients: list[str] = []
                self._say("220 mail.test")
                while line := self.rfile.readline().decode().strip():
                    if not self._answer(line):
                        return

            def _answer(self, line: str) -> bool:
                verb = line[:4].upper()
                if verb == "RCPT" and server.refusals:
                    self._say(server.refusals.pop(0))
                elif verb == "RCPT":
                    self.recipients.append(line.partition("<")[2].partition(">")[0])
                    self._say("250 ok")
                elif verb == "DATA":
                    self._take()
                else:
                    self._say({"EHLO": "250 mail.test", "QUIT": "221 bye"}.get(verb, "250 ok"))
                return verb != "QUIT"

            def _take(self) -> None:
                self._say("354 go on")
                lines = []
                while (line := self.rfile.readline().decode()) != ".\r\n":
                    lines.append(line)
                server.mails.append((self.recipients, "".join(lines)))
                self._say("250 taken")

            def _say(self, text: str) -> None:
                self.wfile.write(text.encode() + b"\r\n")

        self._server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port = int(self._server.server_address[1])
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
