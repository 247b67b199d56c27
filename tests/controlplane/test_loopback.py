"""An insecure configuration answers on loopback only, whatever address the server was bound to."""

from __future__ import annotations

from typing import Any

import pytest
from pytest_django.fixtures import Settings

from controlplane.loopback import LoopbackGuard, is_loopback, wsgi_guard

pytestmark = pytest.mark.asyncio


@pytest.mark.parametrize(
    ("server", "expected"),
    [
        (("127.0.0.1", 8000), True),
        (("::1", 8000), True),
        (("::ffff:127.0.0.1", 8000), True),
        (("10.1.2.3", 8000), False),
        (("::ffff:10.1.2.3", 8000), False),
        (("0.0.0.0", 8000), False),
        (("/run/muster.sock", None), False),
        (None, False),
    ],
)
async def test_only_loopback_addresses_count_as_such(server: Any, expected: bool) -> None:
    assert is_loopback(server) is expected


async def answered(server: Any) -> int:
    """The status with which a request that arrived at `server` is answered."""
    sent: list[dict[str, Any]] = []

    async def application(_scope: Any, _receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    await LoopbackGuard(application)({"type": "http", "server": server}, None, send)
    return int(sent[0]["status"])


async def test_the_default_secret_is_refused_on_another_address(settings: Settings) -> None:
    settings.SECRET_KEY = settings.DEFAULT_SECRET_KEY
    assert await answered(("10.1.2.3", 8000)) == 503
    assert await answered(("127.0.0.1", 8000)) == 200


async def test_debugging_is_refused_on_another_address(settings: Settings) -> None:
    settings.SECRET_KEY = "x" * 50
    settings.DEBUG = True
    assert await answered(("10.1.2.3", 8000)) == 503


async def test_a_safe_configuration_answers_anywhere(settings: Settings) -> None:
    settings.SECRET_KEY = "x" * 50
    assert await answered(("10.1.2.3", 8000)) == 200


@pytest.mark.parametrize(("caller", "status"), [("10.1.2.3", "503"), ("127.0.0.1", "200"), ("", "503")])
async def test_under_wsgi_nobody_from_elsewhere_is_answered_with_the_default_secret(
    settings: Settings, caller: str, status: str
) -> None:
    settings.SECRET_KEY = settings.DEFAULT_SECRET_KEY
    told: list[str] = []

    def application(_environ: Any, start_response: Any) -> list[bytes]:
        start_response("200 OK", [])
        return []

    wsgi_guard(application)({"REMOTE_ADDR": caller}, lambda line, _headers: told.append(line.split()[0]))
    assert told == [status]
    settings.SECRET_KEY = "x" * 50
    wsgi_guard(application)({"REMOTE_ADDR": caller}, lambda line, _headers: told.append(line.split()[0]))
    assert told == [status, "200"]
