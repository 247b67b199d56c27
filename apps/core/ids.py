"""Public ids: a prefix that names the kind, and a UUIDv7 in Crockford's base 32, so that ids sort by creation time."""

from __future__ import annotations

import os
import time

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
ID_LENGTH = 40


def new_id(prefix: str) -> str:
    """For example `drl_01k9w3...`: 48 bits of milliseconds, then 74 random bits, in 26 characters after the prefix."""
    milliseconds = time.time_ns() // 1_000_000
    random_bits = int.from_bytes(os.urandom(10), "big")
    value = (milliseconds & (1 << 48) - 1) << 80 | random_bits
    value = value & ~(0xF << 76) | 0x7 << 76
    value = value & ~(0x3 << 62) | 0x2 << 62
    return f"{prefix}_" + "".join(_ALPHABET[value >> shift & 31] for shift in range(125, -1, -5))
