"""Small OCDBT files made by hand, for what no real writer makes."""

from __future__ import annotations

from muster_agent.formats.crc32c import crc32c
from muster_agent.formats.ocdbt_codec import MANIFEST_MAGIC, NODE_MAGIC


def varint(value: int) -> bytes:
    out = b""
    while value >= 128:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def envelope(magic: bytes, body: bytes, compression: int = 0) -> bytes:
    """The body without compression (or said to be compressed) with a right length and CRC-32C."""
    inside = varint(0) + varint(compression) + body
    head = magic + (len(inside) + 16).to_bytes(8, "little")
    return head + inside + crc32c(head + inside).to_bytes(4, "little")


def manifest_naming(path: str, *, offset: int = 0, length: int = 100, height: int = 0) -> bytes:
    """A manifest whose one version has its root node in the file `path`."""
    name = path.encode()
    config = bytes(16) + varint(0) + varint(100) + varint(8_000_000) + bytes([4]) + varint(0)
    files = varint(1) + varint(len(name)) + varint(0) + name
    version = varint(1) + varint(1) + bytes([height]) + varint(0) + varint(offset) + varint(length)
    return envelope(MANIFEST_MAGIC, config + files + version + varint(1) * 3 + bytes(8) + varint(0))


def node(body: bytes, compression: int = 0) -> bytes:
    return envelope(NODE_MAGIC, body, compression)
