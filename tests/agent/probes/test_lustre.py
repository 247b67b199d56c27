"""A file's layout on Lustre. Composed by hand in the form that its public headers give; not recorded on a Lustre."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from muster_agent.probes.lustre import parse_stripe_count, read_stripe_count

PLAIN, POOLED, COMPOSITE = 0x0BD10BD0, 0x0BD30BD0, 0x0BD60BD0


def plain(count: int, magic: int = PLAIN) -> bytes:
    return struct.pack("<II16sIHH", magic, 1, bytes(16), 1 << 20, count, 0)


def composite(*counts: int) -> bytes:
    blobs = [plain(count) for count in counts]
    at = 32 + 48 * len(blobs)
    header = struct.pack("<IIIHHH", COMPOSITE, 0, 1, 0, len(blobs), 0).ljust(32, b"\0")
    entries = b""
    for number, blob in enumerate(blobs):
        entry = struct.pack("<IIQQII", number, 0, 0, 0, at, len(blob))
        entries += entry.ljust(48, b"\0")
        at += len(blob)
    return header + entries + b"".join(blobs)


@pytest.mark.parametrize(
    ("layout", "count"),
    [
        (plain(4), 4),
        (plain(8, POOLED), 8),
        (composite(1, 4, 16), 16),
        (plain(0xFFFF), None),
        (plain(0), None),
        (b"", None),
        (plain(4)[:20], None),
        (struct.pack("<I", 0x12345678) + bytes(60), None),
    ],
)
def test_the_stripe_count_is_read_from_plain_pooled_and_composite_layouts(layout: bytes, count: int | None) -> None:
    assert parse_stripe_count(layout) == count


@given(st.binary(max_size=400), st.sampled_from([PLAIN, POOLED, COMPOSITE]))
def test_any_bytes_give_a_count_or_none(noise: bytes, magic: int) -> None:
    found = parse_stripe_count(struct.pack("<I", magic) + noise)
    assert found is None or 0 < found < 0xFFFF


def test_a_file_elsewhere_has_none(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x")
    assert read_stripe_count(str(path)) is None
