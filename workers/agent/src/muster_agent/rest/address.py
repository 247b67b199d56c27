"""Which addresses are asked, and where a token may go."""

from __future__ import annotations

from urllib.parse import urlsplit

from muster_agent.protocol.loopback import is_loopback
from muster_agent.rest.errors import AddressRefused


def check_address(server: str, *, with_token: bool) -> str:
    """The address without its last slash. Raises AddressRefused: a token goes over https, or to this host."""
    try:
        parts = urlsplit(server)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable or parts.query or parts.fragment or parts.username:
        raise AddressRefused(f"{server!r} is no server address; write it like https://muster.example")
    if with_token and parts.scheme == "http" and not is_loopback(parts.hostname or ""):
        raise AddressRefused(f"the token is not sent to {server} over plain HTTP; use https")
    return server.rstrip("/")
