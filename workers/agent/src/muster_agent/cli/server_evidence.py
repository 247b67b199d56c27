"""Asking the control plane what it knows of a run, within a fixed time and without ever failing a restart."""

from __future__ import annotations

import ipaddress
import os
import threading
from urllib.parse import quote, urlsplit

import msgspec
import urllib3

from muster_agent.decide.evidence import ServerEvidence

BUDGET_SECONDS = 1.5
"""With the rest of the command, an answer comes within 2 s."""
MAX_ANSWER_BYTES = 16 * 1024 * 1024


class ServerAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """`predicted_seconds` is for the server's own choice, `path`."""

    evidence: tuple[ServerEvidence, ...] = ()
    predicted_seconds: float | None = None
    path: str | None = None


class NoEvidence(Exception):
    """The server gave nothing to use; the message says why."""


def ask_server(server: str, run: str, token: str | None, *, budget_seconds: float = BUDGET_SECONDS) -> ServerAnswer:
    """What the server knows of `run`. Raises NoEvidence after at most `budget_seconds`, name look-up included: the
    request runs in a thread of its own, which is left behind when it does not come back."""
    _refuse_other_addresses(server)
    result: list[ServerAnswer | NoEvidence] = []

    def work() -> None:
        try:
            result.append(_request(server, run, token, budget_seconds))
        except NoEvidence as reason:
            result.append(reason)

    thread = threading.Thread(target=work, daemon=True, name="muster-server-evidence")
    thread.start()
    thread.join(budget_seconds)
    if not result:
        raise NoEvidence(f"{server} gave no answer within {budget_seconds:.1f} s")
    if isinstance(result[0], NoEvidence):
        raise result[0]
    return result[0]


def _request(server: str, run: str, token: str | None, budget_seconds: float) -> ServerAnswer:
    url = f"{server.rstrip('/')}/api/v1/runs/{quote(run, safe='')}/resume-point?evidence=1"
    headers = {"Accept": "application/json"}
    if token:
        _refuse_plain_text(server)
        headers["Authorization"] = f"Bearer {token}"
    timeout = urllib3.Timeout(total=budget_seconds)
    try:
        with urllib3.PoolManager() as pool:
            response = pool.request(
                "GET", url, headers=headers, timeout=timeout, retries=False, redirect=False, preload_content=False
            )
            body = response.read(MAX_ANSWER_BYTES)
    except (urllib3.exceptions.HTTPError, ValueError, OSError) as error:
        raise NoEvidence(f"{server} could not be reached ({type(error).__name__})") from error
    return _understood(server, run, response.status, body)


def _understood(server: str, run: str, status: int, body: bytes) -> ServerAnswer:
    if status in (401, 403):
        raise NoEvidence(f"{server} refused the token ({status}); set MUSTER_TOKEN to one that may read runs")
    if status == 404:
        raise NoEvidence(f"{server} knows no run {run!r}")
    if status != 200:
        raise NoEvidence(f"{server} answered with status {status}")
    try:
        return msgspec.json.decode(body, type=ServerAnswer)
    except (msgspec.MsgspecError, RecursionError, ValueError) as error:
        raise NoEvidence(f"{server} gave an answer that is not understood") from error


def _refuse_other_addresses(server: str) -> None:
    try:
        parts = urlsplit(server)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise NoEvidence(f"{server} is no http or https address")


def _refuse_plain_text(server: str) -> None:
    """A token goes over plain HTTP to this host only."""
    parts = urlsplit(server)
    if parts.scheme == "https" or parts.hostname == "localhost":
        return
    try:
        if ipaddress.ip_address(parts.hostname or "").is_loopback:
            return
    except ValueError:
        pass
    raise NoEvidence(f"the token is not sent to {server} over plain HTTP; use https")


def read_token() -> str | None:
    """The token in MUSTER_TOKEN, or in the file MUSTER_TOKEN_FILE names. Raises NoEvidence where that is unreadable."""
    token = os.environ.get("MUSTER_TOKEN", "").strip()
    path = os.environ.get("MUSTER_TOKEN_FILE", "")
    if token or not path:
        return token or None
    try:
        with open(path, encoding="ascii") as stream:
            return stream.read(4096).strip() or None
    except (OSError, UnicodeDecodeError) as error:
        raise NoEvidence(f"the token file {path} could not be read ({type(error).__name__})") from error
