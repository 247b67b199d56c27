"""Pages that are not full: of an empty installation, refused, wrong in a form."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from browser.conftest import sign_in
from browser.test_every_page import overflow, wait_for_charts
from playwright.sync_api import Browser, BrowserContext, Page, expect

Open = Callable[..., BrowserContext]
LISTS = (
    "/runs/", "/checkpoints/", "/drills/", "/plans/", "/nodes/", "/clusters/", "/tiers/", "/audits/",
    "/audits/policies/", "/policies/", "/transfers/", "/incidents/", "/changes/", "/alerts/", "/alerts/silences/",
    "/alerts/channels/", "/alerts/deliveries/", "/objectives/", "/analysis/", "/analysis/groups/", "/analysis/tiers/",
    "/analysis/advice/", "/analysis/what-if/", "/plans/grid/", "/drills/compare/",
)  # fmt: skip
FORMS = (
    "plan-create", "policy-create", "audit-policy-create", "silence-create",
)  # fmt: skip


def accessible(page: Page) -> list[str]:
    """What axe finds wrong, in both themes."""
    found = []
    for theme in ("light", "dark"):
        page.emulate_media(color_scheme=theme)  # type: ignore[arg-type]
        expect(page.locator("html")).to_have_attribute("data-theme", theme)
        found += [violation["id"] for violation in Axe().run(page).response["violations"]]
    return found


@pytest.mark.slow
def test_each_page_of_an_empty_installation_says_that_there_is_nothing_and_what_to_do(
    empty_site: Any, browser: Browser
) -> None:
    context = browser.new_context(viewport={"width": 390, "height": 800}, reduced_motion="reduce")
    page = context.new_page()
    sign_in(page, empty_site, "ada")
    for path in LISTS:
        page.goto(empty_site.url + path)
        wait_for_charts(page)
        nothing = page.locator("main .empty").first
        expect(nothing, path).to_be_visible()
        assert re.search(r"\w+ \w+ \w+", nothing.inner_text()), f"{path} says too little"
        assert overflow(page) <= 0, path
    context.close()


def test_what_a_viewer_may_not_do_is_refused_in_a_sentence(site: Any, browser: Browser) -> None:
    context = browser.new_context(viewport={"width": 390, "height": 800}, reduced_motion="reduce")
    page = context.new_page()
    sign_in(page, site, "vera")
    for name in ("join-token", "channel-create", "channel-delete", "drills-stop", "plan-delete", "policy-delete"):
        page.goto(site.url + site.pages[name])
        expect(page.locator(".fault .code"), name).to_have_text("403")
        assert page.locator(".fault .sub").inner_text().endswith("."), name
        assert overflow(page) <= 0, name
    assert accessible(page) == []
    context.close()


@pytest.mark.parametrize("name", FORMS)
def test_a_form_that_is_wrong_says_so_beside_the_field(site: Any, open_context: Open, name: str) -> None:
    page = open_context(viewport={"width": 390, "height": 800}, reduced_motion="reduce").new_page()
    page.goto(site.url + site.pages[name])
    page.evaluate("document.querySelectorAll('main form').forEach((form) => { form.noValidate = true; })")
    for field in page.locator("main form.card input[type=text], main form.card input[type=number]").all():
        if field.is_visible():
            field.fill("")
    with page.expect_response(lambda answer: answer.request.method == "POST") as sent:
        page.locator("main form .formfoot button.primary").first.click()
    assert sent.value.status == 422
    expect(page.locator("main .errorlist, main .error").first).to_be_visible()
    assert overflow(page) <= 0
    assert accessible(page) == []
