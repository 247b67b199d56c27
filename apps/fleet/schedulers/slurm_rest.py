"""Slurm through slurmrestd, for workers on hosts without Slurm's programs and without munge's key."""

from __future__ import annotations

import http.client
import json
import re
import socket
import ssl
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import msgspec

from apps.fleet.schedulers import slurm_parsing as parsing
from apps.fleet.schedulers.base import SchedulerError, SchedulerJob, SchedulerNode, Snapshot
from apps.fleet.schedulers.slurm import REQUEUE_HOLD_CURE

ANSWER_SECONDS = 10.0
MAX_ANSWER_BYTES = 512 * 1024 * 1024
_VERSION = re.compile(r"/slurm/v0\.0\.(\d{1,4})/")
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


class _Reached(msgspec.Struct, frozen=True, kw_only=True):
    """How slurmrestd is reached. `server`: `https://host:port`, or `unix:/path` of its socket, where it knows the
    worker's own user. `user` and `token_file`: for a server with JWT; the file is read anew for each question, so that
    a cron job may renew the token."""

    server: str
    user: str = ""
    token_file: str = ""
    ca_file: str = ""


class SlurmRest:
    """Asks the slurmrestd that a JSON file names. Reading needs no rights in Slurm; changing nodes needs a Slurm
    operator or administrator, and Slurm 23.02 or later."""

    requeue_hold_cure = REQUEUE_HOLD_CURE

    def __init__(self, path: str) -> None:
        self._reached = _read(path)
        self._paths: dict[str, Any] = {}
        self._prefix = ""

    def snapshot(self) -> Snapshot:
        nodes, version = self._ask("nodes/"), self._ask("ping/")
        return Snapshot(
            nodes=parsing.parse_nodes(nodes),
            jobs=parsing.parse_jobs(self._ask("jobs/")),
            partitions=parsing.parse_partitions_json(self._ask("partitions/")),
            version=parsing.parse_rest_version(version),
        )

    def node(self, name: str) -> SchedulerNode:
        found = parsing.parse_nodes(self._ask(f"node/{_quoted(name)}"))
        node = next((one for one in found if one.name == name), None)
        if node is None:
            raise SchedulerError(f"Slurm knows no node {name}.")
        return node

    def job(self, job_id: str) -> SchedulerJob | None:
        """Of all jobs that it lists: one that it does not know is an error of its own in some versions."""
        jobs = parsing.parse_jobs(self._ask("jobs/"))
        return next((job for job in jobs if job.job_id == job_id), None)

    def drain(self, node: str, reason: str) -> None:
        self._update(node, "DRAIN", reason)

    def fail(self, node: str, reason: str) -> None:
        self._update(node, "DOWN", reason)

    def resume(self, node: str) -> None:
        if not self.node(node).usable:
            self._update(node, "RESUME", "")

    def requeue_hold_seconds(self) -> float | None:
        return None  # it does not tell the configuration

    def _update(self, node: str, state: str, reason: str) -> None:
        prefix = self._api()
        if "post" not in self._paths.get(f"{prefix}node/{{node_name}}", {}):
            raise SchedulerError(
                f"This slurmrestd ({prefix.strip('/')}) cannot change nodes; that of Slurm 23.02 or later can. Name "
                "slurm.conf in MUSTER_SCHEDULERS instead, where the workers have Slurm's programs."
            )
        body = {"state": [state], **({"reason": reason} if reason else {})}
        self._ask(f"node/{_quoted(node)}", body)

    def _ask(self, path: str, body: dict[str, Any] | None = None) -> str:
        """The answer's text. Its own errors are for the parsers, but for a change they are all that it says."""
        text = self._call("POST" if body is not None else "GET", self._api() + path, body)
        if body is not None:
            problems = parsing.problems_of(text)
            if problems:
                raise SchedulerError(f"slurmrestd refused: {'; '.join(problems)[:300]}")
        return text

    def _api(self) -> str:
        """`/slurm/v0.0.40/`: the newest that this server speaks."""
        if not self._prefix:
            document = _document(self._call("GET", "/openapi/v3", None))
            self._paths = document.get("paths") or {}
            numbers = {int(found[1]) for path in self._paths if (found := _VERSION.match(path))}
            if not numbers:
                raise SchedulerError(f"{self._reached.server} is no slurmrestd: its openapi names no /slurm/v0.0.N/.")
            self._prefix = f"/slurm/v0.0.{max(numbers)}/"
        return self._prefix

    def _call(self, method: str, path: str, body: dict[str, Any] | None) -> str:
        connection = _connection(self._reached)
        sent = json.dumps(body) if body is not None else None
        try:
            connection.request(method, path, sent, self._headers(sent is not None))
            answer = connection.getresponse()
            data = answer.read(MAX_ANSWER_BYTES).decode("utf-8", "replace")
        except (OSError, http.client.HTTPException) as error:
            raise SchedulerError(f"{self._reached.server} does not answer: {error}") from error
        finally:
            connection.close()
        if answer.status >= 300:
            said = "; ".join(parsing.problems_of(data)) or " ".join(data.split()) or answer.reason
            raise SchedulerError(f"{method} {path} gave {answer.status}: {said[:300]}")
        return data

    def _headers(self, has_body: bool) -> dict[str, str]:
        headers = {"Accept": "application/json", **({"Content-Type": "application/json"} if has_body else {})}
        if self._reached.user:
            headers["X-SLURM-USER-NAME"] = self._reached.user
        if self._reached.token_file:
            try:
                headers["X-SLURM-USER-TOKEN"] = Path(self._reached.token_file).read_text(encoding="utf-8").strip()
            except OSError as error:
                raise SchedulerError(f"{self._reached.token_file} cannot be read: {error.strerror}") from error
        return headers


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=ANSWER_SECONDS)
        self._socket_path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(ANSWER_SECONDS)
        self.sock.connect(self._socket_path)


def _connection(reached: _Reached) -> http.client.HTTPConnection:
    if reached.server.startswith("unix:"):
        return _UnixConnection(reached.server.removeprefix("unix:"))
    url = urlsplit(reached.server)
    assert url.hostname is not None
    if url.scheme == "https":
        context = ssl.create_default_context(cafile=reached.ca_file or None)
        return http.client.HTTPSConnection(url.hostname, url.port, timeout=ANSWER_SECONDS, context=context)
    return http.client.HTTPConnection(url.hostname, url.port, timeout=ANSWER_SECONDS)


def _read(path: str) -> _Reached:
    """Raises SchedulerError."""
    try:
        reached = msgspec.json.decode(Path(path).read_bytes(), type=_Reached)
        url = urlsplit(reached.server)
        is_known = reached.server.startswith("unix:/") or (url.scheme in ("http", "https") and url.hostname)
    except (OSError, ValueError) as error:
        raise SchedulerError(
            f"{path} does not say how slurmrestd is reached ({error}): it holds, say, "
            '{"server": "https://slurm.example:6820", "user": "muster", "token_file": "/etc/muster/slurm.jwt"}.'
        ) from error
    if not is_known:
        raise SchedulerError(f"{path} names the server {reached.server!r}: give https://host:port or unix:/path.")
    if url.scheme == "http" and url.hostname not in _LOOPBACK:
        raise SchedulerError(f"{path} names {reached.server}: a token is only sent over https.")
    return reached


def _document(text: str) -> dict[str, Any]:
    try:
        document = json.loads(text)
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}


def _quoted(name: str) -> str:
    return quote(name, safe="")
