"""How rows are printed: table, wide, json, yaml, name or csv."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple, cast

import click

from muster_agent.cli.output import human_bytes, human_rate, one_line
from muster_agent.protocol.spreadsheets import inert_cell

FORMATS = ("table", "wide", "json", "yaml", "name", "csv")
Show = Callable[[Any], str]
Row = dict[str, Any]


def row_of(answer: Mapping[str, object]) -> Row:
    """A typed answer as a plain row, whose fields are looked up by name."""
    return cast(Row, answer)


class Column(NamedTuple):
    """A title, the field that it shows, and how. `wide` ones are in `-o wide` only."""

    title: str
    field: str
    show: Show
    wide: bool = False


def output_option(*formats: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    chosen = formats or FORMATS
    return click.option("-o", "--output", type=click.Choice(chosen), default=chosen[0], show_default=True)


def text_of(rows: Sequence[dict[str, Any]], columns: Sequence[Column], shape: str, *, headers: bool = True) -> str:
    """All rows as one text without a last line end."""
    if shape == "json":
        return json.dumps(rows, indent=2)
    if shape == "yaml":
        return yaml_of(rows)
    if shape == "name":
        return "\n".join(one_line(str(row.get("id") or row.get("run") or "")) for row in rows)
    if shape == "csv":
        return _csv(rows, columns, headers)
    return _table(rows, [one for one in columns if shape == "wide" or not one.wide], headers)


def _table(rows: Sequence[dict[str, Any]], columns: Sequence[Column], headers: bool) -> str:
    lines = [[one.title for one in columns]] if headers else []
    lines += [[one_line(one.show(value_at(row, one.field))) for one in columns] for row in rows]
    widths = [max((len(line[place]) for line in lines), default=0) for place in range(len(columns))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def _csv(rows: Sequence[dict[str, Any]], columns: Sequence[Column], headers: bool) -> str:
    """The plain values, so that a spreadsheet can add them up; a text that it would take for a formula is quoted."""
    target = io.StringIO()
    writer = csv.writer(target, lineterminator="\n")
    if headers:
        writer.writerow([one.field.replace(".", "_") for one in columns])
    for row in rows:
        writer.writerow([inert_cell(value_at(row, one.field)) for one in columns])
    return target.getvalue().rstrip("\n")


def value_at(row: Any, path: str) -> Any:
    """`row["a"]["b"]` for `a.b`; None where there is none."""
    for word in path.split("."):
        row = row.get(word) if isinstance(row, dict) else None
    return row


# -- cells -------------------------------------------------------------------------------------------------------------
def plain(value: Any) -> str:
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def size(value: Any) -> str:
    return "-" if value is None else human_bytes(int(value))


def rate(value: Any) -> str:
    return "-" if value is None else human_rate(float(value))


def seconds(value: Any) -> str:
    """`45.2 s`, `14 m 10 s`, `3 h 5 m`, `2 d 4 h`."""
    if value is None:
        return "-"
    total = float(value)
    if total < 60:
        return f"{total:.1f} s"
    for limit, one, other, names in (
        (3600, 60, 1, "m s"),
        (86_400, 3600, 60, "h m"),
        (float("inf"), 86_400, 3600, "d h"),
    ):
        if total < limit:
            big, small = names.split()
            return f"{int(total // one)} {big} {int(total % one // other)} {small}"
    raise AssertionError


def age(value: Any) -> str:
    """How long ago a time was, or how far ahead it is."""
    if not value:
        return "-"
    try:
        passed = (datetime.now(UTC) - datetime.fromisoformat(str(value))).total_seconds()
    except (ValueError, TypeError):
        return str(value)
    return f"in {seconds(-passed)}" if passed < 0 else f"{seconds(passed)} ago"


# -- YAML --------------------------------------------------------------------------------------------------------------
_BARE = re.compile(r"[A-Za-z_/][A-Za-z0-9_./ -]*[A-Za-z0-9_/]|[A-Za-z_]")
_WORDS = {"null", "true", "false", "yes", "no", "on", "off", "y", "n", "~"}


def yaml_of(value: Any, indent: int = 0) -> str:
    """Block style; every text that is more than plain words is in JSON's quotes, which YAML reads alike."""
    pad = "  " * indent
    if isinstance(value, dict) and value:
        return "\n".join(_yaml_pair(pad, _scalar(str(key)), one, indent) for key, one in value.items())
    if isinstance(value, list) and value:
        return "\n".join(f"{pad}- {yaml_of(one, indent + 1).lstrip()}" for one in value)
    return pad + _scalar(value)


def _yaml_pair(pad: str, key: str, value: Any, indent: int) -> str:
    if isinstance(value, dict | list) and value:
        return f"{pad}{key}:\n{yaml_of(value, indent + 1)}"
    return f"{pad}{key}: {_scalar(value)}"


def _scalar(value: Any) -> str:
    if isinstance(value, str) and _BARE.fullmatch(value) and value.lower() not in _WORDS:
        return value
    return json.dumps(value)


def lines_of(value: dict[str, Any], indent: int = 0) -> Iterable[str]:
    """`name: value` lines of one object, nested ones indented; what is not known says so."""
    pad = "  " * indent
    for name, one in value.items():
        if isinstance(one, dict) and one:
            yield f"{pad}{one_line(name)}:"
            yield from lines_of(one, indent + 1)
        elif isinstance(one, list) and one and isinstance(one[0], dict):
            yield f"{pad}{one_line(name)}:"
            for item in one:
                first, *rest = lines_of(item, indent + 2)
                yield f"{pad}  - {first.lstrip()}"
                yield from rest
        else:
            yield f"{pad}{one_line(name)}: {one_line(_detail(name, one))}"


def _detail(name: str, value: Any) -> str:
    if isinstance(value, int | float) and not isinstance(value, bool):
        if name.endswith("_bytes") or name == "bytes":
            return f"{size(value)} ({value})" if value >= 1000 else str(value)
        if name.endswith("bytes_per_second"):
            return rate(value)
        if name.endswith("seconds"):
            return seconds(value)
    if name.endswith("_at") and isinstance(value, str):
        return f"{value} ({age(value)})"
    return plain(value)
