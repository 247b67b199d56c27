"""Ranges that were never written: a file system keeps no blocks for them, and they read as zeros."""

from __future__ import annotations

from muster_agent.formats.base import Finding
from muster_agent.formats.codes import finding
from muster_agent.formats.tree import Opened


def hole_findings(opened: Opened, name: str) -> list[Finding]:
    """A `sparse_hole` for the first such range of the file `name`, where the storage knows of one."""
    hole = opened.hole()
    if hole is None:
        return []
    begin, end = hole
    detail = f"bytes {begin} to {end} of {name} were never written and read as zeros"
    return [finding("sparse_hole", path=name, detail=detail, begin_byte=begin, end_byte=end)]
