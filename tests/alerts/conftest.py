"""Receivers that are really there, and channels that lead to them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from alerts.receivers import MailServer, Receiver, Says
from muster_agent.storage.addresses import networks_of

from apps.alerts import channels
from apps.alerts.models import Channel

MakeReceiver = Callable[..., Receiver]
MakeChannel = Callable[..., Channel]


@pytest.fixture
def receiver(settings: Any) -> Iterator[MakeReceiver]:
    """Makes HTTP servers on loopback, which this installation then may reach."""
    settings.ALLOWED_NETWORKS = networks_of("127.0.0.0/8")
    made: list[Receiver] = []

    def make(*says: Says) -> Receiver:
        made.append(Receiver(*says))
        return made[-1]

    yield make
    for one in made:
        one.stop()


@pytest.fixture
def mail_server(settings: Any) -> Iterator[MailServer]:
    server = MailServer()
    settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
    settings.EMAIL_HOST, settings.EMAIL_PORT = "127.0.0.1", server.port
    settings.DEFAULT_FROM_EMAIL = "muster@example.org"
    yield server
    server.stop()


@pytest.fixture
def channel() -> MakeChannel:
    def make(kind: str = "webhook", target: str = "", **details: Any) -> Channel:
        values = {"name": f"{kind} {Channel.objects.count()}", "actor": "ada", "min_severity": "info"}
        return channels.create_channel(kind=kind, target=target, **{**values, **details})[0]

    return make
