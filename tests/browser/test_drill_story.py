"""A drill's story in a real browser: read, followed to the one before, and put on paper."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from playwright.sync_api import BrowserContext, expect

Open = Callable[..., BrowserContext]


def test_from_the_page_to_the_report_and_to_the_drill_before(site: Any, open_context: Open) -> None:
    page = open_context().new_page()
    page.goto(site.url + site.pages["drill-failover"])
    expect(page.locator(".story .verdict")).to_contain_text("It trained again")
    page.click(".actions >> text=Report")
    expect(page).to_have_url(re.compile(r"/drills/drl_\w+/print/"))
    expect(page.locator(".report h1")).to_have_text("Failover of llama-70b-pt")
    page.click(".story >> text=The drill")
    expect(page).to_have_url(re.compile(r"/drills/drl_\w+/$"))


def test_the_report_prints_without_the_frame_on_a_few_pages(site: Any, open_context: Open) -> None:
    page = open_context().new_page()
    page.goto(site.url + site.pages["drill-print"])
    page.emulate_media(media="print")
    expect(page.locator(".top")).to_be_hidden()
    expect(page.locator(".crumb")).to_be_hidden()
    expect(page.locator(".waterfall .bar").first).to_be_visible()
    paper = page.pdf(format="A4", print_background=False)
    assert paper.startswith(b"%PDF") and 1 <= len(re.findall(rb"/Type\s*/Page\b", paper)) <= 4


def test_the_story_reads_without_scripts(site: Any, open_context: Open) -> None:
    page = open_context(java_script_enabled=False).new_page()
    page.goto(site.url + site.pages["drill-herd"])
    expect(page.locator(".story .verdict")).to_contain_text("were read in")
    expect(page.locator("h2", has_text="What it does not prove")).to_be_visible()
