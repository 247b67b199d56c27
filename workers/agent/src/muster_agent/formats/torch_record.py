"""One record of a DCP file: a small zip that `torch.save` wrote. Where in it the tensor's bytes lie."""

from __future__ import annotations

from muster_agent.formats.tree import Opened
from muster_agent.formats.zip_directory import LOCAL_MAGIC, ZipRefused, payload_begin, read_archive

ZIP_MAGIC = LOCAL_MAGIC


def tensor_bytes(opened: Opened, offset: int, length: int, expected_bytes: int) -> tuple[int, int] | None:
    """[begin, end) in the file of the one tensor in the record at [offset, offset + length); None where the record is
    not such a zip, or does not hold exactly `expected_bytes`. Raises OSError."""
    try:
        archive = read_archive(opened, offset, offset + length)
    except ZipRefused:
        return None
    data = [member for member in archive.members if "/data/" in member.name] if archive else []
    if len(data) != 1 or data[0].size_bytes != expected_bytes or not data[0].stored:
        return None
    begin = payload_begin(opened, data[0])
    if begin is None or begin + expected_bytes > offset + length:
        return None
    return begin, begin + expected_bytes
