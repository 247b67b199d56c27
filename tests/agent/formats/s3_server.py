"""A small object store on loopback that speaks enough of S3: listings in pages, ranges, unfinished uploads; and the
faults that a test scripts."""

from __future__ import annotations

import contextlib
import hashlib
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, quote, unquote, urlsplit
from xml.sax.saxutils import escape

BUCKET = "bucket"


@dataclass
class Stored:
    data: bytes
    unix_seconds: float
    storage_class: str = "STANDARD"
    restored: bool = False
    parts: int = 0
    """How many an upload had, by which the ETag is no MD5 of the object."""
    sums: dict[str, str] = field(default_factory=dict)
    """Headers that an answer to HEAD has where sums were asked for."""
    part_sums: list[tuple[int, dict[str, str]]] = field(default_factory=list)
    """(size, such headers) of each part."""
    sent: bytes | None = None
    """What was uploaded, by which the ETag goes, where the bytes have changed since."""
    more: dict[str, str] = field(default_factory=dict)
    """Further headers of an answer to HEAD."""

    @property
    def etag(self) -> str:
        if self.part_sums:
            at, digests = 0, b""
            for size, _ in self.part_sums:
                digests += hashlib.md5((self.sent or self.data)[at : at + size], usedforsecurity=False).digest()
                at += size
            return f'"{hashlib.md5(digests, usedforsecurity=False).hexdigest()}-{len(self.part_sums)}"'
        if self.parts:
            return f'"{"0" * 32}-{self.parts}"'
        return f'"{hashlib.md5(self.sent or self.data, usedforsecurity=False).hexdigest()}"'


@dataclass
class Store:
    """`fail` is asked before each answer: a (status, code) to answer with, or None. `cut` gives how many bytes of an
    object's answer are sent."""

    objects: dict[str, Stored] = field(default_factory=dict)
    uploads: list[tuple[str, float]] = field(default_factory=list)
    page_keys: int = 1000
    now_unix_seconds: float | None = None
    requests: list[str] = field(default_factory=list)
    fail: Callable[[str], tuple[int, str] | None] = lambda _request: None
    cut: Callable[[str, int], int] = lambda _key, length: length
    before_listing: Callable[[], None] = lambda: None
    honours_ranges: bool = True

    def put(self, key: str, data: bytes, unix_seconds: float, storage_class: str = "STANDARD") -> None:
        self.objects[key] = Stored(data, unix_seconds, storage_class)

    def put_folder(self, place: Path, prefix: str, storage_class: str = "STANDARD") -> None:
        """Every file under `place`, with its time; links are not things that a bucket has."""
        for path in sorted(place.rglob("*")):
            if path.is_file():
                key = f"{prefix}/{path.relative_to(place)}"
                self.put(key, path.read_bytes(), path.stat().st_mtime, storage_class)


