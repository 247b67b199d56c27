"""The REST API's door: who is signed in. What they may do on which cluster, `apps.fleet.access` decides."""

from __future__ import annotations

from typing import Any

from rest_framework.permissions import BasePermission
from rest_framework.request import Request


class RolePermission(BasePermission):
    """Signed in, at least. A view declares `needs` (method or action -> Role); `apps.fleet.access` checks it there."""

    message = "Sign in, or send a token in the Authorization header."

    def has_permission(self, request: Request, view: Any) -> bool:
        return bool(request.user and request.user.is_authenticated)
