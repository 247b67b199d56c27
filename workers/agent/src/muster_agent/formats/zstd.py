"""Decompressing zstd under a bound: what a few bytes may grow into is decided by the caller, never by the bytes."""

from __future__ import annotations

import zstandard

ZSTD_MAGIC = bytes.fromhex("28b52ffd")
_MAX_WINDOW_BYTES = 64 * 1024 * 1024


class ZstdRefused(Exception):
    """`reason` says why there is no result."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def decompress(data: bytes, limit_bytes: int) -> bytes:
    """What `data`, one zstd frame, decompresses to. Raises ZstdRefused for what is no zstd, is cut or followed by other
    bytes, or grows beyond `limit_bytes`, which is noticed before more than that is allocated."""
    try:
        said = zstandard.get_frame_parameters(data)
        if said.window_size > _MAX_WINDOW_BYTES or limit_bytes < said.content_size < zstandard.CONTENTSIZE_UNKNOWN:
            raise ZstdRefused(f"it decompresses to more than {limit_bytes} bytes")
        reader = zstandard.ZstdDecompressor(max_window_size=_MAX_WINDOW_BYTES)
        return reader.decompress(data, max_output_size=limit_bytes, allow_extra_data=False)
    except (zstandard.ZstdError, MemoryError) as error:
        raise ZstdRefused(f"it does not decompress: {error}") from None
