"""A seeded fleet and signed-in clients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from dashboard.scene import Scene, build
from django.test import Client


@pytest.fixture(autouse=True)
def fast_passwords(settings: Any) -> None:
    """Five accounts a test would otherwise cost seconds of hashing."""
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]


@pytest.fixture
def scene(db: None) -> Scene:
    return build()


@pytest.fixture
def signed_in(scene: Scene) -> Callable[[str], Client]:
    """A client for one of the scene's people: admin, operator, viewer, stranger, nobody."""

    def sign_in(who: str) -> Client:
        client = Client()
        client.force_login(scene.users[who])
        return client

    return sign_in
