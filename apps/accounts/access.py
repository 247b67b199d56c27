"""Who may do what where. One question: `role_on(user, cluster)`; everything else follows from the answer."""

from __future__ import annotations

from typing import Any

from apps.accounts.models import RANK, ApiToken, Role, User
from apps.core.errors import Forbidden, NotSignedIn


def global_role(user: Any, token: ApiToken | None = None) -> Role:
    """The role that holds on every cluster: the user's own, cut to the token's where one was used."""
    role = Role(user.role) if isinstance(user, User) and user.is_active else Role.NONE
    return capped(role, token)


def capped(role: Role, token: ApiToken | None) -> Role:
    """`role`, but never more than the token carries."""
    if token is None:
        return role
    return min(role, Role(token.role), key=lambda candidate: RANK[candidate])


def reaches(role: Role, needed: Role) -> bool:
    return RANK[role] >= RANK[needed]


def require(role: Role, needed: Role, *, signed_in: bool = True) -> None:
    """Raise `NotSignedIn` or `Forbidden` unless `role` reaches `needed`; the sentence says which role is missing."""
    if not signed_in:
        raise NotSignedIn("Sign in, or send a token in the Authorization header.")
    if not reaches(role, needed):
        raise Forbidden(f"This needs the role {needed.value}; yours is {role.value or 'none'} here.")
