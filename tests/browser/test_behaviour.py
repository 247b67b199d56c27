"""What the scripts do: theme, keyboard, live blocks, sign-in; and that pages read without them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from playwright.sync_api import BrowserContext, expect

Open = Callable[..., BrowserContext]


def test_signing_in_leads_to_the_page_that_was_asked_for_and_out_again(site: Any, browser: Any) -> None:
    page = browser.new_context().new_page()
    page.goto(site.url + "/drills/")
    expect(page).to_have_url(re.compile(r"/sign-in/\?next=/drills/"))
    page.fill("input[name=username]", "vera")
    page.fill("input[name=password]", "wrong")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("do not match")
    page.fill("input[name=password]", "correct horse battery")
    page.keyboard.press("Enter")
    expect(page).to_have_url(site.url + "/drills/")
    page.click("details.menu:has-text('Sign out') > summary")
    page.click("text=Sign out")
    expect(page).to_have_url(site.url + "/sign-in/")
    page.context.close()


def test_the_theme_is_chosen_kept_and_redraws_the_charts(site: Any, open_context: Open) -> None:
    page = open_context(color_scheme="light").new_page()
    page.goto(site.url + site.pages["drill-herd"])
    chart = page.locator("#chart-herd")
    expect(chart).to_have_attribute("data-drawn", "true", timeout=30_000)
    tick = chart.locator(".xtick text").first
    light = tick.evaluate("element => getComputedStyle(element).fill")
    page.click("[data-theme-toggle]")
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    expect(tick).not_to_have_css("fill", light)
    page.reload()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    page.click("details.menu:has-text('Sign out') > summary")
    page.click("text=Theme as the system's")
    expect(page.locator("html")).to_have_attribute("data-theme", "light")


def test_a_running_drill_patches_its_progress_and_keeps_what_the_reader_opened(site: Any, open_context: Open) -> None:
    page = open_context().new_page()
    page.goto(site.url + site.pages["drill-running"])
    bar = page.get_by_role("progressbar", name="gpu-01")
    expect(bar).to_have_attribute("aria-valuenow", "25")
    page.evaluate("window.scrollTo(0, 120)")
    page.locator("#drill-live a").first.focus()
    scrolled = page.evaluate("window.scrollY")  # focusing may have moved it
    assert scrolled > 0
    site.change(
        "from apps.fleet.models import AgentTask\n"
        "task = AgentTask.objects.get(owner_kind='drill', state='running', agent__node__name='gpu-01')\n"
        "task.progress['done_bytes'] = 12_000_000_000; task.save()"
    )
    expect(bar).to_have_attribute("aria-valuenow", "75", timeout=15_000)
    assert page.evaluate("window.scrollY") == scrolled
    expect(page.locator("[data-live-badge]")).to_contain_text("Updated")


def test_a_drill_that_ends_shows_its_verdict_and_other_buttons_by_itself(site: Any, open_context: Open) -> None:
    page = open_context().new_page()
    page.goto(site.url + site.pages["drill-running"])
    expect(page.locator(".actions")).to_contain_text("Cancel")
    revert = "from apps.drills.models import Drill\nrow = Drill.objects.get(pk={pk!r})\n"
    drill = revert.format(pk=site.pages["drill-running"].split("/")[2])
    site.change(
        drill + "row.state, row.outcome, row.reason, row.seconds = 'finished', 'passed', 'All read.', 9\nrow.save()"
    )
    expect(page.locator(".actions")).to_contain_text("Run again", timeout=15_000)
    expect(page.locator(".verdict").first).to_have_text("All read.")
    site.change(drill + "row.state, row.outcome, row.reason, row.seconds = 'running', '', '', None\nrow.save()")


def test_a_live_block_that_gets_no_answer_says_how_old_it_is(site: Any, open_context: Open) -> None:
    page = open_context().new_page()
    page.goto(site.url + site.pages["audit-running"])
    page.route("**/live/", lambda route: route.abort())
    expect(page.locator("[data-live-badge]")).to_contain_text("Not updated for", timeout=20_000)
    expect(page.locator("[data-live-badge]")).to_have_class(re.compile("late"))


def test_the_keyboard_reaches_search_rows_pages_and_help(site: Any, open_context: Open) -> None:
    page = open_context().new_page()
    page.goto(site.url + "/runs/")
    page.keyboard.press("/")
    expect(page.locator("[data-search]")).to_be_focused()
    page.keyboard.type("llama")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(r"q=llama"))
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(r"/runs/run_"))
    page.wait_for_load_state()
    page.keyboard.press("?")
    expect(page.locator("#help")).to_be_visible()
    page.keyboard.press("Escape")
    page.keyboard.press("g")
    page.keyboard.press("d")
    expect(page).to_have_url(site.url + "/drills/")


def test_the_skip_link_is_the_first_stop_and_focus_shows(site: Any, open_context: Open) -> None:
    page = open_context().new_page()
    page.goto(site.url + "/checkpoints/")
    page.keyboard.press("Tab")
    expect(page.locator(".skip")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("#content$"))
    page.keyboard.press("Tab")
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline != "none"


def test_pages_read_without_scripts_charts_as_tables(site: Any, open_context: Open) -> None:
    page = open_context(java_script_enabled=False).new_page()
    page.goto(site.url + site.pages["analysis"])
    expect(page.locator(".verdict").first).to_contain_text("p50")
    expect(page.locator(".chart").first).to_be_hidden()
    page.click("summary:has-text('The same as a table') >> nth=0")
    expect(page.locator("#twin-rto table")).to_be_visible()
    assert page.locator("#twin-rto tbody tr").count() == 12
    page.goto(site.url + site.pages["drill-running"])
    expect(page.locator("text=At work")).to_be_visible()
    expect(page.locator(".live")).to_be_hidden()


def test_without_scripts_an_action_still_works(site: Any, open_context: Open) -> None:
    page = open_context(java_script_enabled=False).new_page()
    page.goto(site.url + "/alerts/?state=open")
    page.click("tr button:has-text('Acknowledge') >> nth=-1")
    expect(page.locator(".messages")).to_contain_text("Acknowledged")
    expect(page).to_have_url(site.url + "/alerts/?state=open")


def test_the_failover_preview_is_reached_through_the_form(site: Any, open_context: Open) -> None:
    page = open_context().new_page()
    page.goto(site.url + site.pages["drill-start"])
    page.select_option("select[name=kind]", "failover")
    page.click("text=Start the drill")
    expect(page.get_by_role("heading", level=1)).to_contain_text("Break a worker of llama-70b-pt?")
    page.click("text=Do not")
    expect(page).to_have_url(re.compile(r"/runs/run_"))


def test_a_drill_form_shows_only_the_fields_of_the_chosen_kind(site: Any, open_context: Open) -> None:
    page = open_context().new_page()
    page.goto(site.url + site.pages["drill-start"])
    fields = {name: page.locator(f"[name={name}]") for name in ("choice", "step", "ladder", "signal_name", "evict")}

    def visible() -> set[str]:
        return {name for name, field in fields.items() if field.is_visible()}

    page.select_option("select[name=kind]", "reload")
    assert visible() == {"choice", "evict"}
    page.select_option("select[name=choice]", "named")
    assert visible() == {"choice", "evict", "step"}
    page.select_option("select[name=kind]", "herd")
    assert visible() == {"choice", "evict", "step", "ladder"}
    page.select_option("select[name=kind]", "failover")
    assert visible() == {"signal_name"}
    page = open_context(java_script_enabled=False).new_page()
    page.goto(site.url + site.pages["drill-start"])
    assert all(page.locator(f"[name={name}]").is_visible() for name in fields)


def test_the_api_page_shows_its_operations_and_nothing_is_blocked(site: Any, open_context: Open) -> None:
    page = open_context().new_page()
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    page.goto(site.url + "/api/docs/")
    expect(page.locator(".opblock").first).to_be_visible(timeout=60_000)
    assert complaints == []
