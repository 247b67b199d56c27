"""Spans of time as options take them."""

from __future__ import annotations

import re

import click

_AGE = re.compile(r"(\d+(?:\.\d+)?)\s*(s|m|min|h|d)?", re.ASCII)
_UNIT_SECONDS = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400}


class Age(click.ParamType[float]):
    name = "age"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        match = _AGE.fullmatch(str(value).strip())
        if match is None:
            self.fail(f"{value!r} is no age; write seconds, or 30min, 12h, 2d", param, ctx)
        return float(match.group(1)) * _UNIT_SECONDS[match.group(2) or "s"]
