"""Writing accounts: users, tokens and the activity log."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.db import transaction
from django.utils import timezone

from apps.accounts import secrets
from apps.accounts.models import ActivityEntry, ApiToken, Role, User
from apps.core.errors import InvalidInput

MAX_TOKEN_DAYS = 365


@transaction.atomic
def create_user(*, username: str, password: str | None, role: Role, is_service: bool = False) -> User:
    """A new account. A service account has no password and signs in by token only."""
    if User.objects.filter(username=username).exists():
        raise InvalidInput(f"There is already a user {username!r}.", pointer="/username")
    user = User(username=username, role=role, is_service=is_service)
    user.set_password(None if is_service else password)
    user.save()
    return user


@transaction.atomic
def create_token(*, user: User, name: str, role: Role, days: int, actor: str) -> tuple[ApiToken, str]:
    """A token and its secret; the secret is shown once, here. `days` is 1 to 365."""
    if not 1 <= days <= MAX_TOKEN_DAYS:
        raise InvalidInput(f"A token lives 1 to {MAX_TOKEN_DAYS} days.", pointer="/days")
    secret = secrets.new_secret("mst")
    now = timezone.now()
    token = ApiToken.objects.create(
        user=user,
        name=name,
        role=role,
        secret_sha256=secrets.digest(secret),
        created_at=now,
        expires_at=now + timedelta(days=days),
    )
    log_activity(actor=actor, action="token.create", target_kind="token", target_id=token.pk, detail={"name": name})
    return token, secret


@transaction.atomic
def revoke_token(*, token: ApiToken, actor: str) -> None:
    """From now on the token is refused. Revoking twice changes nothing."""
    revoked = ApiToken.objects.filter(pk=token.pk, revoked_at=None).update(revoked_at=timezone.now())
    if revoked:
        log_activity(actor=actor, action="token.revoke", target_kind="token", target_id=token.pk)


def log_activity(
    *, actor: str, action: str, target_kind: str, target_id: str, detail: dict[str, Any] | None = None
) -> None:
    """One line of the activity log, in the caller's transaction: no change without its entry."""
    ActivityEntry.objects.create(
        at=timezone.now(),
        actor=actor,
        action=action,
        target_kind=target_kind,
        target_id=target_id,
        detail=detail or {},
    )
