"""Ranks that saved to a disk of their own node: on each node only its own part of the checkpoint lies."""

from __future__ import annotations

from collections.abc import Collection

CURE = (
    "If the job saves to a disk of each node, gather the files of all nodes in one folder before resuming, or save to "
    "storage that all nodes share; else resume from an older complete step."
)


def looks_node_local(here: Collection[int], lost: Collection[int]) -> bool:
    """Whether ranks are missing as if they had saved on other nodes: whole ranks, and at least as many as are here."""
    return bool(here) and len(lost) >= len(here) and set(here).isdisjoint(lost)


def said(here: Collection[int]) -> str:
    """The words that tell which ranks are here, to be put behind a finding's detail."""
    return f"; only ranks {min(here)} to {max(here)} are here: the folder may lie on one node's own disk"
