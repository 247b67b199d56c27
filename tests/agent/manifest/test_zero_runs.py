"""Zeros that were written out where values belong, told at sealing."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest
from muster_agent.formats.base import Finding, Severity
from muster_agent.jobs.seal import seal
from muster_agent.manifest.model import CHUNK_BYTES

VALUES = bytes(range(1, 252)) * (5 * CHUNK_BYTES // 251 + 1)


def write(folder: Path, data: bytes, name: str = "model.embed.weight") -> str:
    """A single safetensors file whose tensor begins at the file's second chunk."""
    header = json.dumps({name: {"dtype": "U8", "shape": [len(data)], "data_offsets": [0, len(data)]}}).encode()
    padded = header.ljust(CHUNK_BYTES - 8, b" ")
    path = folder / "model.safetensors"
    path.write_bytes(struct.pack("<Q", len(padded)) + padded + data)
    return str(path)


def holes(path: str) -> list[Finding]:
    """Of the sealed file; whatever else a file of weights alone is noted for is not meant here."""
    body = seal(path)
    assert body.manifest is not None
    return [found for found in body.findings if found.code == "sparse_hole"]


def test_a_tensor_whose_rest_was_written_as_zeros_is_warned_of_and_sealed(tmp_path: Path) -> None:
    (found,) = holes(write(tmp_path, VALUES[: 2 * CHUNK_BYTES] + bytes(2 * CHUNK_BYTES)))
    assert found.severity is Severity.WARNING
    assert (found.begin_byte, found.end_byte) == (3 * CHUNK_BYTES, 5 * CHUNK_BYTES)
    assert "model.embed.weight" in found.detail and "all zero" in found.detail


def test_each_run_of_zeros_is_named(tmp_path: Path) -> None:
    data = VALUES[:CHUNK_BYTES] + bytes(CHUNK_BYTES) + VALUES[:CHUNK_BYTES] + bytes(CHUNK_BYTES + 100)
    begins = [found.begin_byte for found in holes(write(tmp_path, data))]
    assert begins == [2 * CHUNK_BYTES, 4 * CHUNK_BYTES]


@pytest.mark.parametrize(
    ("data", "name"),
    [
        (bytes(4 * CHUNK_BYTES), "model.lora_B.weight"),
        (VALUES[: 2 * CHUNK_BYTES] + bytes(2 * CHUNK_BYTES), "optimizer.exp_avg.embed.weight"),
        (VALUES[: 2 * CHUNK_BYTES] + bytes(CHUNK_BYTES - 1), "model.embed.weight"),
        (VALUES[: 4 * CHUNK_BYTES], "model.embed.weight"),
    ],
    ids=["zero altogether", "moments never touched", "less than a chunk", "no zeros"],
)
def test_zeros_that_may_be_meant_are_not_warned_of(tmp_path: Path, data: bytes, name: str) -> None:
    assert holes(write(tmp_path, data, name)) == []
