"""All rows of a list that match, as a file: read in keyset pages and sent as they come, however many there are."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from datetime import datetime
from decimal import Decimal
from typing import Any

from django.http import HttpRequest, QueryDict, StreamingHttpResponse
from django.utils import timezone
from muster_agent.protocol.spreadsheets import inert_cell

from apps.core.pagination import keyset_page
from apps.core.streaming import streamed
from apps.dashboard.lists.spec import ListSpec, Rows

CHUNK = 500
FORMATS = {"csv": "text/csv; charset=utf-8", "json": "application/json"}


def export(spec: ListSpec, request: HttpRequest, rows: Rows, kind: str) -> StreamingHttpResponse:
    """`rows` are what matches; `kind` is one of FORMATS."""
    chunks = (csv_of if kind == "csv" else json_of)(spec, pages_of(spec, rows, request.GET))
    name = f"{spec.name}-{timezone.now():%Y%m%dT%H%MZ}.{kind}"
    return streamed(request, chunks, name=name, content_type=FORMATS[kind])


def pages_of(spec: ListSpec, rows: Rows, query: QueryDict) -> Iterator[list[Any]]:
    """All rows in the order of the list, a bounded number at a time."""
    order, cursor = spec.sort(query).order, None
    while True:
        page = keyset_page(spec.dress(rows), order=order, limit=CHUNK, cursor=cursor, count=False)
        yield page.items
        cursor = page.next_cursor
        if cursor is None:
            return


def csv_of(spec: ListSpec, chunks: Iterator[list[Any]]) -> Iterator[str]:
    """A heading, then one line for each row. No cell begins as a formula: a spreadsheet would run it."""
    buffer = io.StringIO()
    writer = csv.writer(buffer)
    writer.writerow([name for name, _path in spec.columns])
    for rows in chunks:
        writer.writerows([inert_cell(value) for value in values_of(spec, row)] for row in rows)
        yield buffer.getvalue()
        buffer.seek(0)
        buffer.truncate()


def json_of(spec: ListSpec, chunks: Iterator[list[Any]]) -> Iterator[str]:
    """One JSON list of objects, a line for each."""
    names = [name for name, _path in spec.columns]
    before = "[\n"
    for rows in chunks:
        lines = []
        for row in rows:
            lines.append(before + json.dumps(dict(zip(names, values_of(spec, row), strict=True)), default=str))
            before = ",\n"
        yield "".join(lines)
    yield "\n]\n" if before == ",\n" else "[]\n"


def values_of(spec: ListSpec, row: Any) -> list[Any]:
    return [_plain(path(row) if callable(path) else _at(row, path)) for _name, path in spec.columns]


def _at(row: Any, path: str) -> Any:
    """The attribute at a dotted path; None where one on the way is missing, as an agent of a node without one is."""
    for name in path.split("."):
        row = getattr(row, name, None)
        if row is None:
            return None
    return row


def _plain(value: Any) -> Any:
    """What both formats can say: times as ISO in UTC, decimals as numbers."""
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    return float(value) if isinstance(value, Decimal) else value
