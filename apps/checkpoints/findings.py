"""Findings as the agents send them, made fit for rows: bounded, and free of what a database refuses."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

import msgspec
from muster_agent.formats.base import Finding as FoundFinding
from muster_agent.formats.base import Severity

from apps.checkpoints.models import Finding

MAX_PER_PLACEMENT = 500
"""A folder of 16,384 broken shards says the same thing often enough with these."""
SEVERITIES = (Severity.DAMAGE, Severity.WARNING, Severity.NOTE)
"""The worst first."""
_MAX_DETAIL_CHARACTERS = 4000
_MAX_INTEGER = 2**63 - 1


def clean(text: str, limit: int) -> str:
    """`text` without NUL and lone surrogates (no database stores them), at most `limit` characters."""
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode("utf-8")[:limit]


def storable(number: int | None) -> int | None:
    """None for what no 64-bit column holds: a hostile header can name any offset."""
    return number if number is not None and -_MAX_INTEGER <= number <= _MAX_INTEGER else None


def finding_row(
    placement_id: str, found: FoundFinding, *, source_kind: str, source_id: str, at: datetime, fingerprint: str = ""
) -> Finding:
    """An unsaved row."""
    return Finding(
        placement_id=placement_id,
        code=clean(found.code, 32),
        severity=found.severity.value,
        path=clean(found.path, 2048),
        detail=clean(found.detail, _MAX_DETAIL_CHARACTERS),
        cure=clean(found.cure, _MAX_DETAIL_CHARACTERS),
        begin_byte=storable(found.begin_byte),
        end_byte=storable(found.end_byte),
        tensor=clean(found.tensor or "", 512),
        source_kind=source_kind,
        source_id=source_id,
        fingerprint=fingerprint,
        found_at=at,
    )


def as_json(found: FoundFinding) -> dict[str, Any]:
    """For a JSON column: the finding's fields with clean texts."""
    fields: dict[str, Any] = msgspec.to_builtins(found)
    return {
        name: clean(value, _MAX_DETAIL_CHARACTERS) if isinstance(value, str) else value
        for name, value in fields.items()
    }


def bounded(findings: Iterable[FoundFinding], path: str) -> list[FoundFinding]:
    """Damage first, at most `MAX_PER_PLACEMENT`; what was left out is counted in a last one."""
    ordered = sorted(findings, key=lambda found: SEVERITIES.index(found.severity))
    if len(ordered) <= MAX_PER_PLACEMENT:
        return ordered
    kept, left = ordered[: MAX_PER_PLACEMENT - 1], ordered[MAX_PER_PLACEMENT - 1 :]
    detail = f"{len(left)} more findings were left out; `muster inventory` on the node lists them all"
    return [*kept, msgspec.structs.replace(left[0], path=path, detail=detail, begin_byte=None, end_byte=None)]
