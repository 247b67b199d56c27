"""Signing in through an OpenID Connect provider: who somebody is there, and which role their groups give them here.

The protocol itself (discovery, PKCE, state and nonce, the signature and claims of the ID token) is authlib's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.db import IntegrityError, transaction
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from muster_agent.storage.addresses import AddressRefused

from apps.accounts.models import RANK, Identity, Role, User
from apps.accounts.services import log_activity
from apps.core.errors import Forbidden, Unavailable

EVERYBODY = "*"
TIMEOUT_SECONDS = 10
MAX_NAME_CHARACTERS = 150
PROVIDER = "oidc"


@dataclass(frozen=True)
class Person:
    """As the provider knows them. `subject` never changes and is never given to another; names may be both."""

    issuer: str
    subject: str
    name: str
    groups: tuple[str, ...]


def is_configured() -> bool:
    return bool(settings.OIDC_ISSUER and settings.OIDC_CLIENT_ID)


def redirect_to_provider(request: HttpRequest, callback: str) -> HttpResponse:
    """Raises Unavailable where the provider does not answer."""
    try:
        answer: HttpResponse = _client().authorize_redirect(request, callback)
    except _troubles() as error:
        raise Unavailable(f"The sign-in provider does not answer as it should: {_said(error)}.") from error
    return answer


def person_from_callback(request: HttpRequest) -> Person:
    """Whom the provider sent back. Raises Forbidden where the answer proves nobody, Unavailable without an answer."""
    from authlib.common.errors import AuthlibBaseError
    from joserfc.errors import JoseError

    try:
        token = _client().authorize_access_token(request)
    except (AuthlibBaseError, JoseError) as error:
        raise Forbidden(f"The provider's answer was not accepted: {_said(error)}. Sign in again.") from error
    except _troubles() as error:
        raise Unavailable(f"The sign-in provider does not answer as it should: {_said(error)}.") from error
    claims = token.get("userinfo")
    if not claims:
        raise Forbidden("The provider sent no ID token. Its client needs the scope openid.")
    return person_of(claims, groups_claim=settings.OIDC_GROUPS_CLAIM)


def person_of(claims: Mapping[str, Any], *, groups_claim: str) -> Person:
    """From the checked claims of an ID token. Pure. Raises Forbidden where it names nobody."""
    issuer, subject = str(claims.get("iss") or ""), str(claims.get("sub") or "")
    if not issuer or not subject:
        raise Forbidden("The provider's ID token names nobody (iss or sub is missing).")
    name = next((str(claims[key]) for key in ("preferred_username", "email", "name") if claims.get(key)), subject)
    told = claims.get(groups_claim) or []
    groups = (told,) if isinstance(told, str) else tuple(map(str, told)) if isinstance(told, list | tuple) else ()
    return Person(issuer, subject, name[:MAX_NAME_CHARACTERS], groups)


def role_of(groups: tuple[str, ...], roles: Mapping[str, str]) -> Role | None:
    """The highest role that one of the groups gives; `*` is everybody's. None: no group gives any. Pure."""
    given = [Role(role) for group, role in roles.items() if group == EVERYBODY or group in groups]
    return max(given, key=lambda role: RANK[role], default=None)


@transaction.atomic
def account_of(person: Person) -> User:
    """Their account, made at the first sign-in; its role is what their groups give now. Raises Forbidden."""
    role = role_of(person.groups, settings.OIDC_ROLES)
    if role is None:
        raise Forbidden(f"None of your groups gives a role here ({person.name}). Ask whoever runs Muster.")
    identity = Identity.objects.select_related("user").filter(issuer=person.issuer, subject=person.subject).first()
    user = identity.user if identity else _new_account(person, role)
    if not user.is_active:
        raise Forbidden(f"The account {user.username} is closed. Ask an admin.")
    if user.role != role:
        log_activity(
            actor=PROVIDER, action="user.update", target_kind="user", target_id=user.username,
            detail={"role": role, "was": user.role},
        )  # fmt: skip
        user.role = role
        user.save(update_fields=["role"])
    Identity.objects.filter(issuer=person.issuer, subject=person.subject).update(last_used_at=timezone.now())
    return user


def _new_account(person: Person, role: Role) -> User:
    """Never somebody else's: where the name is taken (by an account with a password, a service), theirs is longer."""
    host = urlsplit(person.issuer).hostname or "provider"
    for name in (person.name, f"{person.name}@{host}", f"{person.subject}@{host}"):
        user = User(username=name[:MAX_NAME_CHARACTERS], role=role)
        user.set_unusable_password()
        try:
            with transaction.atomic():
                user.save()
                Identity.objects.create(
                    user=user, issuer=person.issuer, subject=person.subject, created_at=timezone.now()
                )
        except IntegrityError:
            continue
        log_activity(
            actor=PROVIDER, action="user.create", target_kind="user", target_id=user.username,
            detail={"role": role, "issuer": person.issuer},
        )  # fmt: skip
        return user
    raise Forbidden(f"An account for {person.name} could not be made: its names are taken. Ask an admin.")


def _client() -> Any:
    """authlib's, new each time: what it keeps is in the session, and the provider's keys may have changed."""
    from authlib.integrations.django_client import OAuth

    from apps.accounts.oidc_transport import ProviderApp

    return OAuth().register(
        name=PROVIDER,
        client_cls=ProviderApp,
        client_id=settings.OIDC_CLIENT_ID,
        client_secret=settings.OIDC_CLIENT_SECRET or None,
        server_metadata_url=f"{settings.OIDC_ISSUER.rstrip('/')}/.well-known/openid-configuration",
        client_kwargs={
            "scope": settings.OIDC_SCOPES,
            "code_challenge_method": "S256",
            "default_timeout": TIMEOUT_SECONDS,
        },
    )


def _troubles() -> tuple[type[Exception], ...]:
    """Of the way to the provider, and of answers that are none."""
    import requests

    return requests.RequestException, ValueError, KeyError, RuntimeError


def _said(error: Exception) -> str:
    """For a person; nothing of the token or of the secret is in these messages."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, AddressRefused):
            return str(cause.strerror)
        cause = cause.__cause__ or cause.__context__
    return str(getattr(error, "description", "") or getattr(error, "error", "") or type(error).__name__)[:200]
