"""Bearer tokens for the REST API."""

from __future__ import annotations

from datetime import timedelta

from django.utils import timezone
from rest_framework.authentication import BaseAuthentication
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.request import Request

from apps.accounts import secrets
from apps.accounts.models import ApiToken, User

# A resume-point call per launch would otherwise write a row per call.
LAST_USED_RESOLUTION = timedelta(minutes=1)


class TokenAuthentication(BaseAuthentication):
    """`Authorization: Bearer mst_...`. Not ours: None; ours but bad: 401 that says what to do."""

    def authenticate(self, request: Request) -> tuple[User, ApiToken] | None:
        scheme, _, secret = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer":
            return None
        return self._owner(secret.strip())

    def authenticate_header(self, request: Request) -> str:
        return 'Bearer realm="muster"'

    def _owner(self, secret: str) -> tuple[User, ApiToken]:
        token = ApiToken.objects.select_related("user").filter(secret_sha256=secrets.digest(secret)).first()
        if token is None or not token.user.is_active:
            raise AuthenticationFailed("This token is not known here; create one under Access.")
        if token.revoked_at is not None:
            raise AuthenticationFailed("This token was revoked; create another.")
        now = timezone.now()
        if token.expires_at <= now:
            raise AuthenticationFailed("This token has expired; create another.")
        if token.last_used_at is None or now - token.last_used_at > LAST_USED_RESOLUTION:
            ApiToken.objects.filter(pk=token.pk).update(last_used_at=now)
        return token.user, token
