"""Standard Webhooks 1.0: signing keys, signatures, and when a message is tried again. Pure."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
from collections.abc import Sequence

PREFIX = "whsec_"
_KEY_BYTES = range(24, 65)
MINUTE, HOUR = 60.0, 3600.0
SCHEDULE_SECONDS = (0.0, 5.0, 5 * MINUTE, 30 * MINUTE, *(hours * HOUR for hours in (2, 5, 10, 14, 20, 24)))
"""Before the first try, before the second, and so on: ten tries within a little over three days."""
LONGEST_WAIT_SECONDS = 24 * HOUR
JITTER_RATIO = 0.1


def new_signing_key() -> str:
    """`whsec_` and 32 random bytes in base 64."""
    return PREFIX + base64.b64encode(secrets.token_bytes(32)).decode()


def key_of(secret: str) -> bytes:
    """The bytes behind `whsec_`. Raises ValueError for anything that is not 24 to 64 bytes of base 64."""
    if not secret.startswith(PREFIX):
        raise ValueError(f"A signing key begins with {PREFIX}.")
    try:
        key = base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    except binascii.Error as error:
        raise ValueError(f"Behind {PREFIX} stands base 64.") from error
    if len(key) not in _KEY_BYTES:
        raise ValueError(f"A signing key has {_KEY_BYTES[0]} to {_KEY_BYTES[-1]} bytes.")
    return key


def headers(*, message_id: str, timestamp: int, body: bytes, signing_keys: Sequence[str]) -> dict[str, str]:
    """With one signature for each key, so that a receiver may know either while a key is replaced."""
    signed = b".".join([message_id.encode(), str(timestamp).encode(), body])
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": " ".join(_signature(key_of(secret), signed) for secret in signing_keys),
    }


def _signature(key: bytes, signed: bytes) -> str:
    return "v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()


def wait_seconds(tries: int, *, jitter: float, retry_after_seconds: float | None = None) -> float | None:
    """How long after the `tries`th try (from 1 on) the next one comes; None when that was the last.

    `jitter` (0..1) spreads those that failed together over a tenth of the wait. A receiver may ask for a longer wait,
    up to a day, never for a shorter one.
    """
    if tries >= len(SCHEDULE_SECONDS):
        return None
    waits = SCHEDULE_SECONDS[tries] * (1 + JITTER_RATIO * jitter)
    return max(waits, min(retry_after_seconds or 0.0, LONGEST_WAIT_SECONDS))
