"""Lists in a real browser: their state is the address, rows are ticked and acted on, times are in one's own zone."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from playwright.sync_api import BrowserContext, Page, expect

Open = Callable[..., BrowserContext]


def option(page: Page, group: str, label: str) -> Any:
    return page.get_by_role("group", name=group).get_by_role("link", name=re.compile(f"^{label}\\b"))


def test_filters_sorts_and_sizes_are_the_address_and_going_back_undoes_them(site: Any, open_context: Open) -> None:
    page = open_context().new_page()
    page.goto(site.url + "/drills/")
    option(page, "Kind", "herd").click()
    expect(page).to_have_url(site.url + "/drills/?kind=herd")
    option(page, "Sort", "oldest").click()
    page.get_by_role("link", name="25 rows").click()
    expect(page).to_have_url(site.url + "/drills/?kind=herd&sort=oldest&limit=25")
    page.fill("[data-search]", "llama")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(r"q=llama"))
    address = page.url
    assert all(word in address for word in ("kind=herd", "sort=oldest", "limit=25"))
    page.go_back()
    expect(page).to_have_url(site.url + "/drills/?kind=herd&sort=oldest&limit=25")
    page.go_back()
    page.go_back()
    expect(page).to_have_url(site.url + "/drills/?kind=herd")
    expect(option(page, "Kind", "herd")).to_have_attribute("aria-current", "true")
    pasted = open_context().new_page()
    pasted.goto(address)
    expect(pasted.locator("[data-search]")).to_have_value("llama")
    expect(option(pasted, "Sort", "oldest")).to_have_attribute("aria-current", "true")


def test_the_number_beside_a_filter_is_the_number_of_rows_behind_it(site: Any, open_context: Open) -> None:
    page = open_context().new_page()
    page.goto(site.url + "/checkpoints/")
    link = option(page, "Status", "corrupt")
    count = link.locator(".n").inner_text()
    link.click()
    expect(page.locator(".pager")).to_contain_text(f"of {count}")


def test_an_action_returns_to_the_very_list_that_it_was_on(site: Any, open_context: Open) -> None:
    page = open_context().new_page()
    page.goto(site.url + "/drills/?kind=herd&sort=oldest")
    page.locator(".views > summary").click()
    page.fill("#view-name", "old herds")
    page.click("text=Keep it")
    expect(page).to_have_url(site.url + "/drills/?kind=herd&sort=oldest")
    expect(page.locator(".messages")).to_contain_text("View old herds is kept")
    page.goto(site.url + "/drills/")
    page.locator(".views > summary").click()
    page.click("text=old herds")
    expect(page).to_have_url(site.url + "/drills/?kind=herd&sort=oldest")


def test_times_follow_the_zone_that_is_chosen_and_it_is_remembered(site: Any, open_context: Open) -> None:
    page = open_context(timezone_id="Asia/Tokyo").new_page()
    page.goto(site.url + "/drills/?kind=herd")
    when = page.locator("tr[data-row] time").first
    assert re.fullmatch(r"[\d-]{10}T[\d:]{8}Z", when.get_attribute("title") or "")
    page.locator(".zone > summary").click()
    page.fill("#tz", "Europe/Berlin")
    page.click("text=Use it")
    expect(page).to_have_url(re.compile(r"kind=herd&tz=Europe%2FBerlin"))
    expect(page.locator(".zone > summary")).to_contain_text("Europe/Berlin")
    assert re.search(r"CES?T, [\d-]{10}T[\d:]{8}Z$", when.get_attribute("title") or "")
    page.goto(site.url + "/plans/calendar/")
    expect(page.locator(".zone > summary")).to_contain_text("Europe/Berlin")
    page.locator(".zone > summary").click()
    page.click("text=The browser's zone")
    expect(page.locator(".zone > summary")).to_contain_text("Asia/Tokyo")
    page.goto(site.url + "/drills/?tz=nowhere")
    expect(page.get_by_text("There is no time zone 'nowhere'")).to_be_visible()


def test_exact_values_are_on_hover(site: Any, open_context: Open) -> None:
    page = open_context().new_page()
    page.goto(site.url + "/checkpoints/")
    size = page.locator("td[data-label=Size] data").first
    assert re.fullmatch(r"[\d,]+ bytes", size.get_attribute("title") or "")
    page.goto(site.url + "/drills/?outcome=passed")
    assert re.fullmatch(r"[\d.,]+ s", page.locator(".barcell data").first.get_attribute("title") or "")


def test_all_that_match_come_as_a_file(site: Any, open_context: Open, tmp_path: Path) -> None:
    page = open_context().new_page()
    page.goto(site.url + "/drills/?kind=herd")
    with page.expect_download() as started:
        page.get_by_role("link", name="CSV").click()
    path = tmp_path / "drills.csv"
    started.value.save_as(path)
    assert re.fullmatch(r"drills-\d{8}T\d{4}Z\.csv", started.value.suggested_filename)
    rows = list(csv.DictReader(io.StringIO(path.read_text())))
    assert rows and {row["kind"] for row in rows} == {"herd"}


def test_rows_are_ticked_by_key_previewed_and_each_gets_its_result(site: Any, open_context: Open) -> None:
    page = open_context().new_page()
    page.goto(site.url + "/checkpoints/?status=complete")
    for key in ("j", "x", "j", "x"):
        page.keyboard.press(key)
    expect(page.locator("[data-ticked]")).to_have_text("2")
    expect(page.locator("[data-tick]:checked")).to_have_count(2)
    page.get_by_role("button", name="Pin…", exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Pin 2 checkpoints?")
    page.fill("#bulk-reason", "for the browser")
    page.get_by_role("button", name="Pin 2 checkpoints").click()
    expect(page).to_have_url(re.compile(r"/operations/blk_\w+/$"))
    expect(page.get_by_text("2 waiting")).to_be_visible()
    operation = page.url.split("/")[-2]
    site.change(f"from apps.dashboard.bulk import services\nservices.advance({operation!r})")
    expect(page.get_by_text("2 done, 0 refused")).to_be_visible(timeout=15_000)
    expect(page.locator("td", has_text="pinned")).to_have_count(2)


def test_all_that_match_are_something_else_than_what_is_ticked(site: Any, open_context: Open) -> None:
    page = open_context().new_page()
    page.goto(site.url + "/checkpoints/?status=corrupt")
    total = re.search(r"of ([\d,]+)", page.locator(".pager").inner_text()).group(1)  # type: ignore[union-attr]
    page.get_by_text(f"all {total} that match").click()
    page.get_by_role("button", name="Verify").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text(f"Verify {total} checkpoint")
    expect(page.get_by_text("All that match status=corrupt")).to_be_visible()
    page.click("text=Do not")
    expect(page).to_have_url(site.url + "/checkpoints/?status=corrupt")


def test_ctrl_k_goes_to_anything_by_its_name(site: Any, open_context: Open) -> None:
    page = open_context().new_page()
    page.goto(site.url + "/")
    page.keyboard.press("Control+k")
    expect(page.locator("#switcher")).to_be_visible()
    page.keyboard.type("llama-70b")
    first = page.locator("#switcher [data-found] a").first
    expect(first).to_contain_text("llama-70b-pt")
    page.keyboard.press("ArrowDown")
    expect(first).to_be_focused()
    page.keyboard.press("Enter")
    expect(page).to_have_url(site.url + site.pages["run"])
    page.keyboard.press("Control+k")
    page.keyboard.type("audits")
    expect(page.locator("#switcher [data-found] a").first).to_contain_text("Audits")
    page.keyboard.press("Enter")
    expect(page).to_have_url(site.url + "/audits/")
    page.keyboard.press("Control+k")
    page.keyboard.press("Escape")
    expect(page.locator("#switcher")).to_be_hidden()


def test_g_and_a_letter_reaches_every_page_that_the_help_names(site: Any, open_context: Open) -> None:
    page = open_context().new_page()
    page.goto(site.url + "/drills/")
    for key, path in (("r", "/"), ("l", "/clusters/"), ("s", "/audits/"), ("i", "/incidents/"), ("w", "/analysis/")):
        page.keyboard.press("g")
        page.keyboard.press(key)
        expect(page).to_have_url(site.url + path)


def test_a_block_that_polls_rests_in_a_hidden_tab_and_pauses_while_one_selects(site: Any, open_context: Open) -> None:
    page = open_context().new_page()
    page.add_init_script("Object.defineProperty(document, 'hidden', { get: () => Boolean(window.away) })")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url) if request.url.endswith("/live/") else None)
    page.goto(site.url + site.pages["drill-running"])
    badge = page.locator("[data-live-badge]")
    page.evaluate("window.away = true")
    page.wait_for_timeout(500)
    before = len(asked)
    page.wait_for_timeout(6_000)
    assert len(asked) == before
    page.evaluate("window.away = false; document.dispatchEvent(new Event('visibilitychange'))")
    page.wait_for_timeout(1_500)
    assert len(asked) > before
    page.evaluate("getSelection().selectAllChildren(document.querySelector('#drill-live .card'))")
    expect(badge).to_have_text("Paused while you type or select", timeout=10_000)
    page.evaluate("getSelection().removeAllRanges()")
    expect(badge).to_contain_text("Updated", timeout=10_000)


def test_a_block_that_misses_two_answers_is_marked_stale(site: Any, open_context: Open) -> None:
    page = open_context().new_page()
    page.goto(site.url + site.pages["drill-running"])
    page.route("**/live/", lambda route: route.abort())
    badge = page.locator("[data-live-badge]")
    expect(badge).to_have_class(re.compile("late"), timeout=15_000)
    expect(badge).to_contain_text("Not updated for")


def test_an_error_shows_its_request_id_to_copy(site: Any, open_context: Open) -> None:
    context = open_context()
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    page = context.new_page()
    for path in ("/no-such-page/", "/drills/?limit=7"):
        answer = page.goto(site.url + path)
        told = page.locator("#request-id").inner_text()
        assert answer is not None and told == answer.headers["x-request-id"]
        page.click("[data-copy=request-id]")
        expect(page.locator("[data-copy=request-id]")).to_have_text("Copied")
        assert page.evaluate("navigator.clipboard.readText()") == told


def test_danger_takes_two_steps(site: Any, open_context: Open) -> None:
    page = open_context().new_page()
    page.goto(site.url + site.pages["node"])
    page.click("summary:has-text('Revoke')")
    expect(page).to_have_url(site.url + site.pages["node"])
    expect(page.get_by_role("button", name="Yes: revoke")).to_be_visible()


def test_the_grid_opens_a_drill(site: Any, open_context: Open) -> None:
    page = open_context().new_page()
    page.goto(site.url + "/plans/grid/")
    page.locator("a.cell").first.click()
    expect(page).to_have_url(re.compile(r"/drills/drl_\w+/$"))


def test_without_scripts_lists_filter_sort_find_and_act(site: Any, open_context: Open) -> None:
    page = open_context(java_script_enabled=False).new_page()
    page.goto(site.url + "/drills/")
    option(page, "Kind", "herd").click()
    expect(page).to_have_url(site.url + "/drills/?kind=herd")
    page.locator(".zone > summary").click()
    page.click(".zone >> text=UTC >> nth=-1")
    page.click("text=Find >> nth=0")
    page.fill("main [name=q]", "llama")
    page.click("main button:has-text('Find')")
    expect(page.locator(".found a").first).to_contain_text("llama-70b-pt")
    page.goto(site.url + "/checkpoints/?status=complete")
    page.locator("[data-tick]").first.check()
    page.get_by_role("button", name="Seal").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Seal 1 checkpoint?")
