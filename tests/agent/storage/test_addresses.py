"""Where a name that somebody else gave may lead."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from ipaddress import ip_address
from typing import Any

import pytest
from muster_agent.protocol.stores import StoreAt
from muster_agent.storage.addresses import (
    AddressRefused,
    connect_to,
    networks_of,
    numeric_address,
    resolve,
    why_refused,
)
from muster_agent.storage.s3_client import connect_at
from muster_agent.storage.s3_source import S3Reads
from muster_agent.storage.s3_urls import GivenUrls
from urllib3.exceptions import LocationParseError

from tests.hostile_hosts import NEVER, PRIVATE, netloc

EVERYTHING = networks_of("0.0.0.0/0 ::/0")


@pytest.mark.parametrize("address", ["8.8.8.8", "52.95.110.1", "2600:1f18::1"])
def test_public_addresses_are_reached(address: str) -> None:
    assert why_refused(ip_address(address), ()) == ""


@pytest.mark.parametrize("host", NEVER)
def test_metadata_services_are_never_reached_whatever_is_allowed(host: str) -> None:
    with pytest.raises((AddressRefused, socket.gaierror)):
        resolve(host, 80, EVERYTHING)
    address = numeric_address(host)
    assert address is not None and "allow its network" not in why_refused(address, EVERYTHING) != ""


@pytest.mark.parametrize("host", PRIVATE)
def test_private_ones_only_where_they_are_allowed(host: str) -> None:
    for networks in ((), networks_of("203.0.113.0/24")):
        with pytest.raises(AddressRefused, match="allow its network"):
            resolve(host, 80, networks)
    address = numeric_address(host)
    assert address is not None and why_refused(address, EVERYTHING) == ""


@pytest.mark.parametrize(
    "name", ["s3.example", "localhost", "a.127.0.0.1.nip.example", "", "1.2.3.4.5", "0x", "x" * 300]
)
def test_a_name_is_no_address(name: str) -> None:
    assert numeric_address(name) is None


def test_one_bad_address_of_a_name_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [("8.8.8.8", 443), ("169.254.169.254", 443)]
    rows = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", address) for address in answers]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_args, **_more: rows)
    with pytest.raises(AddressRefused, match="evil.example is not reached"):
        resolve("evil.example", 443, EVERYTHING)


@pytest.fixture
def no_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    def connected(self: socket.socket, address: Any) -> None:
        raise AssertionError(f"it connected to {address}")

    monkeypatch.setattr(socket.socket, "connect", connected)


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
        if more.get("flags") == socket.AI_NUMERICHOST:
            return real(host, *args, **more)
        asked.append(host)
        return real("127.0.0.1" if len(asked) == 1 else "127.0.0.2", *args, **more)

    monkeypatch.setattr(socket, "getaddrinfo", rebinding)
    found = resolve("rebinding.example", port, networks_of("127.0.0.1/32"))
    with connect_to(found, 5.0) as sock:
        assert sock.getpeername()[0] == "127.0.0.1"
    assert asked == ["rebinding.example"]


def test_no_host_of_the_table_is_connected_to_for_a_tiers_endpoint(
    monkeypatch: pytest.MonkeyPatch, no_connections: None
) -> None:
    """By boto3's own pools, which every request of a client goes through."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_DEFAULT_REGION"):
        monkeypatch.setenv(name, "eu-west-1")
    monkeypatch.delenv("MUSTER_ALLOWED_NETWORKS", raising=False)
    store = connect_at(StoreAt(endpoint_url="https://s3.example"))
    manager = store._client._endpoint.http_session._manager
    for host in (*NEVER, *PRIVATE):
        for scheme in ("http", "https"):
            with pytest.raises((AddressRefused, LocationParseError)):
                manager.connection_from_host(host, 80, scheme)._get_conn().connect()


@pytest.mark.parametrize("host", [host for host in NEVER if host.isascii()])
def test_no_given_url_leads_an_agent_to_a_metadata_service(host: str, no_connections: None) -> None:
    with pytest.raises(OSError) as refused:
        S3Reads(GivenUrls({"a": [f"http://{netloc(host)}/b/a"]}), first_wait_seconds=0.0001).look("a")
    assert "metadata" in str(refused.value) or "no address of a server" in str(refused.value)


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
