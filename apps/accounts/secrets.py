"""Random secrets that are stored only as SHA-256. They carry 256 random bits, so a slow password hash adds nothing."""

from __future__ import annotations

import hashlib
import secrets


def new_secret(prefix: str) -> str:
    """`<prefix>_` and 43 URL-safe characters; the prefix lets secret scanners find a leaked one."""
    return f"{prefix}_{secrets.token_urlsafe(32)}"


def digest(secret: str) -> str:
    """SHA-256 as hex: what the database keeps and looks up by."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
