"""Figures and their sentences: made from all of the data, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from dashboard.scene import Scene
from django.test import Client

from apps.dashboard.bars import bar
from apps.dashboard.charts import (
    figure,
    herd,
    ranks,
    rto,
    trend,
)
from apps.dashboard.live import progress_of
from apps.dashboard.templatetags.pages import prose
from apps.recovery.trials import Trial, summary

START = datetime(2026, 11, 1, 3, tzinfo=UTC)


def point(day: int, seconds: float = 80.0, *, objective: float | None = 90.0, **phases: float) -> rto.Point:
    return rto.Point(
        drill_id=f"drl_{day}",
        at=START + timedelta(days=day),
        seconds=seconds,
        phases=phases or {"read": seconds - 10, "first_step": 10.0},
        objective_seconds=objective,
        breached=objective is not None and seconds > objective,
    )


def dot(day: float, seconds: float = 80.0, *, objective: float | None = 90.0) -> trend.Dot:
    late = objective is not None and seconds > objective
    return trend.Dot(f"drl_{day}", START + timedelta(days=day), seconds, objective, late)


def client(rank: int, read: float, start: float = 0.0) -> ranks.Client:
    return ranks.Client(f"rank {rank}", f"gpu-{rank}", start, read + 1, {"read": read, "verify": 1.0}, 1e9 / read)


def test_a_bar_scales_its_phases_to_the_time_and_shows_the_rest_hatched() -> None:
    made = bar({"read": 6.0, "verify": 2.0}, 10.0, 20.0)
    assert made is not None
    assert [(piece[0], piece[1]) for piece in made.pieces] == [
        ("ph-read", "28.30"),
        ("ph-verify", "9.43"),
        ("rest", "9.43"),
    ]
    assert made.objective_percent == "94.34"
    assert "Read 6.0 s" in made.label and "Not attributed to a phase 2.0 s" in made.label


def test_a_bar_of_nothing_measured_is_none() -> None:
    assert bar({}, None, 90.0) is None


def test_the_history_says_p95_only_where_20_drills_allow_it() -> None:
    few = rto.verdict([point(day) for day in range(19)], "failover")
    many = rto.verdict([point(day) for day in range(20)], "failover")
    assert "max 80 s over 19 drills" in few and "p95" not in few
    assert "p95 80 s over 20 drills" in many
    assert trend.verdict([dot(day) for day in range(7)]).startswith("n = 7: dots only")


def test_the_history_names_the_phase_that_grew() -> None:
    points = [point(day, 60 + 4 * day, read=40 + 4.0 * day, launch=20.0) for day in range(8)]
    assert "Read grew 35 % since 1 Nov." in rto.verdict(points, "failover")


def test_breaches_are_counted_by_each_drills_own_objective() -> None:
    points = [point(0, 80), point(1, 95), point(2, 95, objective=100.0)]
    assert "objective 100 s, 1 of 3 breached" in rto.verdict(points, "failover")
    marked = [trace for trace in rto.figure(points, "failover")["data"] if trace["name"] == "breached"]
    assert marked[0]["y"] == [95]


@pytest.mark.parametrize(("count", "misses", "more"), [(12, 0, 47), (59, 0, 0), (60, 1, 33)])
def test_the_claim_of_95_percent_takes_59_passes_in_a_row(count: int, misses: int, more: int) -> None:
    trials = [
        Trial(at=START - timedelta(days=day), seconds=80.0, is_met=day >= misses, phases={}) for day in range(count)
    ]
    words = rto.claim(summary(trials, START))
    assert (f"{more} more in time are needed" in words) if more else ("enough to claim" in words)


def test_one_drill_makes_no_statistics() -> None:
    assert rto.verdict([point(0)], "failover").startswith("80 s in the one drill so far; objective 90 s, all in time.")
    assert rto.verdict([], "reload") == "No drill of this kind has restored yet."


def test_a_phase_that_no_drill_measured_has_no_trace_and_one_that_some_did_leaves_gaps() -> None:
    traces = {
        trace["name"]: trace
        for trace in rto.figure([point(0, 10, read=9.0), point(1, 10, launch=9.0)], "failover")["data"]
    }
    assert traces["Read"]["y"] == [9.0, None] and traces["Launch"]["y"] == [None, 9.0]
    assert "Verify" not in traces


def test_storage_only_kinds_are_never_called_a_time_to_resume() -> None:
    assert rto.measure_of("failover") == "Time to resume"
    assert rto.measure_of("herd") == rto.measure_of("reload") == "Time to reload, storage part only"


def test_two_drills_in_one_minute_keep_bars_of_their_own() -> None:
    close = [point(0), rto.Point("b", START + timedelta(seconds=20), 50, {"read": 40.0}, None, False)]
    names = rto.figure(close, "reload")["data"][0]["x"]
    assert len(set(names)) == 2


def test_the_straggler_is_named_with_the_phase_that_cost_it() -> None:
    clients = [client(rank, 10) for rank in range(4)] + [client(7, 19)]
    assert ranks.verdict(clients) == "Rank 7 on gpu-7 finished 9.0 s after the median; 9.0 s of it in read."
    assert "no straggler" in ranks.verdict([client(rank, 10 + rank / 100) for rank in range(4)])


def test_a_thousand_clients_show_the_last_48_and_say_so() -> None:
    clients = [client(rank, 10 + rank / 100) for rank in range(1000)]
    chart = ranks.chart(clients, "/x")
    assert len(chart.rows) == 64 and "64 of 1000 clients" in chart.note
    assert chart.rows[-1][0] == "rank 999"
    assert len(json.dumps(ranks.figure(clients, 90.0))) < figure.MAX_BYTES


def test_an_objective_far_away_does_not_squeeze_the_bars() -> None:
    assert "shapes" not in ranks.figure([client(1, 10), client(2, 11)], 900.0)["layout"]
    assert ranks.figure([client(1, 10), client(2, 11)], 12.0)["layout"]["shapes"]


def test_the_ladder_says_where_scaling_stops() -> None:
    steps = [herd.Step(1, 2e9, 8.0, 1.0), herd.Step(2, 3.9e9, 8.2, 0.99), herd.Step(4, 4.2e9, 15.0, 0.9)]
    assert "stops scaling at 4 clients: +8 % per doubling from 2 to 4" in herd.verdict(steps)
    assert "still gained at least 20%" in herd.verdict(steps[:2])
    assert herd.figure(steps)["data"][0]["y"] == [2.0, 4.0, 8.0]


def test_names_in_figures_are_inert() -> None:
    hostile = ranks.Client("<b>x</b>", "<img src=x>", 0.0, 2.0, {"read": 1.0}, None)
    text = json.dumps(ranks.figure([hostile], None))
    assert "<img" not in text and "&lt;img" in text


def test_colours_are_variables_so_that_both_themes_share_one_figure() -> None:
    text = json.dumps(rto.figure([point(day) for day in range(3)], "failover"))
    assert "var(--phase-read)" in text and '"#' not in text


def test_progress_that_was_not_reported_is_none() -> None:
    class Task:
        def __init__(self, progress: dict[str, Any]) -> None:
            self.progress = progress
            self.agent = type("A", (), {"node": type("N", (), {"name": "gpu-1"})})

    lines = progress_of(
        [Task({}), Task({"phase": "read", "done_bytes": 3, "total_bytes": 4}), Task({"done_bytes": True})]
    )
    assert [line.percent for line in lines] == [None, "75", None]


def test_chart_endpoints_answer_an_unchanged_figure_with_304(scene: Scene, signed_in: Callable[[str], Client]) -> None:
    viewer = signed_in("viewer")
    urls = [
        f"/charts/rto.json?run={scene.llama.pk}&kind=failover",
        f"/charts/trend.json?run={scene.llama.pk}&kind=failover",
        f"/charts/ranks.json?drill={scene.herd.pk}",
        f"/charts/herd.json?drill={scene.herd.pk}",
        f"/charts/budget.json?run={scene.llama.pk}&kind=failover",
        f"/charts/finish.json?drill={scene.herd.pk}",
        f"/charts/throughput.json?drill={scene.herd.pk}",
    ]
    for url in urls:
        answer = viewer.get(url)
        assert answer.status_code == 200 and answer["Content-Type"] == "application/json"
        assert answer.json()["data"] and len(answer.content) <= figure.MAX_BYTES
        again = viewer.get(url, headers={"If-None-Match": answer["ETag"]})
        assert again.status_code == 304 and again.content == b""
    stranger = signed_in("stranger")
    assert {stranger.get(url).status_code for url in urls} == {404}
    assert viewer.get("/charts/nonsense.json").status_code == 404


def test_prose_groups_large_numbers_shows_code_and_lets_nothing_run() -> None:
    shown = prose("bytes 33554432 to 37748736 of rank-00003.bin, see `muster verify` <b>now</b>")
    assert shown == (
        "bytes 33,554,432 to 37,748,736 of rank-00003.bin, see <code>muster verify</code> &lt;b&gt;now&lt;/b&gt;"
    )
    assert prose("a lone ` <i>tick") == "a lone ` &lt;i&gt;tick"


def test_the_spread_of_one_drill_has_an_axis_of_whole_minutes() -> None:
    one = trend.figure([dot(0)])["layout"]["xaxis"]
    assert one["range"] == ["2026-11-01T02:30:00+00:00", "2026-11-01T03:30:00+00:00"]
    assert one["tickformat"] == "%H:%M<br>%d %b"
    many = trend.figure([dot(day) for day in range(20)])["layout"]["xaxis"]
    assert many["range"][0] < START.isoformat() and "tickformat" not in many
    assert trend.figure([])["data"] == []
