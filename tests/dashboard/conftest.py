"""A seeded fleet and signed-in clients."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from dashboard.scene import Scene, build
from django.test import Client


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
