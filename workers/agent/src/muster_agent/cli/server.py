"""One question to the control plane over its REST API: which addresses are asked, and where a token may go."""

from __future__ import annotations

import os
from urllib.parse import urlsplit

import urllib3

from muster_agent.protocol.loopback import is_loopback

MAX_ANSWER_BYTES = 16 * 1024 * 1024


class NoAnswer(Exception):
    """The server gave nothing to use; the message says why."""


def get(server: str, path: str, token: str | None, *, timeout_seconds: float) -> tuple[int, bytes]:
    """Status and body of `/api/v1/PATH`. Raises NoAnswer; a redirect is not followed, and a token is sent over https
    or to this host only."""
    refuse_other_addresses(server)
    headers = {"Accept": "application/json"}
    if token:
        _refuse_plain_text(server)
        headers["Authorization"] = f"Bearer {token}"
    url = f"{server.rstrip('/')}/api/v1/{path}"
    timeout = urllib3.Timeout(total=timeout_seconds)
    try:
        with urllib3.PoolManager() as pool:
            response = pool.request(
                "GET", url, headers=headers, timeout=timeout, retries=False, redirect=False, preload_content=False
            )
            return response.status, response.read(MAX_ANSWER_BYTES)
    except (urllib3.exceptions.HTTPError, ValueError, OSError) as error:
        raise NoAnswer(f"{server} could not be reached ({type(error).__name__})") from error


def refuse_other_addresses(server: str) -> None:
    try:
        parts = urlsplit(server)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise NoAnswer(f"{server} is no http or https address")


def _refuse_plain_text(server: str) -> None:
    """A token goes over plain HTTP to this host only."""
    parts = urlsplit(server)
    if parts.scheme != "https" and not is_loopback(parts.hostname or ""):
        raise NoAnswer(f"the token is not sent to {server} over plain HTTP; use https")


def read_token() -> str | None:
    """The token in MUSTER_TOKEN, or in the file MUSTER_TOKEN_FILE names. Raises NoAnswer where that is unreadable."""
    token = os.environ.get("MUSTER_TOKEN", "").strip()
    path = os.environ.get("MUSTER_TOKEN_FILE", "")
    if token or not path:
        return token or None
    try:
        with open(path, encoding="ascii") as stream:
            return stream.read(4096).strip() or None
    except (OSError, UnicodeDecodeError) as error:
        raise NoAnswer(f"the token file {path} could not be read ({type(error).__name__})") from error
