"""One reader's connection to one address of an object store: ranged GETs straight into the caller's memory."""

from __future__ import annotations

import contextlib
import errno
import http.client
import os
import socket
import ssl
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from typing import NamedTuple
from urllib.parse import SplitResult

from muster_agent.storage.addresses import Networks, Resolved, connect_to, resolve
from muster_agent.storage.s3_answers import Found, Headers, ObjectPin, Passing, found_in, refused, whole_in

CONNECT_SECONDS = 10.0
SILENCE_SECONDS = 30.0
"""A store that sends nothing for so long is asked again, over another connection."""
_MAX_REFUSAL_BYTES = 16 * 1024
_NETWORK_ERRORS = frozenset({errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN, errno.EHOSTDOWN, errno.ENOBUFS})


class Origin(NamedTuple):
    """Where requests go; `netloc` is the Host header, exactly as the URL was signed."""

    scheme: str
    netloc: str
    host: str
    port: int

    @classmethod
    def of(cls, url: SplitResult) -> Origin:
        """Raises ValueError for a URL that is not http(s)."""
        if url.scheme not in ("http", "https") or not url.hostname:
            raise ValueError("an object store is reached by http or https")
        return cls(url.scheme, url.netloc, url.hostname, url.port or (443 if url.scheme == "https" else 80))

    @property
    def name(self) -> str:
        """For people; without what is secret in a URL."""
        return f"{self.scheme}://{self.netloc}"


class Connected(NamedTuple):
    """A new connection."""

    sock: socket.socket
    address: str


class Part:
    """Bytes [begin_bytes, end_bytes) of an object are still missing in `view`; `begin_bytes` moves on as they land, so
    a part that was cut goes on where it ended."""

    def __init__(self, view: memoryview, offset_bytes: int, length_bytes: int, pin: ObjectPin) -> None:
        self._view, self._offset_bytes = view, offset_bytes
        self.begin_bytes, self.end_bytes, self.pin = offset_bytes, offset_bytes + length_bytes, pin

    def found(self, found: Found) -> None:
        """The object is this one, and has so many bytes from `begin_bytes` on."""
        self.pin = found.pin.over(self.pin)
        self.end_bytes = self.begin_bytes + found.length_bytes

    def missing(self) -> memoryview:
        """Where the next bytes go."""
        return self._view[self.begin_bytes - self._offset_bytes : self.end_bytes - self._offset_bytes]

    @property
    def done_bytes(self) -> int:
        """How many have landed."""
        return self.begin_bytes - self._offset_bytes


@dataclass(slots=True)
class WireTimes:
    """Counts and seconds of one reader's requests, summed over them."""

    requests: int = 0
    connections: int = 0
    resolve_seconds: float = 0.0
    connect_seconds: float = 0.0
    tls_seconds: float = 0.0
    first_byte_seconds: float = 0.0
    body_seconds: float = 0.0
    slowest_first_byte_seconds: float = 0.0
    tls_version: str = ""
    addresses: set[str] = field(default_factory=set)

    def add(self, other: WireTimes) -> None:
        """Take another reader's in."""
        self.slowest_first_byte_seconds = max(self.slowest_first_byte_seconds, other.slowest_first_byte_seconds)
        self.tls_version = other.tls_version or self.tls_version
        self.addresses |= other.addresses
        for one in fields(self):
            if one.name in ("slowest_first_byte_seconds", "tls_version", "addresses"):
                continue
            setattr(self, one.name, getattr(self, one.name) + getattr(other, one.name))


