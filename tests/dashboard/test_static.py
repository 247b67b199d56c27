"""Nothing on a page comes from another host, and what is vendored is what it says it is."""

from __future__ import annotations

import hashlib
import re
import warnings
from pathlib import Path
from typing import Any

import pytest
from django.contrib.staticfiles import finders
from django.core.management import call_command
from django.test import AsyncClient

ROOT = Path(__file__).parents[2]
VENDOR = ROOT / "static/vendor"


def vendored() -> dict[str, str]:
    """File to SHA-256, from the notice."""
    rows = re.findall(r"^\| (\S+\.js) \|.*\| ([0-9a-f]{64}) \|$", (VENDOR / "VERSIONS.md").read_text(), re.M)
    return dict(rows)


def test_every_vendored_script_has_its_checksum_and_no_other_lies_there() -> None:
    on_disk = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in VENDOR.glob("*.js")}
    assert on_disk and vendored() == on_disk


def test_vendored_scripts_link_to_no_source_maps() -> None:
    for name in vendored():
        assert b"sourceMappingURL" not in (VENDOR / name).read_bytes(), name


def test_htmx_comes_from_its_python_package() -> None:
    assert finders.find("django_htmx/htmx-2.min.js")


def test_static_files_collect_under_hashed_names(settings: Any, tmp_path: Path) -> None:
    settings.STATIC_ROOT = tmp_path
    settings.STORAGES = {
        **settings.STORAGES,
        "staticfiles": {"BACKEND": "django.contrib.staticfiles.storage.ManifestStaticFilesStorage"},
    }
    call_command("collectstatic", verbosity=0, interactive=False)
    names = {path.name for path in tmp_path.rglob("*")}
    for stem, suffix in (("muster", "css"), ("phases", "css"), ("plotly-cartesian.min", "js"), ("theme", "js")):
        assert any(re.fullmatch(rf"{stem}\.[0-9a-f]{{12}}\.{suffix}", name) for name in names), stem


@pytest.mark.parametrize("folder", ["templates", "static/css", "static/js"])
def test_pages_name_no_other_host(folder: str) -> None:
    found = {
        f"{path.relative_to(ROOT)}: {url}"
        for path in (ROOT / folder).rglob("*")
        if path.is_file()
        for url in re.findall(r"https?://[^\s\"'<>)]+", path.read_text())
        if "www.w3.org" not in url
    }
    assert found == set()


def test_templates_hold_no_inline_script_and_no_event_attributes() -> None:
    for path in (ROOT / "templates").rglob("*.html"):
        text = path.read_text()
        assert not re.search(r"<script(?![^>]*\bsrc=)", text), path
        assert not re.search(r"\son[a-z]+\s*=", text), path
        assert "javascript:" not in text and "|safe" not in text and "autoescape" not in text, path


async def test_static_files_come_whole_under_asgi_without_a_warning() -> None:
    whole = (ROOT / "static/js/app.js").read_bytes()
    client = AsyncClient()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        answer = await client.get("/static/js/app.js")
        part = await client.get("/static/js/app.js", headers={"Range": "bytes=3-12"})
        head = await client.head("/static/js/app.js")
        unchanged = await client.get("/static/js/app.js", headers={"If-None-Match": answer["ETag"]})
    assert (answer.status_code, answer.streaming, answer.content) == (200, False, whole)
    assert answer["Content-Type"].startswith("text/javascript")
    assert (part.status_code, part.content) == (206, whole[3:13])
    assert (head.content, head["Content-Length"]) == (b"", str(len(whole)))
    assert (unchanged.status_code, unchanged.content) == (304, b"")
