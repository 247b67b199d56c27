"""`Idempotency-Key`: a request that is sent again gets the answer of the first, and its work is done once.

The work and the answer are one transaction. Whatever ends a process in between leaves neither, and the key can be used
again once its lease is over.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.utils import timezone

from apps.core.errors import ApplicationError, Conflict, InvalidInput
from apps.core.models import IdempotentRequest

KEEP = timedelta(hours=24)
LEASE = timedelta(seconds=60)
MAX_KEY_CHARACTERS = 255
SWEPT_AT_ONCE = 200
KEPT_HEADERS = ("Content-Type", "Location", "ETag", "Link")
SECRET_FIELDS = frozenset({"secret", "token", "password", "credential", "signing_secret"})
Handler = Callable[[], HttpResponse]


class InvalidKey(ApplicationError):
    status = 400
    code = "idempotency_key_invalid"


def key_of(header: str) -> str:
    """The key of a header, with or without quotes. Raises InvalidKey."""
    key = header.strip()
    if len(key) > 1 and key[0] == key[-1] == '"':
        key = key[1:-1]
    if not 0 < len(key) <= MAX_KEY_CHARACTERS or not key.isascii() or not key.isprintable():
        raise InvalidKey(f"An Idempotency-Key has 1 to {MAX_KEY_CHARACTERS} printable ASCII characters.")
    return key


def once(request: HttpRequest, *, caller: str, key: str, handle: Handler) -> HttpResponse:
    """The answer of `handle`, or that of an earlier request with the same caller, method, path and key. Raises
    InvalidInput where the body differs, Conflict while the first still runs."""
    scope = _sha256(caller, str(request.method), request.get_full_path(), key)
    row, is_new = _claim(scope, hashlib.sha256(request.body).hexdigest())
    if not is_new:
        return _replay(row)
    try:
        with transaction.atomic():
            response = handle()
            _keep(row, response)
    except BaseException:
        release(row)
        raise
    if not 200 <= response.status_code < 300:
        release(row)
    return response


def release(row: IdempotentRequest) -> None:
    """Nothing was done under the key: it may be used again."""
    IdempotentRequest.objects.filter(pk=row.pk, status=None).delete()


def _claim(scope: str, body_sha256: str) -> tuple[IdempotentRequest, bool]:
    """The row of this scope, and whether the work is ours to do."""
    now = timezone.now()
    sweep(now)
    fresh = {"body_sha256": body_sha256, "created_at": now, "lease_expires_at": now + LEASE}
    row, is_new = IdempotentRequest.objects.get_or_create(scope_sha256=scope, defaults=fresh)
    if is_new:
        return row, True
    if row.body_sha256 != body_sha256:
        raise InvalidInput(
            "This Idempotency-Key came with another body before; use a new key for a new request.",
            code="idempotency_key_reused",
        )
    if row.status is not None:
        return row, False
    taken = IdempotentRequest.objects.filter(
        pk=row.pk, status=None, lease_expires_at=row.lease_expires_at, lease_expires_at__lt=now
    ).update(lease_expires_at=now + LEASE)
    if not taken:
        raise Conflict("The first request with this Idempotency-Key still runs; ask again.", code="idempotency_running")
    row.lease_expires_at = now + LEASE
    return row, True


def sweep(now: Any) -> None:
    """Forget what is older than a day, some at a time: each use of a key pays for it."""
    old = IdempotentRequest.objects.filter(created_at__lt=now - KEEP).values("pk")[:SWEPT_AT_ONCE]
    IdempotentRequest.objects.filter(pk__in=list(old.values_list("pk", flat=True))).delete()


def _keep(row: IdempotentRequest, response: HttpResponse) -> None:
    """In the transaction of the work. Only what was done is kept: a refusal did nothing and may be different next
    time. Raises Conflict where another process took the work over meanwhile, which undoes this one's."""
    if not 200 <= response.status_code < 300:
        transaction.set_rollback(True)
        return
    has_secret = _has_secret(getattr(response, "data", None))
    kept = IdempotentRequest.objects.filter(pk=row.pk, status=None, lease_expires_at=row.lease_expires_at).update(
        status=response.status_code,
        headers={name: response[name] for name in KEPT_HEADERS if name in response},
        body=b"" if has_secret else response.content,
        has_secret=has_secret,
    )
    if not kept:
        raise Conflict("It took too long, and was begun again; ask again.", code="idempotency_running")


def _has_secret(data: Any) -> bool:
    return isinstance(data, dict) and any(data.get(name) for name in SECRET_FIELDS)


def _replay(row: IdempotentRequest) -> HttpResponse:
    if row.has_secret:
        raise Conflict(
            "It was done by the first request with this key, whose answer alone held the secret: "
            "revoke what it made, and use a new key.",
            code="idempotency_secret",
        )
    response = HttpResponse(bytes(row.body), status=row.status)
    for name, value in row.headers.items():
        response[name] = value
    response["Idempotent-Replayed"] = "true"
    return response


def _sha256(*words: str) -> str:
    return hashlib.sha256("\0".join(words).encode("utf-8", "surrogatepass")).hexdigest()
