"""Stored text is inert wherever it comes out: on every page, in charts' data, in exports and in answers of the API."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from dashboard.scene import Scene, admin_pages_of, operator_pages_of, pages_of
from dashboard.stored_text import FORMULAS, MARKUP, Markup, plant
from django.test import Client
from muster_agent.protocol.spreadsheets import inert_cell

from apps.dashboard.lists.catalogue import LISTS
from apps.dashboard.views.charts import MAKERS

SignIn = Callable[[str], Client]
NAMED_BY_THE_SCHEDULER = ("node-park", "node-bring-back")
"""Pages whose address holds the name of a node, which is another one once text was planted in the inventory."""
ORDINARY = ("x", "a=b", "gpu-1", "1-2", "", " ", "user@host", "5", "/mnt/x", "\u4e2d", "'=1", "1e-3", "C+", "step-10")


def texts_of(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        value = [*value, *value.values()]
    if isinstance(value, list):
        for one in value:
            yield from texts_of(one)
    elif isinstance(value, str):
        yield value


@pytest.mark.slow
def test_no_stored_text_is_markup_on_any_page_and_all_of_it_is_shown_as_text(scene: Scene, signed_in: SignIn) -> None:
    pages = {**pages_of(scene), **operator_pages_of(scene), **admin_pages_of(scene)}
    for name in NAMED_BY_THE_SCHEDULER:
        del pages[name]
    plant(MARKUP)
    client, faults, shown, charts = signed_in("admin"), {}, "", set()
    for name, url in pages.items():
        answer = client.get(url)
        assert answer.status_code == 200, (name, answer.content[-300:])
        page = Markup(answer.content.decode())
        shown += "".join(page.text)
        charts |= {one for one in page.addresses if ".json" in one and one.startswith("/charts/")}
        if page.faults:
            faults[name] = page.faults[:3]
    assert faults == {}
    assert [text for text in MARKUP if "".join(text.split()) not in "".join(shown.split())] == []
    assert len({one.partition(".json")[0] for one in charts}) >= len(MAKERS) - 5
    for url in sorted(charts):
        answer = client.get(url)
        assert (answer.status_code, answer["Content-Type"]) == (200, "application/json"), url
        assert answer["X-Content-Type-Options"] == "nosniff"
        assert not [text for text in texts_of(json.loads(answer.content)) if "xss" in text and "<" in text], url


@pytest.mark.slow
def test_no_cell_of_any_export_is_a_formula(scene: Scene, signed_in: SignIn) -> None:
    plant(FORMULAS)
    client, guarded = signed_in("admin"), 0
    for name in LISTS:
        body = b"".join(client.get(f"/export/{name}.csv")).decode()
        for row in csv.reader(io.StringIO(body, newline="")):
            for value in row:
                assert inert_cell(value) == value or _is_number(value), (name, value)
                guarded += value.startswith("'")
    assert guarded > 20


def _is_number(value: str) -> bool:
    try:
        float(value)
    except ValueError:
        return False
    return True


@pytest.mark.parametrize("text", FORMULAS)
def test_what_a_spreadsheet_could_run_is_quoted(text: str) -> None:
    is_formula = text[:1] not in ('"', "%", "\0")
    assert inert_cell(text) == (f"'{text}" if is_formula or text[1:2] == "=" and text[0] == "\0" else text)


@pytest.mark.parametrize("text", ORDINARY)
def test_what_is_no_formula_stays_as_it_is(text: str) -> None:
    assert inert_cell(text) == text
    assert (inert_cell(-3.5), inert_cell(None), inert_cell({"a": "=1"})) == (-3.5, "", '{"a": "=1"}')
