"""Calling the REST API as somebody."""

from __future__ import annotations

import json
from typing import Any

import factories
from django.test import Client

from apps.accounts.models import Role, User
from apps.fleet.models import Cluster, ClusterGrant


class Caller:
    """One account's token."""

    def __init__(self, user: User) -> None:
        self.user = user
        self._headers = {"Authorization": f"Bearer {factories.token(user, Role.ADMIN)}", "If-Match": "*"}
        self._client = Client()

    def get(self, path: str, **query: Any) -> Any:
        return self._client.get(f"/api/v1/{path}", query, headers=self._headers)

    def post(self, path: str, body: Any = None) -> Any:
        return self._send("post", path, body)

    def patch(self, path: str, body: Any) -> Any:
        return self._send("patch", path, body)

    def _send(self, method: str, path: str, body: Any) -> Any:
        send = getattr(self._client, method)
        return send(f"/api/v1/{path}", json.dumps(body or {}), content_type="application/json", headers=self._headers)


def caller(role: Role, name: str | None = None) -> Caller:
    """Somebody with this role everywhere."""
    return Caller(factories.user(name or f"{role or 'none'}-user", role))


def granted(cluster: Cluster, role: Role, name: str = "guest") -> Caller:
    """Somebody with a role on this one cluster only."""
    user = factories.user(name, Role.NONE)
    ClusterGrant.objects.create(user=user, cluster=cluster, role=role)
    return Caller(user)
