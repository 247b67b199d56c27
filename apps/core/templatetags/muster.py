"""Template filters for numbers and times; builtin in every template."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django import template
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

from apps.core import units

register = template.Library()

register.filter("percent", units.percent)
register.filter("size_text", units.size)
register.filter("duration_text", units.duration)


def _exact(value: float | None, shown: str, unit: str) -> SafeString | str:
    """For people, with the exact value on hover; plain words where there is no value."""
    if value is None:
        return shown
    exact = f"{value:,}" if isinstance(value, int) else f"{value:,.6g}" if abs(value) < 1e6 else f"{value:,.0f}"
    return format_html('<data value="{}" title="{} {}">{}</data>', value, exact, unit, shown)


@register.filter
def duration(seconds: float | None) -> SafeString | str:
    return _exact(seconds, units.duration(seconds), "s")


@register.filter
def size(count_bytes: int | None) -> SafeString | str:
    return _exact(count_bytes, units.size(count_bytes), "bytes")


@register.filter
def rate(bytes_per_second: float | None) -> SafeString | str:
    return _exact(bytes_per_second, units.rate(bytes_per_second), "bytes/s")


@register.filter
def ago(at: datetime | None) -> SafeString:
    """A `<time>` element: relative text; on hover the exact time in the reader's zone and in UTC."""
    if at is None:
        return format_html('<span class="mute">{}</span>', "never")
    exact, shown = at.strftime("%Y-%m-%dT%H:%M:%SZ"), clock(at)
    title = exact if shown.endswith(" UTC") else f"{shown}, {exact}"
    return format_html('<time datetime="{}" title="{}">{}</time>', exact, title, units.age(at, timezone.now()))


@register.filter
def clock(at: datetime | None, style: str = "%Y-%m-%d %H:%M:%S") -> str:
    """`2026-03-01 13:05:00 CET`: a moment in the reader's zone, which it names."""
    return "never" if at is None else timezone.localtime(at).strftime(f"{style} %Z")


@register.filter
def weekday(at: datetime | None) -> str:
    """`Tue 13:05 CET`."""
    return clock(at, "%a %H:%M")


@register.filter
def due(at: datetime | None) -> str:
    """`Tue 2026-03-01 13:05 CET`."""
    return clock(at, "%a %Y-%m-%d %H:%M")


register.filter("utc", clock)


@register.filter
def get(mapping: dict[Any, Any], key: Any) -> Any:
    return mapping.get(key)
