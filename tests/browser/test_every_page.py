"""Every page in a real browser: nothing blocked or broken, charts drawn, accessible, and no window too narrow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import BrowserContext, ConsoleMessage, Page, expect

PAGES = [
    "readiness",
    "readiness-wall",
    "first-steps",
    "first-steps-done",
    "runs",
    "run",
    "run-damaged",
    "run-empty",
    "checklist",
    "checklist-empty",
    "checkpoints",
    "checkpoint",
    "tensors",
    "checkpoint-damaged",
    "rank-shards",
    "move",
    "drills",
    "drill-print",
    "drill-print-failover",
    "drill-failover",
    "drill-reload",
    "drill-herd",
    "drill-running",
    "drill-failed",
    "drill-inside",
    "drills-compare",
    "drills-compare-none",
    "drill-standby",
    "drill-start",
    "drill-cancel",
    "drills-stop",
    "node-park",
    "node-bring-back",
    "rules",
    "incidents",
    "plans",
    "plan",
    "plan-create",
    "plan-delete",
    "plan-calendar",
    "plan-grid",
    "find",
    "clusters",
    "changes",
    "nodes",
    "node",
    "node-without-agent",
    "cluster",
    "cluster-unasked",
    "join-token",
    "bulk",
    "tiers",
    "tier",
    "tier-doubted",
    "scan",
    "scan-running",
    "scan-doubted",
    "policies",
    "policy",
    "policy-plan",
    "policy-create",
    "policy-delete",
    "transfers",
    "transfer",
    "transfer-paused",
    "transfer-done",
    "audits",
    "audit",
    "audit-running",
    "audit-sampled",
    "audit-print",
    "repairs",
    "repair",
    "repair-start",
    "audit-policies",
    "audit-policy",
    "audit-policy-create",
    "audit-policy-delete",
    "alerts",
    "objectives",
    "objective-save",
    "alert-rules",
    "alert-rule",
    "alert-rule-create",
    "silences",
    "silence-create",
    "channels",
    "channel",
    "channel-disabled",
    "channel-create",
    "channel-create-pagerduty",
    "channel-delete",
    "deliveries",
    "delivery",
    "analysis",
    "analysis-groups",
    "analysis-formats",
    "analysis-tiers",
    "analysis-nodes",
    "analysis-advice",
    "analysis-matrix",
    "analysis-what-if",
    "analysis-what-if-unmeasured",
    "activity",
    "health",
    "access",
]
MANUAL = ["/manual/", "/manual/?q=shard_missing", "/manual/findings/", "/manual/deployment/", "/manual/formats/"]
"""Read without an account, so in no scene. The pages: one of codes, one of long commands and the longest."""
WIDTHS = (1280, 768, 390)


def watched(page: Page) -> list[str]:
    """Everything the page complains of, a blocked script or style included."""
    complaints: list[str] = []

    def note(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            complaints.append(f"{message.type}: {message.text}")

    page.on("console", note)
    page.on("pageerror", lambda error: complaints.append(f"exception: {error}"))
    page.on("requestfailed", lambda request: complaints.append(f"failed: {request.url}"))
    return complaints


def wait_for_charts(page: Page) -> None:
    charts = page.locator("[data-chart]")
    for number in range(charts.count()):
        expect(charts.nth(number)).to_have_attribute("data-drawn", "true", timeout=30_000)
        expect(charts.nth(number).locator("svg.main-svg").first).to_be_visible()


def overflow(page: Page) -> int:
    return int(page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth"))


@pytest.mark.sampled(6)
@pytest.mark.parametrize("theme", ["light", pytest.param("dark", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_whole_accessible_and_fits_every_window(
    site: Any, open_context: Callable[..., BrowserContext], name: str, theme: str
) -> None:
    look_at(open_context(color_scheme=theme).new_page(), site.url + site.pages[name], theme)


@pytest.mark.parametrize("theme", ["light", pytest.param("dark", marks=pytest.mark.slow)])
@pytest.mark.parametrize("path", MANUAL)
def test_a_page_of_the_manual_is_too_for_somebody_without_an_account(
    site: Any, browser: Any, path: str, theme: str
) -> None:
    context = browser.new_context(color_scheme=theme)
    look_at(context.new_page(), site.url + path, theme)
    context.close()


def look_at(page: Page, url: str, theme: str) -> None:
    complaints = watched(page)
    page.goto(url)
    assert page.locator("html").get_attribute("data-theme") == theme
    wait_for_charts(page)
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        assert overflow(page) <= 0, f"{url} is {overflow(page)} px wider than a window of {width} px"
    page.set_viewport_size({"width": 1280, "height": 900})
    violations = Axe().run(page).response["violations"]
    found = [(v["id"], v["nodes"][0]["html"][:200], v["nodes"][0].get("failureSummary", "")[:300]) for v in violations]
    assert found == []
    assert complaints == []


def test_every_page_of_the_scene_is_looked_at(site: Any) -> None:
    assert sorted(site.pages) == sorted(PAGES)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_sign_in_and_error_pages_are_accessible_too(
    site: Any, browser: Any, open_context: Callable[..., BrowserContext], theme: str
) -> None:
    context = browser.new_context(color_scheme=theme, viewport={"width": 390, "height": 800})
    for page, path in (
        (context.new_page(), "/sign-in/"),
        (open_context(color_scheme=theme).new_page(), "/no-such-page/"),
    ):
        page.goto(site.url + path)
        assert overflow(page) <= 0
        assert [violation["id"] for violation in Axe().run(page).response["violations"]] == [], path
    context.close()
