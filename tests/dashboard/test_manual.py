"""The manual: docs/*.md as pages that anybody may read, with anchors that findings link to, and a search."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from muster_agent.formats.codes import CODES

from apps.dashboard.manual import contents, library
from apps.dashboard.manual.rendering import Section, anchor_of, render
from apps.dashboard.manual.search import Entry, search, snippet

pytestmark = pytest.mark.django_db
ROOT = Path(__file__).resolve().parents[2]
DOCS = sorted((ROOT / "docs").glob("*.md"))


def rendered(text: str) -> Any:
    return render(text, slugs=frozenset({"findings", "drills"}), prefix="/manual/")


def test_every_document_is_a_page_for_everybody(client: Client, django_assert_max_num_queries: Any) -> None:
    for path in DOCS:
        with django_assert_max_num_queries(0):
            answer = client.get(f"/manual/{path.stem}/")
        assert answer.status_code == 200, path
        assert len(answer.content) < 300_000, path
    assert client.get("/manual/").status_code == 200


def test_a_page_that_is_not_there_is_a_404(client: Client) -> None:
    assert client.get("/manual/nothing/").status_code == 404
    assert client.get("/manual/..%2fREADME/").status_code == 404


def test_every_finding_code_leads_to_its_meaning_and_cure(client: Client) -> None:
    html = client.get("/manual/findings/").content.decode()
    for code in CODES:
        row = re.search(rf'<tr id="{code}">(.*?)</tr>', html, flags=re.S)
        assert row is not None, code
        assert row[1].count("<td>") == 4


def test_settings_and_metrics_can_be_linked_to_by_name() -> None:
    pages = contents.pages()
    assert {"MUSTER_SECRET_KEY", "DATABASE_URL"} <= library.rendered(pages["settings"]).anchors
    assert {"muster_watching", "muster_agents"} <= library.rendered(pages["monitoring"]).anchors


def test_the_pages_show_no_markup_of_their_source(client: Client) -> None:
    for path in DOCS:
        html = client.get(f"/manual/{path.stem}/").content.decode()
        article = re.sub(
            r"<(code|pre)\b.*?</\1>", "", html[html.index("<article") : html.index("</article>")], flags=re.S
        )
        text = re.sub(r"<[^>]+>", "", article)
        assert "](" not in text, path
        assert "| ---" not in text, path
        assert "**" not in text, path


def test_links_inside_the_documents_lead_somewhere() -> None:
    """To a page and an anchor of the manual, or to a file of the repository."""
    pages = contents.pages()
    for path in [*DOCS, ROOT / "README.md", ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md"]:
        for target in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"```.*?```", "", path.read_text(), flags=re.S)):
            if re.match("https?://", target):
                continue
            name, _hash, anchor = target.partition("#")
            file = (path.parent / name).resolve() if name else path
            assert file.exists(), f"{path.name}: {target}"
            if anchor and file.parent == ROOT / "docs":
                assert anchor in library.rendered(pages[file.stem]).anchors, f"{path.name}: {target}"


# -- rendering ---------------------------------------------------------------------------------------------------------


def test_html_and_scripts_in_a_document_are_text() -> None:
    html = rendered('<script>alert(1)</script>\n\n[x](javascript:alert(1)) <b onclick="x">').html
    assert "<script" not in html
    assert "<b " not in html
    assert 'href="javascript' not in html


def test_links_to_pages_stay_in_the_manual_and_links_to_other_files_are_text() -> None:
    html = rendered("[a](findings.md#shard_missing) [b](../DECISIONS.md) [c](https://example.org/x)").html
    assert '<a href="/manual/findings/#shard_missing">a</a>' in html
    assert "<a" not in html.split(" b ")[0].split("</a>")[1]
    assert '<a href="https://example.org/x">c</a>' in html


def test_headings_of_one_name_have_anchors_of_their_own() -> None:
    assert [heading.anchor for heading in rendered("# A b\n\n## Then, what?\n\n## Then, what?").headings] == [
        "a-b",
        "then-what",
        "then-what-1",
    ]
    assert anchor_of("`muster seal` & friends") == "muster-seal--friends"


def test_a_row_that_explains_a_name_is_a_section() -> None:
    sections = rendered(
        "# T\n\n| code | cure |\n|---|---|\n| `shard_missing` | Copy it back. |\n| other | no |"
    ).sections
    assert [one.anchor for one in sections] == ["shard_missing", "t"]
    assert sections[0].text == "shard_missing: Copy it back."


# -- the search --------------------------------------------------------------------------------------------------------


def entry(heading: str, text: str, title: str = "Page") -> Entry:
    return Entry("page", title, Section(heading, "x", text))


def test_every_word_has_to_be_there_and_a_name_itself_comes_first() -> None:
    entries = [entry("Other", "shard_missing shard_missing"), entry("shard_missing", "copy"), entry("No", "shard")]
    assert [found.entry.section.heading for found in search(entries, "shard_missing")] == ["shard_missing", "Other"]
    assert search(entries, "shard_missing absent") == []
    assert search(entries, "  ") == []


def test_a_snippet_shows_what_was_found() -> None:
    pieces = snippet("word " * 50 + "The Cure is here" + " word" * 50, ["cure"])
    assert [text for text, found in pieces if found] == ["Cure"]
    assert sum(len(text) for text, _found in pieces) < 240


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("shard_missing", "/manual/findings/#shard_missing"),
        ("MUSTER_WORKER_ROOTS", "/manual/settings/#MUSTER_WORKER_ROOTS"),
        ("restore backup", "/manual/operations/#"),
        ("loader_compare", "/manual/"),
    ],
)
def test_people_find_what_they_look_for(client: Client, query: str, first: str) -> None:
    html = client.get("/manual/", {"q": query}).content.decode()
    links = re.findall(r'<li><a href="(/manual/[^"]+)">', html.split("manual-results")[1])
    assert links[0].startswith(first)


@pytest.mark.parametrize("query", ["<script>alert(1)</script>", '"><img src=x>', "(" * 500, "ﬃ%s{{ x }}"])
def test_no_query_breaks_the_page(client: Client, query: str) -> None:
    answer = client.get("/manual/", {"q": query})
    assert answer.status_code == 200
    assert "<script>alert" not in answer.content.decode()
    assert "<img src=x" not in answer.content.decode()
