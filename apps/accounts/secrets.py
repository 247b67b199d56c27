"""Secrets that are stored only as SHA-256. They carry 256 random bits, so a slow password hash adds nothing."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets


def new_secret(prefix: str) -> str:
    """`<prefix>_` and 43 URL-safe characters; the prefix lets secret scanners find a leaked one."""
    return f"{prefix}_{secrets.token_urlsafe(32)}"


def derived_secret(prefix: str, *, key: str, message: str) -> str:
    """A secret like those of `new_secret`, the same for the same `key` and `message`; as hard to guess as the two."""
    mac = hmac.digest(key.encode("utf-8", "surrogatepass"), message.encode("utf-8", "surrogatepass"), "sha256")
    return f"{prefix}_{base64.urlsafe_b64encode(mac).decode().rstrip('=')}"


def digest(secret: str) -> str:
    """SHA-256 as hex: what the database keeps and looks up by."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
