"""Every chart in real Chromium: drawn under the strict policy, named, with its sentence and its table, both themes."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from apps.dashboard.views.charts import MAKERS

Open = Callable[..., BrowserContext]
PAGES = {
    "analysis": {"rto", "trend", "budget"},
    "analysis-groups": {"groups"},
    "analysis-nodes": {"groups", "node-rates"},
    "analysis-advice": {"advice"},
    "analysis-what-if": {"levers", "readers"},
    "analysis-matrix": {"stored"},
    "drill-herd": {"herd", "ranks"},
    "drill-inside": {"finish", "throughput", "ranks"},
    "objectives": {"corner", "sureness"},
}
NEEDS_MORE = {"honesty", "phase-map"}
"""Drawn only from four drills of a tier, and from 65 clients on; tests/dashboard looks at these figures."""


def listen(page: Page) -> None:
    page.add_init_script(
        "window.violations = [];"
        "document.addEventListener('securitypolicyviolation', event =>"
        " window.violations.push(event.violatedDirective + ' ' + event.blockedURI));"
    )


def test_every_chart_that_the_server_makes_is_looked_at() -> None:
    assert set.union(*PAGES.values()) | NEEDS_MORE == set(MAKERS)


@pytest.mark.parametrize("theme", ["light", pytest.param("dark", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", sorted(PAGES))
def test_charts_keep_to_the_policy_and_speak_to_everybody(site: Any, open_context: Open, name: str, theme: str) -> None:
    page = open_context(color_scheme=theme).new_page()
    listen(page)
    answer = page.goto(site.url + site.pages[name])
    assert answer is not None
    policy = answer.headers["content-security-policy"]
    rules = dict(part.strip().partition(" ")[::2] for part in policy.split(";"))
    assert rules.get("script-src", rules["default-src"]) == "'self'"
    for chart in sorted(PAGES[name]):
        box = page.locator(f"#chart-{chart}")
        expect(box).to_have_attribute("data-drawn", "true", timeout=30_000)
        expect(box.locator("svg.main-svg").first).to_be_visible()
        figure = box.locator("xpath=..")
        expect(figure).to_have_attribute("role", "img")
        assert figure.get_attribute("aria-label")
        sentence = page.locator(f"#{figure.get_attribute('aria-describedby')}")
        expect(sentence).to_have_text(re.compile(r"\S.*[.:]"))
        assert page.locator(f"#twin-{chart} tbody tr").count() >= 1
    assert page.evaluate("window.violations") == []


def test_a_reader_switches_the_value_axis_to_a_logarithmic_one_and_back(site: Any, open_context: Open) -> None:
    page = open_context().new_page()
    page.goto(site.url + site.pages["analysis"])
    expect(page.locator("#chart-trend")).to_have_attribute("data-drawn", "true", timeout=30_000)
    button = page.locator("[data-chart-for=chart-trend][data-chart-do=log]")
    kind = "document.getElementById('chart-trend')._fullLayout.yaxis.type"
    button.click()
    page.wait_for_function(f"{kind} === 'log'")
    expect(button).to_have_attribute("aria-pressed", "true")
    button.click()
    page.wait_for_function(f"{kind} === 'linear'")


def test_the_objectives_are_changed_in_the_list_and_a_wrong_number_says_so(site: Any, open_context: Open) -> None:
    page = open_context().new_page()
    page.goto(site.url + site.pages["objectives"])
    row = page.locator("tr", has_text="vit-huge-scan")
    row.locator("summary").click()
    field = row.get_by_label("Time to resume, seconds")
    field.fill("45")
    row.get_by_role("button", name="Save").click()
    expect(page.get_by_role("status")).to_contain_text("Objectives of vit-huge-scan are saved")
    expect(page.locator("tr", has_text="vit-huge-scan")).to_contain_text("within 45 s")
    page.goto(site.url + site.pages["objective-save"])
    page.evaluate("document.querySelectorAll('main form').forEach(form => { form.noValidate = true; })")
    page.get_by_label("Lost work, seconds").fill("-3")
    page.get_by_role("button", name="Save").click()
    expect(page.locator(".errorlist")).to_contain_text("greater than or equal to 0.001")
    expect(page.get_by_label("Lost work, seconds")).to_have_value("-3")


def test_two_drills_are_compared_from_the_page_of_the_later_one(site: Any, open_context: Open) -> None:
    page = open_context().new_page()
    page.goto(site.url + site.pages["drill-failover"])
    page.get_by_role("link", name="Compare with the last good one").click()
    expect(page).to_have_url(re.compile(r"/drills/compare/\?ids=drl_"))
    expect(page.locator(".verdict")).to_contain_text(re.compile(r"took|about the same"))
    page.get_by_role("link", name="everything").click()
    expect(page).to_have_url(re.compile("show=all"))
    expect(page.locator("th[scope=row]", has_text="Run").first).to_be_visible()
