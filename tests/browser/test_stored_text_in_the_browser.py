"""Markup in names, paths and reasons does nothing in a real browser, and the policy has nothing to block."""

from __future__ import annotations

from typing import Any

import pytest
from browser.conftest import sign_in
from browser.test_every_page import wait_for_charts

LOOKED_AT = (
    "readiness", "run-damaged", "checkpoint-damaged", "tensors", "drill-failed", "node", "cluster", "scan", "audit",
    "alerts", "analysis-nodes", "activity", "drills-compare",
)  # fmt: skip
WATCH = """
window.seen = [];
window.xss = () => window.seen.push("a script ran");
document.addEventListener("securitypolicyviolation", e => window.seen.push(`${e.violatedDirective} ${e.blockedURI}`));
"""


@pytest.mark.slow
def test_stored_markup_runs_nowhere_and_asks_nobody(hostile_site: Any, browser: Any) -> None:
    context = browser.new_context()
    page, asked = context.new_page(), []
    page.on("request", lambda request: asked.append(request.url))
    sign_in(page, hostile_site, "ada")
    page.add_init_script(WATCH)
    for name in LOOKED_AT:
        page.goto(hostile_site.url + hostile_site.pages[name])
        wait_for_charts(page)
        page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true; })")
        assert page.evaluate("window.seen") == [], name
        assert "xss" in page.inner_text("body"), name
    assert [url for url in asked if not url.startswith((hostile_site.url, "data:", "blob:"))] == []
    context.close()
