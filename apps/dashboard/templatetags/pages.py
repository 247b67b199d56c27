"""Tags of the pages: chips, phase bars, links that keep the rest of the URL."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from django import template
from django.contrib.humanize.templatetags.humanize import intcomma
from django.http import QueryDict
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from muster_agent.formats import explain

from apps.core import units
from apps.core.phases import LABELS, ordered
from apps.dashboard.bars import Bar
from apps.dashboard.forms import SHOWN_WHEN
from apps.dashboard.palette import css_name
from apps.dashboard.standing import bound
from apps.dashboard.words import LOOKS, RESCHEDULING, STANDBY_STEPS, TRUST_MEANS, look
from apps.drills.meaning import ABOVE_RATIO

register = template.Library()
_LARGE = re.compile(r"(?<![\w.,-])[0-9]{5,18}(?![\w-]|[.,]\d)")


@register.simple_tag
def chip(kind: str, value: str, word: str = "") -> SafeString:
    """Colour, shape and word of one state."""
    shown = look(kind, value or "")
    running = " running" if shown.running else ""
    return format_html('<span class="chip {}{}">{}</span>', shown.tone, running, word or shown.word)


@register.filter
def tone_of(value: str, kind: str) -> str:
    """The tone alone, where more than a chip takes its colour."""
    return look(kind, value).tone


@register.simple_tag
def copy_chip(copy: Any) -> SafeString:
    """What lies there; a copy that retention took, as far as can be told, is no alarm."""
    return chip("status", "rotated_away" if copy.status == "missing" and copy.rotated_away else copy.status)


@register.simple_tag
def change_chip(change: Any) -> SafeString:
    rotated = change.kind == "vanished" and change.placement.rotated_away
    return chip("change", "rotated_away" if rotated else change.kind)


@register.simple_tag
def tone_chip(tone: str, word: str) -> SafeString:
    return format_html('<span class="chip {}">{}</span>', tone, word)


@register.simple_tag
def drill_chips(drill: Any) -> SafeString:
    """A drill's two axes: did it restore, and in time. Never one word for both."""
    if drill.state != "finished":
        return chip("drill_state", drill.state)
    parts = [chip("drill_outcome", drill.outcome)]
    if drill.outcome == "passed" and drill.objective_state != "none":
        parts.append(chip("objective", drill.objective_state))
    return format_html_join(" ", "{}", ((part,) for part in parts))


@register.simple_tag
def audit_chip(audit: Any) -> SafeString:
    return chip("audit", audit.outcome if audit.state == "finished" else audit.state)


@register.simple_tag
def task_chip(task: Any) -> SafeString:
    return chip("task", task.outcome or task.state)


@register.simple_tag
def rungs(trust: str) -> SafeString:
    """The ladder of trust, filled up to the rung that holds."""
    names = list(LOOKS["trust"])
    reached = names.index(trust) if trust in names else -1
    cells = format_html_join("", "<i{}></i>", ((SafeString(' class="on"') if i <= reached else "",) for i in range(6)))
    label = f"{trust}: {TRUST_MEANS.get(trust, '')}"
    return format_html('<span class="rungs" role="img" aria-label="{}" title="{}">{}</span>', label, label, cells)


@register.filter
def as_many(must_match: Iterable[str]) -> str:
    """What a job that resumes must share with the one that saved: `as many pipeline stages`."""
    return explain.as_many(must_match)


@register.filter
def trust_means(trust: str) -> str:
    return TRUST_MEANS.get(trust, "")


@register.simple_tag
def phase_bar(bar: Bar | None, wide: bool = False) -> SafeString:
    """Measured phases to scale, what no phase explains hatched, the objective as a line."""
    if bar is None:
        return format_html('<span class="mute">{}</span>', units.NOT_MEASURED)
    pieces = format_html_join("", '<i class="{}" style="width:{}%" title="{}"></i>', bar.pieces)
    line = ""
    if bar.objective_percent is not None:
        line = format_html(
            '<span class="obj" style="left:{}%" title="{}"></span>', bar.objective_percent, bar.objective
        )
    kind = "bar wide" if wide else "bar"
    return format_html('<div class="{}" role="img" aria-label="{}">{}{}</div>', kind, bar.label, pieces, line)


@register.inclusion_tag("dashboard/parts/legend.html")
def phase_legend(phases: Any = None, objective: bool = True) -> dict[str, Any]:
    """The phases with their colours: all, or only those of `phases` (a mapping)."""
    wanted = [phase for phase in LABELS if phases is None or phase in phases]
    return {"entries": [(css_name(phase), LABELS[phase]) for phase in wanted], "objective": objective}


@register.filter
def phase_rows(phases: Mapping[str, float] | None) -> list[tuple[str, str, float | None]]:
    """Every phase in order: CSS name, label, seconds or None."""
    return [(css_name(phase), LABELS[phase], seconds) for phase, seconds in ordered(phases or {})]


@register.filter
def thousands(value: Any) -> str:
    """`48,000`; "unknown" for None."""
    return "unknown" if value is None else str(intcomma(value))


@register.filter
def total(value: Mapping[str, Any]) -> str:
    """A bounded count: exact, or "10,000+"."""
    return str(intcomma(value.get("value", 0))) + ("+" if value.get("relation") == "gte" else "")