class Wire:
    """Not shared between threads, but for `cut`, which any thread may call. `turn` spreads readers over the addresses
    that a name has."""

    def __init__(
        self,
        origin: Origin,
        tls: ssl.SSLContext | None,
        times: WireTimes,
        turn: int,
        networks: Networks | None = None,
    ) -> None:
        self._origin, self._tls, self._times, self._turn, self._networks = origin, tls, times, turn, networks
        self._http: http.client.HTTPConnection | None = None
        self._response: http.client.HTTPResponse | None = None
        self._is_cut = False

    def read_range(self, target: str, part: Part) -> None:
        """Fill what is missing of the part. Raises Passing, or OSError where asking again would not help."""
        with self._translated():
            response = self._ask(target, f"bytes={part.begin_bytes}-{part.end_bytes - 1}", part.pin.etag)
            self._require_success(response)
            found = found_in(
                response.status, _named(response), part.begin_bytes, part.end_bytes - part.begin_bytes, part.pin
            )
            part.found(found)
            self._fill(response, part)

    def look(self, target: str) -> ObjectPin:
        """What the object is, from an answer that brings one byte of it at most. Raises as `read_range`."""
        with self._translated():
            response = self._ask(target, "bytes=0-0", "")
            if response.status == 416:  # there is no first byte of an empty object
                response.read(_MAX_REFUSAL_BYTES)
                response = self._ask(target, "", "")
                self._require_success(response)
                pin = whole_in(_named(response))
                self.drop()
                return pin
            self._require_success(response)
            found = found_in(response.status, _named(response), 0, 1, ObjectPin())
            response.read(1)
            return found.pin

    def _require_success(self, response: http.client.HTTPResponse) -> None:
        if response.status not in (200, 206):
            raise refused(response.status, _named(response), response.read(_MAX_REFUSAL_BYTES))

    def _fill(self, response: http.client.HTTPResponse, part: Part) -> None:
        began = time.monotonic()
        try:
            while part.begin_bytes < part.end_bytes:
                count = response.readinto(part.missing())
                if not count:
                    raise Passing("cut", f"the answer was cut short at byte {part.begin_bytes}")
                part.begin_bytes += count
        finally:
            self._times.body_seconds += time.monotonic() - began
        if not response.isclosed() and response.read(1):
            raise Passing("wrong length", "more bytes came than were asked for")

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        """Trouble in our words. The connection that met it is dropped, but for an answer that came in full."""
        try:
            yield
        except BaseException as error:
            told = _in_our_words(error)
            if told is not error or not self._is_between_answers():
                self.drop()
            raise told from (None if told is error else error)

    def _is_between_answers(self) -> bool:
        return self._response is not None and self._response.isclosed()

    def _ask(self, target: str, asked_range: str, etag: str) -> http.client.HTTPResponse:
        """The answer once its headers are in. A kept connection that the store has closed meanwhile is replaced."""
        kept = self._http is not None and self._http.sock is not None
        try:
            return self._send(target, asked_range, etag)
        except (BrokenPipeError, ConnectionResetError, http.client.RemoteDisconnected):
            if not kept or self._is_cut:
                raise
        self.drop()
        return self._send(target, asked_range, etag)

    def _send(self, target: str, asked_range: str, etag: str) -> http.client.HTTPResponse:
        connection = self._connection()
        began = time.monotonic()
        connection.putrequest("GET", target, skip_host=True, skip_accept_encoding=True)
        connection.putheader("Host", self._origin.netloc)
        if asked_range:
            connection.putheader("Range", asked_range)
        connection.putheader("Accept-Encoding", "identity")
        if etag:
            connection.putheader("If-Match", f'"{etag}"')
        connection.endheaders()
        self._response = response = connection.getresponse()
        seconds = time.monotonic() - began
        self._times.requests += 1
        self._times.first_byte_seconds += seconds
        self._times.slowest_first_byte_seconds = max(seconds, self._times.slowest_first_byte_seconds)
        return response

    # -- the connection ------------------------------------------------------------------------------------------------
    def _connection(self) -> http.client.HTTPConnection:
        if self._http is None or self._http.sock is None:
            connection = http.client.HTTPConnection(self._origin.host, self._origin.port)
            connection.auto_open = 0
            connection.sock = self._connect()
            self._http = connection
        if self._is_cut:
            raise ConnectionAbortedError("the reading was ended")
        return self._http

    def _connect(self) -> socket.socket:
        times = self._times
        began = time.monotonic()
        # One name may stand for many gateways: each reader begins at another of them.
        found = resolve(self._origin.host, self._origin.port, self._networks)
        resolved = time.monotonic()
        times.resolve_seconds += resolved - began
        first = self._turn % len(found)
        sock, address = _first_that_answers(found[first:] + found[:first])
        connected = time.monotonic()
        times.connect_seconds += connected - resolved
        times.connections += 1
        times.addresses.add(address)
        if self._tls is not None:
            sock = self._handshake(sock, self._tls)
            times.tls_seconds += time.monotonic() - connected
        sock.settimeout(SILENCE_SECONDS)
        return sock

    def _handshake(self, sock: socket.socket, tls: ssl.SSLContext) -> ssl.SSLSocket:
        try:
            wrapped = tls.wrap_socket(sock, server_hostname=self._origin.host)
        except BaseException:
            sock.close()
            raise
        self._times.tls_version = wrapped.version() or ""
        return wrapped

    def drop(self) -> None:
        """Close the connection; the next request makes another."""
        connection, self._http = self._http, None
        if connection is not None:
            connection.close()

    def cut(self) -> None:
        """End whatever the reader is in, from another thread."""
        self._is_cut = True
        connection = self._http
        sock = connection.sock if connection is not None else None
        if sock is not None:
            with contextlib.suppress(OSError):
                socket.socket.shutdown(sock, socket.SHUT_RDWR)


