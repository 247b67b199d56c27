"""An emulator, over real HTTP, of what the real S3 server of the tests does not offer: objects in an archive class that
must be restored. Nothing else runs against it, and each test that does is marked `emulated`."""

from __future__ import annotations

import hashlib
import threading
import time
from dataclasses import dataclass, field
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape


@dataclass
class Stored:
    data: bytes
    storage_class: str = "STANDARD"
    restore: str = ""
    """Empty, `asked` or `done`."""
    at: float = field(default_factory=time.time)

    @property
    def etag(self) -> str:
        return hashlib.md5(self.data).hexdigest()

    @property
    def is_away(self) -> bool:
        return self.storage_class in ("GLACIER", "DEEP_ARCHIVE") and self.restore != "done"


class EmulatedS3:
    """One bucket, path-style. `objects` may be changed at any time; `asked` are the requests so far."""

    def __init__(self) -> None:
        self.objects: dict[str, Stored] = {}
        self.asked: list[str] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self.handler())
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def handler(self) -> type[BaseHTTPRequestHandler]:
        return type("OneHandler", (Handler,), {"store": self})

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    store: EmulatedS3

    def log_message(self, format: str, *args: object) -> None:
        return

    def _target(self) -> tuple[str, dict[str, list[str]]]:
        url = urlsplit(self.path)
        self.store.asked.append(f"{self.command} {self.path}")
        return unquote(url.path).partition("/")[2].partition("/")[2], parse_qs(url.query, keep_blank_values=True)

    def _answer(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _refuse(self, status: int, code: str) -> None:
        self._answer(status, f"<Error><Code>{code}</Code><Message>{code}</Message></Error>".encode())

    def do_GET(self) -> None:
        self.serve(*self._target())

    def told(self, stored: Stored) -> dict[str, str]:
        """Further headers of an answer with that object."""
        return {}

    def serve(self, key: str, query: dict[str, list[str]]) -> None:
        if "uploads" in query:
            self._answer(
                200, b"<ListMultipartUploadsResult><IsTruncated>false</IsTruncated></ListMultipartUploadsResult>"
            )
        elif not key:
            self._list(query)
        else:
            self._get(key)

    def do_HEAD(self) -> None:
        self.do_GET()

    def _list(self, query: dict[str, list[str]]) -> None:
        prefix, delimiter = query.get("prefix", [""])[0], query.get("delimiter", [""])[0]
        rows, folders = [], set()
        for key in sorted(key for key in self.store.objects if key.startswith(prefix)):
            rest = key[len(prefix) :]
            if delimiter and delimiter in rest:
                folders.add(prefix + rest.partition(delimiter)[0] + delimiter)
            else:
                rows.append(_row(key, self.store.objects[key]))
        shown = rows[: int(query.get("max-keys", ["1000"])[0])]
        below = "".join(f"<CommonPrefixes><Prefix>{escape(one)}</Prefix></CommonPrefixes>" for one in sorted(folders))
        head = f"<IsTruncated>false</IsTruncated><KeyCount>{len(shown)}</KeyCount><Prefix>{escape(prefix)}</Prefix>"
        self._answer(200, f"<ListBucketResult>{head}{''.join(shown)}{below}</ListBucketResult>".encode())

    def _get(self, key: str) -> None:
        stored = self.store.objects.get(key)
        if stored is None:
            return self._refuse(404, "NoSuchKey")
        if stored.is_away and self.command == "GET":
            return self._refuse(403, "InvalidObjectState")
        if self.headers.get("If-Match", stored.etag).strip('"') != stored.etag:
            return self._refuse(412, "PreconditionFailed")
        told = {
            "ETag": f'"{stored.etag}"',
            "Last_Modified": formatdate(stored.at, usegmt=True),
            "Accept_Ranges": "bytes",
            **self.told(stored),
        }
        wanted = self.headers.get("Range", "").removeprefix("bytes=")
        if not wanted:
            return self._answer(200, stored.data, **told)
        begin, last = (int(part) for part in wanted.split("-"))
        part = stored.data[begin : last + 1]
        told["Content_Range"] = f"bytes {begin}-{begin + len(part) - 1}/{len(stored.data)}"
        return self._answer(206, part, **told)

    def do_POST(self) -> None:
        key, query = self._target()
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        stored = self.store.objects[key]
        if "restore" not in query or not stored.is_away:
            return self._refuse(403, "InvalidObjectState")
        if stored.restore == "asked":
            return self._refuse(409, "RestoreAlreadyInProgress")
        stored.restore = "asked"
        return self._answer(202)


def _row(key: str, stored: Stored) -> str:
    at = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(stored.at))
    status = {
        "asked": "<RestoreStatus><IsRestoreInProgress>true</IsRestoreInProgress></RestoreStatus>",
        "done": "<RestoreStatus><IsRestoreInProgress>false</IsRestoreInProgress>"
        "<RestoreExpiryDate>2999-01-01T00:00:00.000Z</RestoreExpiryDate></RestoreStatus>",
    }.get(stored.restore, "")
    return (
        f"<Contents><Key>{escape(key)}</Key><LastModified>{at}</LastModified><ETag>&quot;{stored.etag}&quot;</ETag>"
        f"<Size>{len(stored.data)}</Size><StorageClass>{stored.storage_class}</StorageClass>{status}</Contents>"
    )