@register.filter
def milliseconds(seconds: float | None) -> str:
    if seconds is None:
        return units.NOT_MEASURED
    return f"{seconds * 1000:.0f} ms" if abs(seconds) < 1 else units.duration(seconds)


@register.filter
def byte_range(finding: Any) -> str:
    """`bytes 12,582,912 to 16,777,215`; empty where a finding names no range, or its sentence has it already."""
    if finding.begin_byte is None or finding.end_byte is None or str(finding.begin_byte) in finding.detail:
        return ""
    return f"bytes {intcomma(finding.begin_byte)} to {intcomma(finding.end_byte - 1)}"


@register.filter
def reschedule_words(what: str) -> str:
    """What a scheduler did in one piece of `reschedule`."""
    return RESCHEDULING.get(what, what)


@register.filter
def standby_words(what: str) -> str:
    """One step of a standby drill."""
    return STANDBY_STEPS.get(what, what)


@register.filter
def full_stop(text: str) -> str:
    """With a full stop at its end, where it has none."""
    return text if text.endswith((".", "!", "?")) else f"{text}."


@register.filter
def prose(text: str) -> SafeString:
    """A sentence for people: large numbers in groups, and what stands in backticks as code."""
    spaced = _LARGE.sub(lambda found: str(intcomma(int(found.group()))), text)
    pieces = spaced.split("`")
    if len(pieces) % 2 == 0:
        return format_html("{}", spaced)
    return format_html_join(
        "", "{}", ((format_html("<code>{}</code>", piece) if i % 2 else piece,) for i, piece in enumerate(pieces))
    )


@register.filter
def unbroken(text: str) -> str:
    """A sentence in which no line ends between a number and its unit; one that is safe stays so."""
    shown = bound(text)
    return SafeString(shown) if isinstance(text, SafeString) else shown


@register.filter
def of_ceiling(ratio: float | None) -> str:
    """A share of a measured ceiling; what beats it is no percentage, since the ceiling was none."""
    if ratio is None:
        return units.NOT_MEASURED
    return "above it" if ratio > ABOVE_RATIO else units.percent(min(ratio, 1.0))


@register.filter
def against_ceiling(ratio: float) -> str:
    return "above the ceiling" if ratio > ABOVE_RATIO else f"{units.percent(min(ratio, 1.0))} of the ceiling"


@register.filter
def change_words(change: Any) -> str:
    """`+13 s, +38 %`; empty where a difference has no size."""
    parts = [] if change.seconds is None else [f"{'+' if change.seconds > 0 else ''}{units.duration(change.seconds)}"]
    if change.ratio is not None:
        parts.append(f"{100 * change.ratio:+.0f} %")
    return ", ".join(parts)


@register.filter
def yes_no_unknown(value: bool | None) -> str:
    return {True: "yes", False: "no"}.get(value, units.NOT_MEASURED)  # type: ignore[arg-type]


@register.simple_tag(takes_context=True)
def url_with(context: template.Context, **changes: Any) -> str:
    """This page's URL with some parameters changed; an empty value drops one. The cursor never survives a change."""
    query = context["request"].GET.copy()
    query.pop("cursor", None)
    for name, value in changes.items():
        query.pop(name, None)
        if value not in ("", None):
            query[name] = str(value)
    text = query.urlencode()
    return f"?{text}" if text else "?"


@register.simple_tag(takes_context=True)
def url_here(context: template.Context, **changes: Any) -> str:
    """The same, and one stays where one is in the list: for what only changes how it looks."""
    request = context.get("request")
    query = request.GET.copy() if request is not None else QueryDict(mutable=True)
    for name, value in changes.items():
        query[name] = str(value)
    return "?" + query.urlencode()


@register.filter
def took(row: Any) -> float | None:
    """Seconds from a row's start to its end."""
    if row.started_at is None or row.finished_at is None:
        return None
    return float((row.finished_at - row.started_at).total_seconds())


@register.filter
def shown_when(name: str) -> str:
    """The choice of a checkpoint that a drill's field is for; empty for a field of all of them."""
    return str(SHOWN_WHEN.get(name, ""))


@register.filter
def moment(text: str) -> datetime:
    """The time that an ISO text names."""
    return datetime.fromisoformat(text)


@register.filter
def what_differs(change: Any) -> list[str]:
    """The lines that say what is not as it was about one copy."""
    before, after = change.before, change.after
    if change.kind != "changed":
        return [_state_words(after or before)]
    lines = [
        f"{label}: {_fact(name, before[name])}, now {_fact(name, after[name])}"
        for name, label in _FACTS.items()
        if name in before and name in after
    ]
    return lines or ["files written again" if "fingerprint" in after else "something else"]


_FACTS = {"status": "status", "total_bytes": "size", "shard_count": "files"}


def _state_words(facts: Mapping[str, Any]) -> str:
    told = [_fact(name, facts[name]) for name in ("status", "total_bytes") if name in facts]
    return ", ".join([*told, *([f"{facts['shard_count']:,} files"] if "shard_count" in facts else [])])


def _fact(name: str, value: Any) -> str:
    if name == "total_bytes":
        return units.size(value)
    return f"{value:,}" if isinstance(value, int) else str(value).replace("_", " ")
