"""Where a host name that came from outside this host's own configuration may lead: a tier's endpoint, a webhook's URL.

The name is resolved once, every address is judged, and the connection goes to a judged address itself: a name server
that answers differently the next time changes nothing. Link-local addresses, and with them the metadata services of
clouds, are never connected to; loopback and private ranges only where they are allowed.
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterable, Mapping
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Any

VARIABLE = "MUSTER_ALLOWED_NETWORKS"
_METADATA = frozenset(
    ip_address(text)
    for text in (
        "fd00:ec2::254", "fd00:ec2::23", "fd20:ce::254", "fd00:42::42",
        "100.100.100.200", "168.63.129.16", "192.0.0.192",
    )
)  # fmt: skip
"""Of clouds (Amazon, Google, Scaleway; Alibaba, Azure, Oracle) whose metadata is not at a link-local address."""
_TRANSLATED = ip_network("64:ff9b::/96")
_MOST = 3
"""Addresses of one name that are tried for one connection."""

Address = IPv4Address | IPv6Address
Networks = tuple[IPv4Network | IPv6Network, ...]
Resolved = tuple[Any, ...]
"""A row of `socket.getaddrinfo`."""
EVERYWHERE: Networks = (ip_network("0.0.0.0/0"), ip_network("::/0"))
"""Allows private networks too; metadata services stay out of reach."""
_NOT_PUBLIC: Networks = tuple(map(ip_network, ("192.0.0.0/24", "192.88.99.0/24", "fec0::/10", "3fff::/20")))
"""Of which `is_global` is true in some versions of Python, or in all."""


class AddressRefused(OSError):
    """The name leads to where it must not."""

    def __init__(self, text: str) -> None:
        super().__init__(errno.EACCES, text)


def networks_of(text: str) -> Networks:
    """Networks written with commas or spaces between them. Raises ValueError that names the bad one."""
    return tuple(ip_network(word) for word in text.replace(",", " ").split())


def allowed_networks(environment: Mapping[str, str] = os.environ) -> Networks:
    """Those that this host's environment allows beside public ones. Raises ValueError."""
    return networks_of(environment.get(VARIABLE, ""))


def why_refused(address: Address, networks: Networks) -> str:
    """Why nothing may be sent to this address; empty where it may."""
    real = _unwrapped(address)
    if real.is_link_local or real in _METADATA:
        return f"{real} is link-local or a cloud's metadata service, which is never connected to"
    if real.is_multicast or real.is_unspecified or (real.is_reserved and not real.is_loopback):
        return f"{real} is no address of a server"
    is_public = real.is_global and not _is_in(real, _NOT_PUBLIC)
    if is_public or _is_in(real, networks):
        return ""
    return f"{real} is not public; allow its network in {VARIABLE}"


def _is_in(address: Address, networks: Networks) -> bool:
    return any(address in network for network in networks if network.version == address.version)


def _unwrapped(address: Address) -> Address:
    """The IPv4 address that an IPv6 one stands for; without its zone, with which it equals no other."""
    if not isinstance(address, IPv6Address):
        return address
    bare = IPv6Address(int(address))
    inside = IPv4Address(int(bare) & 0xFFFFFFFF) if bare in _TRANSLATED else None
    return bare.ipv4_mapped or bare.sixtofour or inside or (bare.teredo[1] if bare.teredo else bare)


def numeric_address(host: str) -> Address | None:
    """The address that a host's text is, in any spelling that connecting to it takes (`127.1`, `0x7f000001`,
    `2130706433`, other scripts' digits, a zone, a dot at its end); None for a name. Nothing is looked up."""
    try:
        found = socket.getaddrinfo(host.partition("%")[0].rstrip("."), None, flags=socket.AI_NUMERICHOST)
    except (OSError, UnicodeError):
        return None
    return ip_address(str(found[0][4][0]).partition("%")[0])


def resolve(host: str, port: int, networks: Networks | None) -> list[Resolved]:
    """What the name stands for now, each address judged; `networks` None: this host's own configuration named it, so
    nothing is judged. Raises OSError, AddressRefused where any of its addresses must not be reached."""
    if networks is None:
        return list(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
    if written := numeric_address(host):
        _judge(host, written, networks)
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    for *_how, address in found:
        _judge(host, ip_address(str(address[0]).partition("%")[0]), networks)
    return list(found)


def _judge(host: str, address: Address, networks: Networks) -> None:
    if told := why_refused(address, networks):
        raise AddressRefused(f"{host} is not reached: {told}")


def connect_to(found: Iterable[Resolved], timeout_seconds: float | None) -> socket.socket:
    """A connection to the first of these addresses that answers. Raises the last one's OSError."""
    last: OSError = OSError(errno.EADDRNOTAVAIL, "it has no address")
    for family, kind, protocol, _name, address in list(found)[:_MOST]:
        sock = socket.socket(family, kind, protocol)
        try:
            sock.settimeout(timeout_seconds)
            sock.connect(address)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError as error:
            sock.close()
            last = error
            continue
        return sock
    raise last
