from __future__ import annotations

import re
from pathlib import Path

import pytest
from muster_agent.formats.base import Severity
from muster_agent.formats.codes import CODES, finding

DOC = Path(__file__).parents[3] / "docs" / "findings.md"
AGREED = [
    "shard_missing",
    "shard_empty",
    "shard_truncated",
    "shard_oversized",
    "shard_orphaned",
    "digest_mismatch",
    "metadata_missing",
    "metadata_unreadable",
    "metadata_unsafe",
    "path_unsafe",
    "ranges_overlap",
    "ranges_gap",
    "size_total_mismatch",
    "world_size_mismatch",
    "step_mismatch",
    "pointer_missing",
    "pointer_stale",
    "pointer_dangling",
    "pointer_unreadable",
    "uncommitted",
    "in_progress",
    "temporary_left",
    "optimizer_missing",
    "rng_missing",
    "dataloader_missing",
    "state_shrank",
    "duplicate_step",
    "second_lineage",
    "stale_save",
    "link_broken",
    "link_escapes_root",
    "permission_denied",
    "archived",
    "multipart_incomplete",
    "listing_failed",
    "format_unknown",
    "sparse_hole",
    "monolithic",
    "rank_skew",
    "shared_shard",
    "stripe_narrow",
]


def documented() -> dict[str, tuple[str, str, str]]:
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \| (.+?) \| (.+?) \|$", DOC.read_text(), re.MULTILINE)
    return {code: (severity, meaning, cure) for code, severity, meaning, cure in rows}


def test_the_document_says_of_every_code_what_the_table_says() -> None:
    table = {code: (entry.severity.value, entry.meaning, entry.cure) for code, entry in CODES.items()}
    assert documented() == table


def test_every_agreed_code_is_in_the_table() -> None:
    assert set(AGREED) <= set(CODES)


def test_every_cure_names_an_action_and_ends_as_a_sentence() -> None:
    assert all(entry.cure[0].isupper() and entry.cure.endswith((".", ")")) for entry in CODES.values())


def test_a_finding_takes_severity_and_cure_from_the_table() -> None:
    made = finding("shard_missing", path="a", detail="gone")
    assert (made.severity, made.cure) == (Severity.DAMAGE, CODES["shard_missing"].cure)


def test_a_code_outside_the_table_cannot_be_made() -> None:
    with pytest.raises(KeyError):
        finding("shard_lost", path="a", detail="b")
