"""Request bodies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import IO, Any

from rest_framework.exceptions import ParseError
from rest_framework.parsers import BaseParser, JSONParser
from rest_framework.utils import json


class BoundedJSONParser(JSONParser):
    """JSON; a body nested beyond all use is the caller's mistake, not the server's."""

    def parse(
        self, stream: IO[Any], media_type: str | None = None, parser_context: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        try:
            value = super().parse(stream, media_type, parser_context)
            _refuse_unrepeatable(value)
        except RecursionError as error:
            raise ParseError("The body is nested too deeply.") from error
        return value


class JSONLinesParser(BaseParser):
    """One JSON value a line (`application/x-ndjson`), as `{"items": [...]}`; a line that is none is named."""

    media_type = "application/x-ndjson"

    def parse(
        self, stream: IO[Any], media_type: str | None = None, parser_context: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        items = []
        for number, line in enumerate(stream.read().split(b"\n"), start=1):
            if line.strip():
                items.append(_value_of(line, number))
        return {"items": items}


def _value_of(line: bytes, number: int) -> Any:
    try:
        value = json.loads(line.decode(), strict=True)
        _refuse_unrepeatable(value)
    except (ValueError, RecursionError) as error:
        raise ParseError(f"Line {number} is no JSON value: {error}") from error
    return value


def _refuse_unrepeatable(value: Any) -> None:
    """JSON can spell half a character (`"\\ud800"`) and a number beyond every range (`1e999`): no database stores them
    and no answer could repeat them."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise ParseError("A text in the body holds half of a surrogate pair, which is no character.") from error
    except ValueError as error:
        raise ParseError("A number in the body is beyond what a computer holds.") from error
