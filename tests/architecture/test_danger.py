"""Danger is never one click: its button lies behind a second one, on this page or on a page of its own."""

from __future__ import annotations

import re
from pathlib import Path

TEMPLATES = Path(__file__).resolve().parents[2] / "templates"
BUTTON = re.compile(r"<button\b[^>]*\bdanger\b[^>]*>")
# Pages that ask, and forms that only lead to one.
ASKING = {
    "dashboard/audit_policy_delete.html",
    "dashboard/bulk_preview.html",
    "dashboard/channel_delete.html",
    "dashboard/drill_cancel.html",
    "dashboard/drill_confirm.html",
    "dashboard/drills_stop.html",
    "dashboard/move.html",
    "dashboard/node_action.html",
    "dashboard/plan_delete.html",
    "dashboard/policy_delete.html",
    "dashboard/policy_plan.html",
    "dashboard/repair_start.html",
    "dashboard/parts/bulk_bar.html",
}


def test_every_button_of_danger_is_asked_for_twice() -> None:
    bare = []
    for template in sorted(TEMPLATES.rglob("*.html")):
        name = str(template.relative_to(TEMPLATES))
        text = re.sub(r'<details class="confirm">.*?</details>', "", template.read_text(), flags=re.S)
        if name not in ASKING and BUTTON.search(text):
            bare.append(name)
    assert bare == []