class Handler(BaseHTTPRequestHandler):
    store: Store
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:  # noqa: N802 - the name that the server looks for
        url = urlsplit(self.path)
        bucket, _, key = unquote(url.path).lstrip("/").partition("/")
        asked = {name: values[0] for name, values in parse_qs(url.query, keep_blank_values=True).items()}
        what = "uploads" if "uploads" in asked else "list" if "list-type" in asked else f"get {key}"
        self.store.requests.append(what)
        fault = self.store.fail(what) or (None if bucket == BUCKET else (404, "NoSuchBucket"))
        if fault is not None:
            self.refuse(*fault)
        elif what == "uploads":
            self.list_uploads(asked)
        elif what == "list":
            self.list_objects(asked)
        else:
            self.get(key)

    def do_HEAD(self) -> None:  # noqa: N802 - the name that the server looks for
        url = urlsplit(self.path)
        _, _, key = unquote(url.path).lstrip("/").partition("/")
        number = parse_qs(url.query).get("partNumber")
        one = self.store.objects[key]
        size, sums = one.part_sums[int(number[0]) - 1] if number else (len(one.data), one.sums)
        self.store.requests.append(f"head {key}")
        headers = {"ETag": one.etag, "Content-Length": str(size), "x-amz-mp-parts-count": str(len(one.part_sums))}
        headers.update(one.more)
        self.answer(200, b"", {**headers, **(sums if self.headers.get("x-amz-checksum-mode") == "ENABLED" else {})})

    def date_time_string(self, timestamp: float | None = None) -> str:
        return formatdate(self.store.now_unix_seconds or timestamp, usegmt=True)

    def log_message(self, *_: object) -> None:
        return

    def answer(self, status: int, body: bytes, headers: dict[str, str], sent_bytes: int | None = None) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.wfile.write(body[:sent_bytes])
        if sent_bytes is not None and sent_bytes < len(body):
            self.close_connection = True

    def refuse(self, status: int, code: str) -> None:
        body = f"<Error><Code>{code}</Code><Message>scripted</Message></Error>".encode()
        self.answer(status, body, {"Content-Type": "application/xml"})

    def list_objects(self, asked: dict[str, str]) -> None:
        self.store.before_listing()
        prefix, delimiter = asked.get("prefix", ""), asked.get("delimiter")
        names = sorted((key for key in self.store.objects if key.startswith(prefix)), key=lambda key: key.encode())
        entries: list[str] = []
        for key in names:
            rest = key[len(prefix) :]
            if delimiter and delimiter in rest:
                key = prefix + rest.split(delimiter, 1)[0] + delimiter
            if key not in entries:
                entries.append(key)
        begin = int(asked.get("continuation-token", "0"))
        page = entries[begin : begin + self.store.page_keys]
        body = "".join(self.entry(key, key.endswith("/") and delimiter is not None and key != prefix) for key in page)
        more = begin + len(page) < len(entries)
        token = f"<NextContinuationToken>{begin + len(page)}</NextContinuationToken>" if more else ""
        self.xml("ListBucketResult", f"<IsTruncated>{str(more).lower()}</IsTruncated>{token}{body}")

    def entry(self, key: str, is_prefix: bool) -> str:
        if is_prefix:
            return f"<CommonPrefixes><Prefix>{quote(key)}</Prefix></CommonPrefixes>"
        one = self.store.objects[key]
        restored = "<RestoreStatus><IsRestoreInProgress>false</IsRestoreInProgress>" if one.restored else ""
        restored += (
            "<RestoreExpiryDate>2099-01-01T00:00:00.000Z</RestoreExpiryDate></RestoreStatus>" if restored else ""
        )
        return (
            f"<Contents><Key>{quote(key)}</Key><LastModified>{iso(one.unix_seconds)}</LastModified>"
            f"<ETag>{escape(one.etag)}</ETag><Size>{len(one.data)}</Size>"
            f"<StorageClass>{one.storage_class}</StorageClass>{restored}</Contents>"
        )

    def list_uploads(self, asked: dict[str, str]) -> None:
        prefix = asked.get("prefix", "")
        rows = [row for row in sorted(self.store.uploads) if row[0].startswith(prefix)]
        begin = int(asked.get("upload-id-marker") or "0")
        page = rows[begin : begin + self.store.page_keys]
        body = "".join(
            f"<Upload><Key>{quote(key)}</Key><UploadId>{begin + index}</UploadId>"
            f"<Initiated>{iso(at)}</Initiated></Upload>"
            for index, (key, at) in enumerate(page)
        )
        more = begin + len(page) < len(rows)
        marks = f"<NextKeyMarker>x</NextKeyMarker><NextUploadIdMarker>{begin + len(page)}</NextUploadIdMarker>"
        self.xml(
            "ListMultipartUploadsResult", f"<IsTruncated>{str(more).lower()}</IsTruncated>{marks if more else ''}{body}"
        )

    def xml(self, name: str, inside: str) -> None:
        body = f'<?xml version="1.0" encoding="UTF-8"?><{name}><EncodingType>url</EncodingType>{inside}</{name}>'
        self.answer(200, body.encode(), {"Content-Type": "application/xml"})

    def get(self, key: str) -> None:
        one = self.store.objects.get(key)
        if one is None:
            self.refuse(404, "NoSuchKey")
            return
        if self.headers.get("If-Match") not in (None, one.etag):
            self.refuse(412, "PreconditionFailed")
            return
        if one.storage_class in ("GLACIER", "DEEP_ARCHIVE") and not one.restored:
            self.refuse(403, "InvalidObjectState")
            return
        begin, end = 0, len(one.data)
        if self.headers.get("Range") and self.store.honours_ranges:
            first, _, last = self.headers["Range"].removeprefix("bytes=").partition("-")
            begin, end = int(first), min(int(last) + 1, end)
        body = one.data[begin:end]
        headers = {"ETag": one.etag}
        if self.store.honours_ranges:
            headers["Content-Range"] = f"bytes {begin}-{end - 1}/{len(one.data)}"
        status = 206 if self.store.honours_ranges else 200
        self.answer(status, body, headers, self.store.cut(key, len(body)))


def iso(unix_seconds: float) -> str:
    return datetime.fromtimestamp(unix_seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")


class S3Server:
    """Serves `store` on a free port of loopback, inside a `with` block."""

    def __init__(self) -> None:
        self.store = Store()
        handler = type("OneHandler", (Handler,), {"store": self.store})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    def __enter__(self) -> S3Server:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
