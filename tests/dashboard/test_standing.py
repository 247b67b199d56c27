"""How the sentence of a run becomes links and a button."""

from __future__ import annotations

import pytest
from django.utils.safestring import SafeString

from apps.dashboard.standing import address, bound, button, linked
from apps.dashboard.templatetags.pages import prose, unbroken
from apps.recovery.evidence import Evidence
from apps.recovery.next_action import Action, NextAction
from apps.recovery.sentence import About, Known, Part


def test_a_part_leads_to_its_evidence_and_ids_are_left_to_it() -> None:
    told = [
        Part("Passed over (audit aud_1 at 2026-11-01T00:00:00Z): bytes 12582912 differ. Resumes at "),
        Part("step 12400", About.CHECKPOINT, Known.MEASURED),
    ]
    shown = linked(told, lambda part: Evidence("checkpoint", "ckp_1") if part.about else None)
    assert [(part.text, part.url) for part in shown] == [
        ("Passed over: bytes 12,582,912 differ. Resumes at ", ""),
        ("step 12,400", "/checkpoints/ckp_1/"),
    ]


def test_a_number_and_its_unit_stay_on_one_line() -> None:
    text = bound("back in 80 s of 4 min 05 s, 71.3 % at 9.7 GB/s, 4 steps of 2 steps")
    assert (
        text.replace("\N{NO-BREAK SPACE}", "_") == "back in 80_s of 4_min 05_s, 71.3_% at 9.7_GB/s, 4 steps of 2 steps"
    )


def test_a_sentence_with_code_in_it_is_escaped_once() -> None:
    shown = unbroken(prose("set `a < b` for 5 s"))
    assert shown == "set <code>a &lt; b</code> for 5\N{NO-BREAK SPACE}s" and isinstance(shown, SafeString)
    assert not isinstance(unbroken("<b> 5 s"), SafeString)


@pytest.mark.parametrize(
    ("evidence", "expected"),
    [
        (None, ""),
        (Evidence("audit", "aud_1"), "/audits/aud_1/"),
        (Evidence("drill", "drl_1"), "/drills/drl_1/"),
        (Evidence("tier", "tir_1"), "/tiers/tir_1/"),
        (Evidence("step", "run_1", 120), "/runs/run_1/steps/120/"),
        (Evidence("rto_history", "run_1"), "/analysis/?run=run_1"),
        (Evidence("something_new", "x_1"), ""),
    ],
)
def test_every_kind_of_evidence_has_its_page(evidence: Evidence | None, expected: str) -> None:
    assert address(evidence) == expected


@pytest.mark.parametrize("action", list(Action))
def test_every_action_has_a_place_and_only_operators_get_what_starts_something(action: Action) -> None:
    facts = {"run": "run_1", "drill": "drl_1", "checkpoint": "ckp_1", "placement": "plc_1"}
    found = button(NextAction(action, "Do it", 7), may_operate=True, **facts)
    assert found is not None and found.url.startswith("/")
    starts = action in (Action.SEAL, Action.VERIFY, Action.DRILL_RELOAD, Action.DRILL_FAILOVER)
    assert (button(NextAction(action, "Do it", 7), may_operate=False, **facts) is None) is starts
