"""A real web process over a seeded database, and a real Chromium in front of it.

Without /usr/bin/chromium these tests are skipped by name; with MUSTER_CI=1 that is a failure.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import urllib3
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

expect.set_options(timeout=20_000)  # what a page does at once takes seconds where everything else runs beside it
ROOT = Path(__file__).resolve().parents[2]
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
SEED = """
import json, sys, django
sys.path[:0] = [{tests!r}]
django.setup()
from django.core.management import call_command
call_command("migrate", verbosity=0)
from dashboard.scene import admin_pages_of, build, operator_pages_of, pages_of
scene = build()
print(json.dumps({{**pages_of(scene), **operator_pages_of(scene), **admin_pages_of(scene)}}))
"""


HOSTILE = f"""{SEED}
from dashboard.stored_text import MARKUP, plant
plant(MARKUP)
scene.users["admin"].save(update_fields=["username"])
"""
"""The scene with every free text in it replaced by markup; the admin can still sign in."""

NOTHING = """
import sys, django
sys.path[:0] = [{tests!r}]
django.setup()
from django.core.management import call_command
call_command("migrate", verbosity=0)
import factories
from apps.accounts.models import Role
from apps.core import heartbeats
for part in heartbeats.PARTS:
    heartbeats.beat(part)
factories.user("ada", Role.ADMIN, "correct horse battery")
print("{{}}")
"""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in Path(item.path).parents:
            item.add_marker(pytest.mark.chromium)
            item.add_marker(pytest.mark.timeout(300))
            if Path(item.path).stem != "test_every_page":  # what clicks and types changes its site, in its own order
                item.add_marker(pytest.mark.xdist_group(Path(item.path).stem))


@dataclass
class Site:
    """The running site: `pages` are the scene's URLs by name."""

    url: str
    pages: dict[str, str]
    environment: dict[str, str]

    def change(self, code: str) -> None:
        """Run Django code in the site's database, as another process of the control plane would."""
        script = f"import django; django.setup()\n{code}"
        subprocess.run([sys.executable, "-c", script], env=self.environment, cwd=ROOT, check=True)


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """The scene's fleet."""
    with _serving(tmp_path_factory.mktemp("site"), SEED) as served:
        yield served


@pytest.fixture
def empty_site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """An installation on its first day: one admin, and nothing else."""
    with _serving(tmp_path_factory.mktemp("empty"), NOTHING) as served:
        yield served


@pytest.fixture
def hostile_site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """The scene's fleet, in which every name, path and reason is markup that would run."""
    with _serving(tmp_path_factory.mktemp("hostile"), HOSTILE) as served:
        yield served


@contextmanager
def _serving(folder: Path, seed_code: str) -> Iterator[Site]:
    _require_chromium()
    environment = {
        **os.environ,
        "DATABASE_URL": f"sqlite:///{folder / 'site.sqlite3'}",
        "DJANGO_SETTINGS_MODULE": "controlplane.settings",
        "PYTHONPATH": os.pathsep.join([str(ROOT / "workers/agent/src"), str(ROOT), str(ROOT / "tests")]),
    }
    seed = subprocess.run(
        [sys.executable, "-c", seed_code.format(tests=str(ROOT / "tests"))],
        env=environment,
        cwd=ROOT,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    port = _free_port()
    command = [sys.executable, "-m", "uvicorn", "controlplane.asgi:application", "--port", str(port), "--no-access-log"]
    with open(folder / "server.log", "wb") as log:
        server = subprocess.Popen(command, env=environment, cwd=ROOT, stdout=log, stderr=log)
    try:
        url = f"http://127.0.0.1:{port}"
        _wait_for(url, server, folder / "server.log")
        yield Site(url, json.loads(seed.stdout.splitlines()[-1]), environment)
    finally:
        server.terminate()
        server.wait(10)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    _require_chromium()
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield chromium
        chromium.close()


@pytest.fixture(scope="session")
def signed_in_state(site: Site, browser: Browser) -> Any:
    """The cookies of the admin."""
    context = browser.new_context()
    sign_in(context.new_page(), site, "ada")
    state = context.storage_state()
    context.close()
    return state


def sign_in(page: Page, site: Site, who: str) -> None:
    page.goto(f"{site.url}/sign-in/")
    page.fill("input[name=username]", who)
    page.fill("input[name=password]", "correct horse battery")
    page.click("button:has-text('Sign in')")
    page.wait_for_url(f"{site.url}/")


@pytest.fixture
def open_context(browser: Browser, signed_in_state: Any) -> Iterator[Callable[..., BrowserContext]]:
    """A signed-in browser context; `color_scheme`, `java_script_enabled` and the like as playwright takes them."""
    opened: list[BrowserContext] = []

    def make(**options: Any) -> BrowserContext:
        options.setdefault("viewport", {"width": 1280, "height": 900})
        context = browser.new_context(storage_state=signed_in_state, **options)
        opened.append(context)
        return context

    yield make
    for context in opened:
        context.close()


def _require_chromium() -> None:
    if Path(CHROMIUM).exists():
        return
    reason = f"the program chromium is missing ({CHROMIUM}): install Debian's package chromium"
    if os.environ.get("MUSTER_CI") == "1":
        pytest.fail(reason)
    pytest.skip(reason)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_for(url: str, server: subprocess.Popen[bytes], log: Path) -> None:
    ends_at = time.monotonic() + 120
    while time.monotonic() < ends_at:
        if server.poll() is not None:
            break
        try:
            urllib3.request("GET", f"{url}/sign-in/", retries=False, timeout=5.0)
            return
        except urllib3.exceptions.HTTPError:
            time.sleep(0.1)
    raise RuntimeError(f"the web process did not answer:\n{log.read_text()}")
