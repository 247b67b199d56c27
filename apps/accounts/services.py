"""Writing accounts: users, tokens and the activity log."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils import timezone

from apps.accounts import activity, secrets
from apps.accounts.models import ActivityEntry, ApiToken, Role, User
from apps.core import logs
from apps.core.errors import Conflict, InvalidInput

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
def add_user(*, actor: str, username: str, role: str, is_service: bool = False, password: str | None = None) -> User:
    """An admin makes an account. People need a password that the validators accept; services must not have one."""
    if is_service and password is not None:
        raise InvalidInput("A service account has no password; give it a token.", pointer="/password")
    if not is_service:
        _check_password(password)
    user = create_user(username=username, password=password, role=Role(role), is_service=is_service)
    log_activity(actor=actor, action="user.create", target_kind="user", target_id=username, detail={"role": role})
    return user


def _check_password(password: str | None) -> None:
    if password is None:
        raise InvalidInput("A person needs a password; a service account needs is_service.", pointer="/password")
    try:
        validate_password(password)
    except ValidationError as error:
        raise InvalidInput(" ".join(error.messages), pointer="/password") from error


@transaction.atomic
def update_user(*, user: User, actor: str, role: str | None = None, is_active: bool | None = None) -> User:
    """Change the role, or close or reopen the account. The last admin can be neither demoted nor closed."""
    demoted = role is not None and role != Role.ADMIN or is_active is False
    if demoted and user.role == Role.ADMIN and not _another_admin(user):
        raise Conflict("This is the last active admin; make another one first.")
    changes = {name: value for name, value in {"role": role, "is_active": is_active}.items() if value is not None}
    User.objects.filter(pk=user.pk).update(**changes)
    user.refresh_from_db()
    log_activity(actor=actor, action="user.update", target_kind="user", target_id=user.username, detail=changes)
    return user


def _another_admin(user: User) -> bool:
    return User.objects.filter(role=Role.ADMIN, is_active=True).exclude(pk=user.pk).exists()


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
    *,
    actor: str,
    action: str,
    target_kind: str,
    target_id: str,
    cluster_id: str | None = None,
    detail: dict[str, Any] | None = None,
) -> None:
    """One line of the activity log, in the caller's transaction: no change without its entry. `cluster_id`: None where
    it is about no one cluster. Of a long `target_id` the first 64 characters are kept."""
    entry = ActivityEntry(
        at=timezone.now(),
        actor=actor,
        action=action,
        target_kind=target_kind,
        target_id=target_id[:64],
        cluster_id=cluster_id or "",
        request_id=logs.request_id.get(),
        detail=detail or {},
    )
    activity.append([entry])
