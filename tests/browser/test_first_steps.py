"""The first day: from nothing to a joined agent, in a real browser, with ticks that come by themselves."""

from __future__ import annotations

import re
from typing import Any

from axe_playwright_python.sync_playwright import Axe
from browser.conftest import sign_in
from playwright.sync_api import BrowserContext, Page, expect

JOIN = """
import sys
sys.path[:0] = ["tests"]
import factories
from apps.fleet.models import Cluster
factories.agent(factories.node(Cluster.objects.get(name="east")))
"""


def signed_in(site: Any, browser: Any, **options: Any) -> Page:
    context: BrowserContext = browser.new_context(viewport={"width": 1280, "height": 900}, **options)
    page = context.new_page()
    sign_in(page, site, "ada")
    return page


def step(page: Page, number: int) -> Any:
    return page.locator(".ticks > li").nth(number)


def test_the_steps_lead_from_nothing_to_an_agent_whose_tick_comes_by_itself(empty_site: Any, browser: Any) -> None:
    page = signed_in(empty_site, browser)
    expect(page.locator(".doit h2")).to_have_text("Now: Name the cluster")
    page.fill("input[name=name]", "east")
    page.click("button:has-text('Name the cluster')")
    expect(step(page, 0)).to_have_class("done")
    page.fill("input[name=name]", "fast")
    page.fill("input[name=uri]", "not absolute")
    page.click("button:has-text('Add the tier')")
    expect(page.locator(".error, .errorlist").first).to_be_visible()
    expect(page.locator("input[name=uri]")).to_have_value("not absolute")
    page.fill("input[name=uri]", "/mnt/ckpt")
    page.click("button:has-text('Add the tier')")
    expect(step(page, 1)).to_have_class("done")
    page.click("button:has-text('Make a one-use join token')")
    command = page.locator("#join-command")
    expect(command).to_have_text(re.compile(r"MUSTER_JOIN_TOKEN=mjt_\S+ muster agent join .* --root /mnt/ckpt"))
    shown = command.text_content()
    expect(step(page, 2)).to_have_class("waiting")
    empty_site.change(JOIN)
    expect(step(page, 2)).to_have_class("done", timeout=15_000)
    expect(command).to_have_text(shown or "")
    assert [violation["id"] for violation in Axe().run(page).response["violations"]] == []
    page.click("text=Go on when it has")
    expect(page.locator(".doit")).to_contain_text("Scan /mnt/ckpt")
    page.context.close()


def test_what_somebody_does_elsewhere_moves_the_page_on(empty_site: Any, browser: Any) -> None:
    page = signed_in(empty_site, browser)
    site_change = "from apps.fleet.services import create_cluster\ncreate_cluster(name='east', actor='cli')"
    empty_site.change(site_change)
    expect(page.locator(".doit h2")).to_have_text("Now: Add the tier", timeout=15_000)
    expect(step(page, 0)).to_have_class("done")
    page.set_viewport_size({"width": 390, "height": 844})
    assert page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") <= 0
    page.context.close()


def test_the_forms_work_without_scripts(empty_site: Any, browser: Any) -> None:
    page = signed_in(empty_site, browser, java_script_enabled=False)
    page.fill("input[name=name]", "east")
    page.click("button:has-text('Name the cluster')")
    expect(page.locator(".doit h2")).to_have_text("Now: Add the tier")
    expect(page.locator("#command-tier")).to_contain_text("/api/v1/tiers/")
    page.context.close()
