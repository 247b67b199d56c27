"""Readiness on the wall: large, by itself, and honest about its age."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from playwright.sync_api import BrowserContext, Page, expect

Open = Callable[..., BrowserContext]
SCREEN = {"width": 1920, "height": 1080}


def font_size(page: Page, selector: str) -> float:
    return float(page.locator(selector).first.evaluate("element => parseFloat(getComputedStyle(element).fontSize)"))


def test_the_wall_is_read_across_a_room_and_has_no_navigation(site: Any, open_context: Open) -> None:
    page = open_context(viewport=SCREEN).new_page()
    page.goto(site.url + "/?wall=1")
    expect(page.locator("nav, .top")).to_have_count(0)
    # a letter is read at 200 times its height: 25 px of a 55-inch screen's 1080 are 16 mm, for 3.2 m
    assert font_size(page, ".wallruns .says") >= 25
    assert font_size(page, ".wallhead .n") >= 70
    worst = page.locator(".wallruns > li").first
    expect(worst).to_contain_text("nothing to resume")
    assert page.evaluate("document.documentElement.scrollHeight") <= SCREEN["height"], "four runs fit on one screen"


def test_the_wall_refreshes_itself(site: Any, open_context: Open) -> None:
    page = open_context(viewport=SCREEN).new_page()
    page.goto(site.url + "/?wall=1")
    expect(page.locator(".wallhead")).to_contain_text("of 4 ready")
    change = "from apps.checkpoints.models import TrainingRun\nfrom django.utils import timezone\n"
    only = change + "TrainingRun.objects.filter(name='vit-huge-scan').update(archived_at={})"
    site.change(only.format("timezone.now()"))
    expect(page.locator(".wallhead")).to_contain_text("of 3 ready", timeout=15_000)
    site.change(only.format("None"))


def test_two_missed_refreshes_are_said_in_large_letters(site: Any, open_context: Open) -> None:
    page = open_context(viewport=SCREEN).new_page()
    page.goto(site.url + "/?wall=1")
    badge = page.locator("[data-live-badge]")
    expect(badge).to_contain_text("Updated")
    page.route("**/live/**", lambda route: route.abort())
    expect(badge).to_have_class(re.compile("late"), timeout=20_000)
    expect(badge).to_contain_text("Not updated for")
    assert font_size(page, "[data-live-badge]") >= 25
    page.unroute("**/live/**")
    expect(badge).not_to_have_class(re.compile("late"), timeout=15_000)


def test_the_wall_reads_and_refreshes_without_scripts(site: Any, open_context: Open) -> None:
    page = open_context(java_script_enabled=False).new_page()
    page.goto(site.url + "/?wall=1")
    expect(page.locator(".wallruns")).to_contain_text("llama-70b-pt")
    assert page.locator("meta[http-equiv=refresh]").get_attribute("content") == "30"


def test_from_the_page_to_the_wall_and_back_and_on_to_the_evidence(site: Any, open_context: Open) -> None:
    page = open_context().new_page()
    page.goto(site.url + "/")
    page.click("text=On the wall")
    expect(page).to_have_url(site.url + "/?wall=1")
    page.click("text=Leave the wall")
    expect(page).to_have_url(site.url + "/")
    page.locator("tr", has_text="llama-70b-pt").get_by_role("link", name=re.compile("predicted back in")).click()
    expect(page).to_have_url(re.compile(r"/analysis/\?run=run_"))


def test_the_next_action_is_one_click_away(site: Any, open_context: Open) -> None:
    page = open_context().new_page()
    page.goto(site.url + "/")
    page.click("text=Time a restart")
    expect(page.locator("select[name=kind]")).to_have_value("failover")
    page.goto(site.url + "/")
    page.click("button:has-text('Verify step 3,050')")
    expect(page.locator(".messages")).to_contain_text("seal this placement first")  # the scene keeps no manifests