def _first_that_answers(addresses: list[Resolved]) -> Connected:
    try:
        sock = connect_to(addresses, CONNECT_SECONDS)
    except OSError as error:
        raise _unreachable(f"no connection was made ({_text(error)})") from error
    return Connected(sock, str(sock.getpeername()[0]))


def _named(response: http.client.HTTPResponse) -> Headers:
    """The headers as a dictionary: the message itself goes through all of them whenever it is asked for one."""
    return {name.lower(): str(value) for name, value in response.headers.raw_items()}


def _unreachable(why: str) -> Passing:
    return Passing("no connection", why, is_dead=True)


def _in_our_words(error: BaseException) -> BaseException:
    """Network trouble in our words; anything else stays what it is."""
    if isinstance(error, (Passing, ConnectionAbortedError)):
        return error
    if isinstance(error, ssl.SSLCertVerificationError):
        text = f"the store's certificate is not trusted ({error.verify_message}): name its CA's file in AWS_CA_BUNDLE"
        return OSError(errno.EPROTO, text)
    if isinstance(error, socket.gaierror):
        return _unreachable(f"the name of the store is not known ({_text(error)})")
    if isinstance(error, TimeoutError):
        return Passing("silent", "the store did not answer in time", is_dead=True)
    broke = (http.client.HTTPException, ssl.SSLError, ConnectionError)
    if isinstance(error, broke) or (isinstance(error, OSError) and error.errno in _NETWORK_ERRORS):
        return Passing("reset", f"the connection broke ({type(error).__name__})")
    return error


def _text(error: OSError | None) -> str:
    return (error.strerror or type(error).__name__) if error is not None else "it has no address"


def tls_context(bundle: str | None = None) -> ssl.SSLContext:
    """Certificates are verified: against the file of `bundle` or AWS_CA_BUNDLE, else the system's, else botocore's."""
    bundle = bundle or os.environ.get("AWS_CA_BUNDLE") or None
    if bundle is not None:
        is_folder = os.path.isdir(bundle)
        return ssl.create_default_context(cafile=None if is_folder else bundle, capath=bundle if is_folder else None)
    context = ssl.create_default_context()
    if not context.cert_store_stats()["x509_ca"]:
        with contextlib.suppress(ImportError, OSError):
            import botocore

            context.load_verify_locations(os.path.join(os.path.dirname(botocore.__file__), "cacert.pem"))
    return context
