"""The chain of the activity log: what of an entry is hashed, and whether a row of entries still holds. Pure.

Each entry's digest is the SHA-256 of its canonical JSON, in which the digest of the entry before stands as `previous`:
to change, remove or slip in one of them is to write all that follow anew.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

GENESIS = "0" * 64
"""What stands before the first entry."""
FIELDS = (
    "id", "at", "actor", "action", "target_kind", "target_id", "cluster_id", "request_id", "detail", "previous",
)  # fmt: skip
"""What is hashed; the names stand in the JSON in the order of the alphabet."""


@dataclass(frozen=True)
class Checked:
    """Of entries in their order: how many hold, up to which one, and the first that does not."""

    entry_count: int = 0
    up_to_id: int = 0
    up_to_digest: str = GENESIS
    broken_id: int | None = None
    problem: str = ""


def plain(detail: Mapping[str, Any]) -> Any:
    """The detail as every database gives it back: names are texts, and a whole number has no fraction. Raises
    ValueError for what is no number of JSON, TypeError for what is no JSON."""
    return json.loads(json.dumps(detail, allow_nan=False), parse_float=_number)


def _number(text: str) -> int | float:
    number = float(text)
    return int(number) if number.is_integer() else number


def canonical(entry: Mapping[str, Any]) -> bytes:
    """The bytes that are hashed: FIELDS as JSON in UTF-8, sorted by name, without spaces, times in UTC to the
    microsecond."""
    values = {name: entry[name] for name in FIELDS}
    values |= {"at": _time(entry["at"]), "detail": plain(entry["detail"])}
    return json.dumps(values, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def _time(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def digest_of(entry: Mapping[str, Any]) -> str:
    return hashlib.sha256(canonical(entry)).hexdigest()


def line_of(entry: Mapping[str, Any]) -> bytes:
    """One line of the export: the hashed JSON with the `digest` as its last member, so that whoever takes that off
    again has the very bytes."""
    return canonical(entry)[:-1] + f',"digest":"{entry["digest"]}"}}\n'.encode()


def check(entries: Iterable[Mapping[str, Any]], last_id: int, last_digest: str) -> Checked:
    """Whether all entries from the first to `last_id`, which are given in their order, are as they were written."""
    held = Checked()
    for held in _walk(entries):
        if held.broken_id is not None:
            return held
    if (held.up_to_id, held.up_to_digest) != (last_id, last_digest):
        missing = f"Entries behind {held.up_to_id} are missing: entry {last_id} was written last."
        return Checked(held.entry_count, held.up_to_id, held.up_to_digest, held.up_to_id + 1, missing)
    return held


def _walk(entries: Iterable[Mapping[str, Any]]) -> Iterator[Checked]:
    """After each entry how far the chain holds; ends at the first that breaks it."""
    count, last_id, digest = 0, 0, GENESIS
    for entry in entries:
        if problem := _problem(entry, digest):
            yield Checked(count, last_id, digest, entry["id"], f"Entry {entry['id']} {problem}")
            return
        count, last_id, digest = count + 1, entry["id"], entry["digest"]
        yield Checked(count, last_id, digest)


def _problem(entry: Mapping[str, Any], before: str) -> str:
    if entry["previous"] != before:
        return "does not follow the one before it: an entry between them was removed, or one was slipped in."
    return "" if entry["digest"] == digest_of(entry) else "is not what was written: its digest is another one."
