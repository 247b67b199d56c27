"""Pictures of a running server's main pages, in both themes, into docs/screenshots.

python -m deploy.screenshots --url http://127.0.0.1:8000 --username admin   (the password comes from MUSTER_PASSWORD)
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urljoin

from click import echo
from playwright.sync_api import Browser, Page, expect, sync_playwright

CHROMIUM = "/usr/bin/chromium"
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
OUTPUT = Path(__file__).resolve().parent.parent / "docs" / "screenshots"
# Each is a list page; the second is the page of its first row, by what its links begin with.
PAGES = {
    "readiness": ("/", ""),
    "run": ("/runs/", "/runs/run_"),
    "checkpoint": ("/checkpoints/", "/checkpoints/ckp_"),
    "drills": ("/drills/", ""),
    "failover": ("/drills/?kind=failover&outcome=passed", "/drills/drl_"),
    "herd": ("/drills/?kind=herd&outcome=passed", "/drills/drl_"),
    "nodes": ("/nodes/", ""),
    "analysis": ("/analysis/", ""),
    "advice": ("/analysis/advice/", ""),
    "what-if": ("/analysis/what-if/", ""),
}


def main() -> int:
    options = _options()
    if not Path(CHROMIUM).exists():
        echo(f"{CHROMIUM} is missing: install Debian's package chromium.", err=True)
        return 1
    OUTPUT.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        for theme in ("light", "dark"):
            for name, page in _pages(browser, options, theme):
                page.screenshot(path=OUTPUT / f"{name}-{theme}.png")
                echo(f"{name}-{theme}.png")
        browser.close()
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Take pictures of a running server's pages.")
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    parser.add_argument("--username", default="admin")
    parser.add_argument("--password", default=os.environ.get("MUSTER_PASSWORD", ""))
    return parser.parse_args()


def _pages(browser: Browser, options: argparse.Namespace, theme: str) -> Iterator[tuple[str, Page]]:
    """Each page, loaded and with its charts drawn; one that has nothing to show is left out."""
    context = browser.new_context(
        viewport={"width": 1280, "height": 800},
        color_scheme="light" if theme == "light" else "dark",
        device_scale_factor=1,
        reduced_motion="reduce",
    )
    page = context.new_page()
    page.goto(f"{options.url}/sign-in/")
    page.fill("input[name=username]", options.username)
    page.fill("input[name=password]", options.password)
    page.click("button:has-text('Sign in')")
    if "/sign-in/" in page.url:
        raise SystemExit("Signing in failed: give --username, and the password in MUSTER_PASSWORD.")
    for name, (path, first) in PAGES.items():
        page.goto(options.url + path)
        if first and not _open_first(page, first):
            echo(f"{name}: nothing to show", err=True)
            continue
        _wait_for_charts(page)
        yield name, page
    context.close()


def _open_first(page: Page, beginning: str) -> bool:
    link = page.locator(f"tr[data-row] a[href^='{beginning}']").first
    if link.count() == 0:
        return False
    page.goto(urljoin(page.url, str(link.get_attribute("href"))))
    return True


def _wait_for_charts(page: Page) -> None:
    charts = page.locator("[data-chart]")
    for number in range(charts.count()):
        expect(charts.nth(number)).to_have_attribute("data-drawn", "true", timeout=30_000)


if __name__ == "__main__":
    sys.exit(main())
