"""Text that somebody stored to be run elsewhere: as markup, as a spreadsheet's formula, as a terminal's command."""

from __future__ import annotations

from html.parser import HTMLParser
from itertools import cycle
from typing import Any

from django.apps import apps
from django.db import models

from apps.accounts.models import ActivityEntry
from apps.accounts.services import log_activity

MARKUP = (
    "<script>xss(1)</script>", "<ScRiPt src=//xss.test></sCrIpT>", "</script><script>xss(1)</script>",
    "</title><script>xss(1)</script>", "</textarea><script>xss(1)</script>", "</style><img src=x onerror=xss(1)>",
    "--><img src=x onerror=xss(1)>", "]]><img src=x onerror=xss(1)>", "<img src=x onerror=xss(1)>",
    "<img/src=x/onerror=xss(1)>", "<img src=x onerror\n=xss(1)>", "<svg onload=xss(1)>", "<svg/onload=xss(1)//",
    "<svg><script>xss(1)</script></svg>", "<math><mi xlink:href='javascript:xss(1)'>", "<body onload=xss(1)>",
    "<iframe srcdoc='<script>xss(1)</script>'>", "<iframe src=javascript:xss(1)>", "<object data=javascript:xss(1)>",
    "<embed src=//xss.test>", "<base href=//xss.test/>", "<meta http-equiv=refresh content='0;url=//xss.test'>",
    "<link rel=stylesheet href=//xss.test>", "<style>@import '//xss.test';</style>", "<form action=//xss.test>",
    "<a href=javascript:xss(1)>x</a>", "<details open ontoggle=xss(1)>", "<input autofocus onfocus=xss(1)>",
    "<video><source onerror=xss(1)>", "<x onclick=xss(1)>x</x>", "\"><script>xss(1)</script>",
    "'><script>xss(1)</script>", "\" onmouseover=xss(1) x=\"", "' onmouseover='xss(1)", "` onmouseover=xss(1) `",
    "javascript:xss(1)", "data:text/html,<script>xss(1)</script>", "{{ xss }}{% xss %}", "${xss(1)}",
    "&lt;script&gt;xss(1)&lt;/script&gt;", "&#60;script&#62;xss(1)&#60;/script&#62;", "\\u003cscript\\u003exss(1)",
    "<script>xss`1`</script>\u2028", "<a hx-get=//xss.test hx-trigger=load>", "<b hx-on:load=xss(1)>",
)  # fmt: skip

FORMULAS = (
    "=1+1", "+1+1", "-1+1", "@SUM(1)", "\t=1+1", "\r=1+1", "\n=1+1", "=HYPERLINK(\"//xss.test\")", "=cmd|' /C calc'!A0",
    "＝1+1", "＋1+1", "－1+1", "＠SUM(1)", " =1+1", "\u00a0=1+1", "\ufeff=1+1", "\";=1+1", "\0=1+1", "%0A=1+1",
)  # fmt: skip

TERMINAL = (
    "\x1b[31mred", "\x1b]0;title\x07", "\x1b[2J", "\x1b[1A\x1b[2K", "\x1b]52;c;eHNz\x07", "\x9b31m", "\x1bP0;1|x\x1b\\",
    "\x1b]8;;//xss.test\x07link\x1b]8;;\x07", "\x08\x08\x08ok", "\rok: all is well", "\n2026-01-01 INFO all is well",
    "\x0b", "\x0c", "\x7f", "\x85", "\u2028INFO forged", "\u2029", "\u202egnp.exe", "\u2066x\u2069", "\x00",
)  # fmt: skip
"""No line of a log or of a table, and no terminal, may take one of these for more than text."""

