"""Reading accounts."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet

from apps.accounts.access import global_role, reaches
from apps.accounts.models import ActivityEntry, ApiToken, Role, User


def tokens_visible_to(user: Any) -> QuerySet[ApiToken]:
    """One's own tokens; an admin sees everybody's."""
    tokens = ApiToken.objects.select_related("user")
    return tokens if reaches(global_role(user), Role.ADMIN) else tokens.filter(user=user)


def users() -> QuerySet[User]:
    return User.objects.order_by("username")


def activity() -> QuerySet[ActivityEntry]:
    return ActivityEntry.objects.all()
