"""What may stand in a cell of a CSV file that a spreadsheet will open."""

from __future__ import annotations

import json
from typing import Any

_FORMULA = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20")
"""Also in their wide forms, which some spreadsheets take alike."""
_IGNORED = "".join(map(chr, (*range(0x21), 0x7F, 0x85, 0xA0, 0x200B, 0x2028, 0x2029, 0x3000, 0xFEFF)))
"""What a spreadsheet may drop before it looks for a formula."""


def inert_cell(value: Any) -> Any:
    """Numbers stay numbers, None is empty, lists and objects are JSON; a text that a spreadsheet could take for a
    formula gets a `'` before it."""
    if value is None:
        return ""
    if isinstance(value, dict | list):
        return json.dumps(value)
    if isinstance(value, str):
        begin = value.lstrip(_IGNORED)
        return f"'{value}" if begin.startswith(_FORMULA) or value[:1] in ("\t", "\r", "\n") else value
    return value
