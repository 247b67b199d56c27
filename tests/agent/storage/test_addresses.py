"""Where a name that somebody else gave may lead."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from ipaddress import ip_address
from typing import Any

import pytest
from muster_agent.protocol.stores import StoreAt
from muster_agent.storage.addresses import AddressRefused, connect_to, networks_of, resolve, why_refused
from muster_agent.storage.s3_client import connect_at

EVERYTHING = networks_of("0.0.0.0/0 ::/0")


@pytest.mark.parametrize("address", ["8.8.8.8", "52.95.110.1", "2600:1f18::1"])
def test_public_addresses_are_reached(address: str) -> None:
    assert why_refused(ip_address(address), ()) == ""


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "100.64.0.1", "::1", "fd12::1", "::ffff:10.0.0.1",
        "64:ff9b::a00:1", "2002:a00:1::",
    ],
)  # fmt: skip
def test_private_ones_only_where_they_are_allowed(address: str) -> None:
    assert "allow its network" in why_refused(ip_address(address), ())
    assert "allow its network" in why_refused(ip_address(address), networks_of("203.0.113.0/24"))
    assert why_refused(ip_address(address), EVERYTHING) == ""


@pytest.mark.parametrize(
    "address",
    [
        "169.254.169.254", "169.254.170.2", "fe80::1", "fd00:ec2::254", "100.100.100.200", "168.63.129.16",
        "::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe", "2002:a9fe:a9fe::", "0.0.0.0", "224.0.0.1", "::",
        "255.255.255.255",
    ],
)  # fmt: skip
def test_metadata_services_are_never_reached_whatever_is_allowed(address: str) -> None:
    assert why_refused(ip_address(address), EVERYTHING) != ""


def test_one_bad_address_of_a_name_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [("8.8.8.8", 443), ("169.254.169.254", 443)]
    rows = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", address) for address in answers]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_args, **_more: rows)
    with pytest.raises(AddressRefused, match="evil.example is not reached"):
        resolve("evil.example", 443, EVERYTHING)


@pytest.fixture
def listener() -> Iterator[tuple[int, list[bytes]]]:
    """A server on loopback that notes what it is sent."""
    heard: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    sock, _ = server.accept()
                except OSError:
                    return
                with sock:
                    heard.append(sock.recv(4096))

        threading.Thread(target=serve, daemon=True).start()
        yield server.getsockname()[1], heard


def test_the_connection_goes_to_the_address_that_was_judged(
    listener: tuple[int, list[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name server answers with another address the second time: nobody asks it a second time."""
    port, heard = listener
    asked: list[str] = []
    real = socket.getaddrinfo

    def rebinding(host: str, *args: Any, **more: Any) -> Any:
        asked.append(host)
        return real("127.0.0.1" if len(asked) == 1 else "127.0.0.2", *args, **more)

    monkeypatch.setattr(socket, "getaddrinfo", rebinding)
    found = resolve("rebinding.example", port, networks_of("127.0.0.1/32"))
    with connect_to(found, 5.0) as sock:
        assert sock.getpeername()[0] == "127.0.0.1"
    assert asked == ["rebinding.example"]


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_client_of_a_tiers_endpoint_sends_nothing_to_what_it_may_not_reach(
    scheme: str, listener: tuple[int, list[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    port, heard = listener
    for name, value in (
        ("AWS_ACCESS_KEY_ID", "a"),
        ("AWS_SECRET_ACCESS_KEY", "b"),
        ("AWS_DEFAULT_REGION", "eu-west-1"),
    ):
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("MUSTER_ALLOWED_NETWORKS", raising=False)
    monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{port}")
    monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{port}")
    store = connect_at(StoreAt(endpoint_url=f"{scheme}://localhost:{port}"))
    with pytest.raises(PermissionError, match="is not public"):
        store.first("b", "x")
    assert heard == []
    monkeypatch.setenv("MUSTER_ALLOWED_NETWORKS", "127.0.0.0/8,::1/128")
    allowed = connect_at(StoreAt(endpoint_url=f"{scheme}://localhost:{port}"))
    allowed.first_wait_seconds = 0.001
    with pytest.raises(OSError):
        allowed.first("b", "x")
    assert heard and heard[0].startswith(b"GET /b?" if scheme == "http" else b"\x16")
