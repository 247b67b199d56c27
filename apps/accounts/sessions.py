"""The beginning and the end of a browser's session, each with its entry in the activity log."""

from __future__ import annotations

from django.contrib.auth import login, logout
from django.http import HttpRequest

from apps.accounts.models import User
from apps.accounts.services import log_activity


def begin(request: HttpRequest, user: User, *, how: str, backend: str | None = None) -> None:
    """`how` is `password` or `provider`. With a new session key: one that was fixed before is worth nothing."""
    login(request, user, backend=backend)
    _log(user, "sign_in", {"how": how})


def end(request: HttpRequest) -> None:
    """Of somebody who is not signed in there is nothing to tell."""
    user = request.user
    logout(request)
    if isinstance(user, User):
        _log(user, "sign_out", {})


def _log(user: User, verb: str, detail: dict[str, str]) -> None:
    name = user.username
    log_activity(actor=name, action=f"user.{verb}", target_kind="user", target_id=name, detail=detail)
