"""Secrets that Muster must be able to use again, sealed for the database: a copy of it alone gives none away.

The key comes from `MUSTER_SECRET_KEY`. After that was changed, `MUSTER_SECRET_KEY_FALLBACKS` still opens what the old
one sealed. What only has to be recognised is stored as a digest instead (`accounts.secrets`).
"""

from __future__ import annotations

import base64
import hashlib
import hmac

import msgspec
from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from django.conf import settings

_PURPOSE = b"muster: sealed secrets, 1"


class SealBroken(ValueError):
    """It was sealed with another key, or is no seal at all."""


def seal(texts: list[str]) -> str:
    return _box().encrypt(msgspec.json.encode(texts)).decode()


def unseal(sealed: str) -> list[str]:
    """Raises SealBroken."""
    try:
        return msgspec.json.decode(_box().decrypt(sealed.encode()), type=list[str])
    except (InvalidToken, msgspec.DecodeError) as error:
        told = "A stored secret cannot be opened with MUSTER_SECRET_KEY; set it again, or name the old key in "
        raise SealBroken(told + "MUSTER_SECRET_KEY_FALLBACKS.") from error


def _box() -> MultiFernet:
    keys = [settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS]
    return MultiFernet([Fernet(_derived(key)) for key in keys])


def _derived(key: str) -> bytes:
    return base64.urlsafe_b64encode(hmac.new(key.encode(), _PURPOSE, hashlib.sha256).digest())