FREE = frozenset(
    [
        "name",
        "label",
        "detail",
        "reason",
        "error",
        "summary",
        "problem",
        "answer",
        "actor",
        "requested_by",
        "approved_by",
        "created_by",
        "updated_by",
        "acknowledged_by",
        "ended_by",
        "reported_by",
        "pinned_by",
        "stopped_by",
        "plans_paused_by",
        "path",
        "root",
        "target_path",
        "tensor",
        "cure",
        "doubt",
        "skipped_reason",
        "resolved_reason",
        "void_reason",
        "disabled_reason",
        "summary_contains",
        "launch_id",
        "job_id",
        "resumed_from_path",
        "run_name",
        "first_name",
        "node_name",
        "worker_node",
        "restore_node",
        "park_node",
        "loader",
        "link",
        "version",
        "method",
        "username",
        "scheduler_version",
        "target_id",
        "subject_id",
        "what",
        "hostname",
        "kernel",
        "message",
        "role",
    ]
)
_KEPT = {
    ("ActivityEntry", "target_id"), ("Alert", "subject_id"), ("Silence", "subject_id"), ("TensorPage", "first_name"),
    ("DrillStep", "what"), ("BulkItem", "target_id"), ("NodeAction", "node_name"), ("InventoryScan", "root"),
    ("Placement", "path"),
}  # fmt: skip
"""By which something else is found."""


def plant(texts: tuple[str, ...]) -> None:
    """One of `texts` into every field of every row that takes somebody's words, each where it fits; also into the
    documents that agents send."""
    texts = tuple(one for one in texts if "\0" not in one)  # what PostgreSQL cannot hold is refused before it is stored
    turns = cycle(texts)
    for text in texts:
        log_activity(actor=text, action="cluster.changed", target_kind="run", target_id="x", detail={"note": text})
    for model in apps.get_models():
        if model is ActivityEntry:
            continue  # it is only added to
        fields = [field for field in model._meta.concrete_fields if _is_free(model, field)]
        rows = list(model._default_manager.all()) if model.__module__.startswith("apps.") and fields else []
        for number, row in enumerate(rows):
            for field in fields:
                value = getattr(row, field.attname)
                setattr(row, field.attname, _planted(field, value, next(turns), number))
        if rows:
            model._default_manager.bulk_update(rows, [field.name for field in fields], batch_size=200)


def _is_free(model: type[models.Model], field: Any) -> bool:
    if (model.__name__, field.name) in _KEPT or field.primary_key or field.choices:
        return False
    return isinstance(field, models.JSONField) or (
        isinstance(field, models.CharField | models.TextField) and field.name in FREE
    )


def _planted(field: Any, value: Any, text: str, number: int) -> Any:
    if isinstance(field, models.JSONField):
        return _words_in(value, text)
    room = field.max_length or 10_000
    told = f"{text}{number}" if field.unique or field.name in ("name", "path") else text
    return told if value and len(told) <= room else value


def _words_in(value: Any, text: str) -> Any:
    """The same document, with `text` for every free word in it."""
    if isinstance(value, list):
        return [_words_in(one, text) for one in value]
    if isinstance(value, dict):
        return {
            key: text if key in FREE and isinstance(one, str) else _words_in(one, text) for key, one in value.items()
        }
    return value


_LEADING = frozenset(["href", "src", "action", "formaction", "data", "xlink:href", "hx-get", "hx-post", "poster"])
_FOREIGN = frozenset(["iframe", "object", "embed", "base", "math", "video", "style", "x"])


def _is_of_nobody(tag: str, given: dict[str, str]) -> bool:
    is_inline = tag == "script" and "src" not in given and given.get("type") != "application/json"
    is_away = any("xss.test" in value[:20] for name, value in given.items() if name in _LEADING)
    return is_inline or is_away or tag in _FOREIGN or "xss" in tag


class Markup(HTMLParser):
    """What a browser would make of a page: its tags, and whatever of them is not ours."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.faults: list[str] = []
        self.text: list[str] = []
        self.addresses: list[str] = []
        self._script = False
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self._script = tag == "script"
        given = {name: value or "" for name, value in attributes}
        self.text += [given[name] for name in ("value", "title", "aria-label", "placeholder") if name in given]
        self.addresses += [value for name, value in given.items() if name.startswith("data-") or name == "href"]
        if _is_of_nobody(tag, given):
            self.faults.append(f"<{tag}>")
        for name, value in given.items():
            if (
                name.startswith(("on", "hx-on"))
                or "xss" in name
                or name == "srcdoc"
                or "<" in name
                or name in _LEADING
                and value
                and not value.startswith(("/", "#", "?", "https://", "http://"))
            ):
                self.faults.append(f"<{tag} {name}={value[:60]!r}>")

    def handle_data(self, data: str) -> None:
        if not self._script:
            self.text.append(data)

    def handle_endtag(self, tag: str) -> None:
        self._script = False
