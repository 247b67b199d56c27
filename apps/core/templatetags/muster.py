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

register.filter("duration", units.duration)
register.filter("size", units.size)
register.filter("rate", units.rate)
register.filter("percent", units.percent)


@register.filter
def ago(at: datetime | None) -> SafeString:
    """A `<time>` element: relative text, the exact UTC time on hover."""
    if at is None:
        return format_html('<span class="mute">{}</span>', "never")
    exact = at.strftime("%Y-%m-%dT%H:%M:%SZ")
    return format_html('<time datetime="{}" title="{}">{}</time>', exact, exact, units.age(at, timezone.now()))


@register.filter
def utc(at: datetime | None) -> str:
    return "never" if at is None else at.strftime("%Y-%m-%d %H:%M:%S UTC")


@register.filter
def get(mapping: dict[Any, Any], key: Any) -> Any:
    return mapping.get(key)
