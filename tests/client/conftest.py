"""The client and the command line against the real application, called in this process instead of through a socket."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import factories
import pytest
from django.test import Client
from muster_agent.rest.transport import Answer, Transport

from apps.accounts.models import Role


@pytest.fixture
def application(db: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[list[tuple[str, str]]]:
    """Every request of the client goes to Django; what was asked, as (method, path)."""
    asked: list[tuple[str, str]] = []
    django = Client()

    def once(_self: Transport, method: str, url: str, body: bytes | None, headers: Mapping[str, str]) -> Any:
        parts = urlsplit(url)
        asked.append((method, parts.path))
        kind = headers.get("Content-Type", "application/json")
        path = f"{parts.path}?{parts.query}" if parts.query else parts.path
        response = django.generic(method, path, body or b"", content_type=kind, headers=dict(headers))
        content = b"".join(response) if response.streaming else response.content
        return Answer(response.status_code, response.headers, content), ""

    monkeypatch.setattr(Transport, "_once", once)
    monkeypatch.setenv("MUSTER_CONFIG", str(tmp_path / "config.json"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("MUSTER_SERVER", "http://127.0.0.1:8000")
    for name in ("MUSTER_TOKEN", "MUSTER_TOKEN_FILE", "MUSTER_CONTEXT"):
        monkeypatch.delenv(name, raising=False)
    yield asked


@pytest.fixture
def operator(application: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch) -> str:
    """The environment of somebody with the role operator."""
    secret = factories.token(factories.user("olga", Role.OPERATOR))
    monkeypatch.setenv("MUSTER_TOKEN", secret)
    return secret


@pytest.fixture
def admin(application: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch) -> str:
    secret = factories.token(factories.user("ada", Role.ADMIN))
    monkeypatch.setenv("MUSTER_TOKEN", secret)
    return secret
