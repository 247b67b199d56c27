"""Lists: what their URL says of them, how many rows each filter leaves, and all that match as a file."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from urllib.parse import quote

import factories
import pytest
from dashboard.scene import Scene
from django.db import connection
from django.test import AsyncClient, Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from apps.accounts import activity
from apps.accounts.models import ActivityEntry, Role
from apps.accounts.services import log_activity
from apps.dashboard.lists import export
from apps.dashboard.lists.catalogue import LISTS
from apps.drills.models import Drill

SignIn = Callable[[str], Client]
FACET = re.compile(r'<a href="([^"]*)"( aria-current="true")?>([^<]*?) <span class="n">([^<]*)</span></a>')


def counts(html: str) -> dict[str, str]:
    """Of every counted filter: its label and the number beside it."""
    return {label: count for _url, _current, label, count in FACET.findall(html)}


def drills(scene: Scene, number: int, **fields: Any) -> list[Drill]:
    """So many finished drills, each a minute older than the one before, long ago."""
    at = timezone.now() - timedelta(days=40)
    values: dict[str, Any] = {"kind": "reload", "state": "finished", "outcome": "passed", "requested_by": "olga"}
    rows = [
        Drill(run=scene.llama, cluster=scene.east, created_at=at - timedelta(minutes=one), **{**values, **fields})
        for one in range(number)
    ]
    return Drill.objects.bulk_create(rows)


def body_of(answer: Any) -> str:
    return b"".join(answer.streaming_content).decode()


def test_each_filter_says_how_many_rows_it_would_leave_of_those_that_the_others_leave(
    scene: Scene, signed_in: SignIn
) -> None:
    client = signed_in("viewer")
    drills(scene, 7, kind="bandwidth", outcome="cancelled")
    drills(scene, 2, kind="bandwidth", outcome="failed")
    shown = counts(client.get("/drills/?kind=bandwidth").content.decode())
    assert (shown["cancelled"], shown["failed"], shown["passed"]) == ("7", "2", "0")
    assert shown["bandwidth"] == "9"
    narrowed = counts(client.get("/drills/?kind=bandwidth&outcome=failed").content.decode())
    assert (narrowed["bandwidth"], narrowed["cancelled"]) == ("2", "7")


def test_every_list_counts_its_filters_as_its_pages_do(scene: Scene, signed_in: SignIn) -> None:
    client = signed_in("viewer")
    for spec in LISTS.values():
        html = client.get(reverse(spec.name)).content.decode()
        for url, _current, label, count in FACET.findall(html):
            found = client.get(reverse(spec.name) + url.replace("&amp;", "&")).content.decode()
            match = re.search(r"<span>\d+ of ([\d,]+\+?)</span>", found)
            assert (match.group(1) if match else "0") == count, (spec.name, label)


def test_counts_are_exact_to_ten_thousand_and_then_say_that_there_are_more(db: None, client: Client) -> None:
    now = timezone.now()
    rows = [ActivityEntry(at=now, actor="a", action="b", target_kind="c", target_id=str(one)) for one in range(10_000)]
    activity.append(rows)
    client.force_login(factories.user("ada", Role.ADMIN))
    assert "50 of 10,000<" in client.get("/activity/").content.decode()
    log_activity(actor="a", action="b", target_kind="c", target_id="more")
    assert "50 of 10,000+" in client.get("/activity/").content.decode()


def test_a_page_has_as_many_rows_as_asked_for_and_refuses_nonsense(scene: Scene, signed_in: SignIn) -> None:
    drills(scene, 120)
    client = signed_in("viewer")
    assert "50 of " in client.get("/drills/").content.decode()
    html = client.get("/drills/?limit=100").content.decode()
    assert html.count("<tr data-row") == 100
    assert "limit=100" in re.search(r'href="(\?[^"]*)" rel="next"', html).group(1)  # type: ignore[union-attr]
    more = client.get("/drills/?limit=200")  # rows this long: this list has less
    assert more.status_code == 422 and "from 25 to 100" in more.content.decode()
    assert ">200<" not in html
    for wrong in ("24", "201", "x", "-1"):
        answer = client.get(f"/runs/?limit={wrong}")
        assert answer.status_code == 422 and b"from 25 to 200" in answer.content, wrong


def test_since_and_until_bound_the_list_and_say_what_they_take(scene: Scene, signed_in: SignIn) -> None:
    drills(scene, 3)
    client = signed_in("viewer")
    old = (timezone.now() - timedelta(days=30)).strftime("%Y-%m-%dT%H:%MZ")
    assert "3 of 3" in client.get(f"/drills/?until={old}").content.decode()
    recent = client.get("/drills/?since=24h").content.decode()
    within = Drill.objects.filter(created_at__gte=timezone.now() - timedelta(hours=24)).count()
    assert 'aria-current="true">24 hours' in recent and f"{within} of {within}<" in recent
    for name in ("since", "until"):
        answer = client.get(f"/drills/?{name}=yesterday")
        assert answer.status_code == 422 and f"Give {name} as an age".encode() in answer.content


def test_a_sort_holds_over_pages_and_a_cursor_of_another_is_refused(scene: Scene, signed_in: SignIn) -> None:
    drills(scene, 60)
    client = signed_in("viewer")
    first = client.get("/drills/?sort=oldest&limit=25").content.decode()
    target = re.search(r'href="(\?[^"]*)" rel="next"', first).group(1).replace("&amp;", "&")  # type: ignore[union-attr]
    seen = [*ids(first), *ids(client.get("/drills/" + target).content.decode())]
    expected = Drill.objects.order_by("created_at", "pk").values_list("pk", flat=True)[:50]
    assert seen == list(expected)
    answer = client.get("/drills/" + target.replace("sort=oldest", "sort=newest"))
    assert answer.status_code == 422 and b"another sort order" in answer.content


def ids(html: str) -> list[str]:
    return re.findall(r'<td class="who"><a href="/drills/(\w+)/"', html)


def test_an_export_has_every_row_that_matches_in_the_order_of_the_list(scene: Scene, signed_in: SignIn) -> None:
    drills(scene, 3 * export.CHUNK // 2, outcome="cancelled")
    client = signed_in("viewer")
    answer = client.get("/export/drills.csv?outcome=cancelled&sort=oldest")
    assert answer["Content-Type"] == "text/csv; charset=utf-8"
    assert re.search(r'filename="drills-\d{8}T\d{4}Z.csv"', answer["Content-Disposition"])
    rows = list(csv.DictReader(io.StringIO(body_of(answer))))
    expected = Drill.objects.filter(outcome="cancelled").order_by("created_at", "pk").values_list("pk", flat=True)
    assert [row["id"] for row in rows] == list(expected)
    assert {row["run"] for row in rows} == {scene.llama.name}
    found = json.loads(body_of(client.get("/export/drills.json?outcome=cancelled&sort=oldest")))
    assert [row["id"] for row in found] == list(expected)
    assert set(found[0]) == set(rows[0])
    assert found[0]["seconds"] is None and rows[0]["seconds"] == ""


def test_every_list_has_an_export_in_both_formats(scene: Scene, signed_in: SignIn) -> None:
    client = signed_in("viewer")
    for name, spec in LISTS.items():
        names = [column for column, _path in spec.columns]
        rows = list(csv.reader(io.StringIO(body_of(client.get(f"/export/{name}.csv")))))
        assert rows[0] == names, name
        found = json.loads(body_of(client.get(f"/export/{name}.json")))
        assert len(found) == len(rows) - 1, name
    assert client.get("/export/drills.xls").status_code == 404
    assert client.get("/export/users.csv").status_code == 404


def test_an_export_shows_nobody_rows_out_of_sight(scene: Scene, signed_in: SignIn) -> None:
    stranger = signed_in("stranger")
    for name in LISTS:
        answer = stranger.get(f"/export/{name}.json")
        if name in ("activity", "channels", "deliveries"):  # of no single cluster
            assert answer.status_code == 403, name
            continue
        rows = json.loads(body_of(answer))
        assert [row.get("name") for row in rows] == (["elsewhere"] if name == "clusters" else []), name
    assert signed_in("nobody").get("/export/drills.csv").status_code == 403


def test_an_export_reads_a_bounded_number_of_rows_at_a_time(scene: Scene, signed_in: SignIn) -> None:
    drills(scene, 2 * export.CHUNK)
    answer = signed_in("viewer").get("/export/drills.csv")
    stream = iter(answer.streaming_content)  # type: ignore[attr-defined]
    with CaptureQueriesContext(
        connection,
    ) as queries:
        first = next(stream)
    assert len(first.splitlines()) == export.CHUNK + 1
    assert len(queries) == 1


@pytest.mark.django_db(transaction=True)
async def test_under_asgi_an_export_is_sent_as_it_is_read() -> None:
    from asgiref.sync import sync_to_async

    def seed() -> Any:
        east = factories.cluster()
        for number in range(3):
            factories.run(east, f"run-{number}")
        return factories.user("vera", Role.VIEWER)

    client = AsyncClient()
    await client.aforce_login(await sync_to_async(seed)())
    answer = await client.get("/export/runs.json")
    assert answer.is_async  # type: ignore[attr-defined]
    text = b"".join([part async for part in answer.streaming_content]).decode()  # type: ignore[attr-defined]
    assert [row["name"] for row in json.loads(text)] == ["run-2", "run-1", "run-0"]


def test_what_a_link_narrows_by_shows_and_can_be_dropped(scene: Scene, signed_in: SignIn) -> None:
    html = signed_in("viewer").get(f"/audits/?run={scene.moe.pk}&mode=verify").content.decode()
    assert f"run {scene.moe.pk}" in html
    assert 'href="?mode=verify" aria-label="Do not narrow by run"' in html


@pytest.mark.parametrize("text", ["100%", "a_b", "\\", "'", "x" * 500, "1,000", "٣"])
def test_a_search_takes_any_text(scene: Scene, signed_in: SignIn, text: str) -> None:
    client = signed_in("viewer")
    for name, spec in LISTS.items():
        if spec.search_for:
            assert client.get(f"/export/{name}.csv?q={quote(text)}").status_code == 200, name
