"""A drill's page and its report on paper, for somebody who was not there."""

from __future__ import annotations

import re
from collections.abc import Callable

from dashboard.scene import GB, Scene
from django.test import Client

from apps.drills.models import Drill

SignIn = Callable[[str], Client]


def text_of(html: str) -> str:
    return re.sub(r"\s+", " ", re.sub("<[^>]*>", " ", html.replace("\N{NO-BREAK SPACE}", " ")))


def test_the_page_tells_what_came_out_who_was_last_and_what_is_not_proven(scene: Scene, signed_in: SignIn) -> None:
    html = signed_in("viewer").get(f"/drills/{scene.herd.pk}/").content.decode()
    text = text_of(html)
    assert "64.0 GB were read in 12 s of 90 s, and every byte matched its manifest." in text
    assert "Rank 2 on gpu-03 ended 3.6 s after the median: it read at 0.71 of the others' rate." in text.replace(
        "&#x27;", "'"
    )
    for heading in ("What was asked", "What was done", "What it does not prove"):
        assert f"<h2>{heading}</h2>" in html, heading
    assert f'href="/drills/{scene.herd.pk}/print/"' in html


def test_a_failover_is_held_against_the_one_before(scene: Scene, signed_in: SignIn) -> None:
    html = signed_in("viewer").get(f"/drills/{scene.failover.pk}/").content.decode()
    before = Drill.objects.filter(kind="failover").exclude(pk=scene.failover.pk).latest("created_at")
    assert "Compared:</b>" in html and f'href="/drills/{before.pk}/"' in html
    assert "As long as the last comparable drill" in text_of(html)


def test_a_running_drill_has_no_story_yet(scene: Scene, signed_in: SignIn) -> None:
    html = signed_in("viewer").get(f"/drills/{scene.running.pk}/").content.decode()
    assert "Agents are reading." in html and "What it does not prove" not in html and "/print/" not in html


def test_a_rate_above_the_ceiling_is_no_percentage(scene: Scene, signed_in: SignIn) -> None:
    ceiling = {"bytes_per_second": 3.0 * GB, "client_count": 4, "method": "fio", "measured_at": "2026-05-01T00:00:00Z"}
    Drill.objects.filter(pk=scene.herd.pk).update(facts={"ceiling": ceiling, "client_ceiling": ceiling})
    for url in (f"/drills/{scene.herd.pk}/", f"/drills/{scene.herd.pk}/print/"):
        text = text_of(signed_in("viewer").get(url).content.decode())
        assert "1.37 times the measured ceiling (3.00 GB/s with 4 clients)" in text, url
        assert "136.7 %" not in text and "137 %" not in text, url


def test_the_report_stands_alone_on_paper(scene: Scene, signed_in: SignIn) -> None:
    html = signed_in("viewer").get(f"/drills/{scene.herd.pk}/print/").content.decode()
    assert html.count("<tr>") > 4 and html.count('class="bar"') == 4
    assert "data-live" not in html and "data-chart" not in html, "paper neither polls nor draws"
    text = text_of(html)
    for words in (
        scene.herd.pk,
        "h100-east",
        "olga",
        "not measured",
        "host_direct (asked: auto)",
        "one drill is one sample",
    ):
        assert words in text, words
    failed = text_of(signed_in("viewer").get(f"/drills/{scene.failed.pk}/print/").content.decode())
    assert "gpu-02 did not answer within 300 s" in failed and "It did not pass" in failed
    assert signed_in("stranger").get(f"/drills/{scene.herd.pk}/print/").status_code == 404
