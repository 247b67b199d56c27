"""Figures and their sentences: made from all of the data, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from dashboard.scene import Scene, factories_drill
from django.test import Client
from django.utils import timezone

from apps.core import units
from apps.dashboard.bars import bar
from apps.dashboard.charts import budget, figure, finish, herd, node_rates, ranks, rto, throughput, trend, what_if
from apps.dashboard.charts.decimate import extremes
from apps.dashboard.live import progress_of
from apps.dashboard.selectors import analysis, inside
from apps.dashboard.selectors import drills as drill_rows
from apps.dashboard.standing import linked
from apps.dashboard.templatetags.pages import prose
from apps.drills.models import Drill
from apps.recovery import rto as statistics
from apps.recovery.scaling import Ceiling, Model, rates
from apps.recovery.trials import Trial
from apps.recovery.what_if import Question

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
    return trend.Dot(START + timedelta(days=day), seconds, objective, late)


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
    points = [point(day, 95 if day < misses else 80) for day in range(count)]
    words = rto.claim(points)
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


def test_sentences_link_whole_steps_only() -> None:
    parts = linked(
        "Passed over (audit aud_1 at 2026-11-01T00:00:00Z): bytes 12582912 differ. Resumes at step 120, not step 12.",
        {"step 12": "/a", "step 120": "/b"},
    )
    assert [(part.text, part.url) for part in parts if part.url] == [("step 120", "/b"), ("step 12", "/a")]
    assert (
        "".join(part.text for part in parts)
        == "Passed over: bytes 12,582,912 differ. Resumes at step 120, not step 12."
    )


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


def test_the_band_begins_with_the_twentieth_drill_and_every_level_was_measured() -> None:
    few, many = [dot(day) for day in range(19)], [dot(day, 60.0 + day) for day in range(25)]
    assert trend.rolling(few) == []
    levels = trend.rolling(many)
    assert len(levels) == 6 and (levels[0].p50, levels[0].p95) == (69.5, 78.0)
    names = [trace["name"] for trace in trend.figure(many)["data"]]
    assert names == ["rolling p50", "up to p95", "in time"]


def test_ten_thousand_drills_stay_under_a_megabyte_and_keep_their_extremes() -> None:
    dots = [dot(hour / 24, 60 + (hour * 7919 % 1000) / 50, objective=78.0) for hour in range(10_000)]
    drawn = trend.figure(dots)
    assert len(json.dumps(drawn)) <= figure.MAX_BYTES
    shown = [value for trace in drawn["data"] if trace["mode"] == "markers" for value in trace["y"]]
    assert len(shown) == trend.drawn_count(dots) == 2990
    assert (min(shown), max(shown)) == (min(one.seconds for one in dots), max(one.seconds for one in dots))
    chart = trend.chart(dots, "/x")
    assert "2,990 of 10,000 dots are drawn" in chart.note and "n = 10,000" in chart.verdict
    assert len(chart.rows) == 61 and sum(int(row[1].replace(",", "")) for row in chart.rows) == 10_000


def test_numbers_come_from_all_drills_whatever_is_drawn() -> None:
    dots = [dot(hour / 24, float(hour % 997)) for hour in range(10_000)]
    spread = statistics.spread([one.seconds for one in dots])
    assert spread is not None and spread.p95 is not None
    assert f"half within {units.duration(spread.p50)}, 95 % within {units.duration(spread.p95)}" in trend.verdict(dots)


def test_decimation_keeps_the_order_and_both_extremes_of_each_stretch() -> None:
    series = [(number * 37) % 101 for number in range(1000)]
    kept = extremes(list(enumerate(series)), 100, lambda pair: pair[1])
    assert len(kept) <= 100 and kept == sorted(kept)
    for number in range(50):
        stretch = series[number * 20 : number * 20 + 20]
        values = [value for at, value in kept if number * 20 <= at < number * 20 + 20]
        assert {min(stretch), max(stretch)} <= set(values)
    assert extremes([1, 2, 3], 10, float) == [1, 2, 3]


def test_older_weeks_stand_as_a_drill_that_really_ran(scene: Scene) -> None:
    """Of 230 drills the newest 200 are bars of their own; older ones are their week's median, whose phases add up."""
    Drill.objects.filter(run=scene.empty_run).delete()
    now = timezone.now()
    for number in range(230):
        seconds = 50.0 + number % 7
        factories_drill(
            scene.empty_run, now - timedelta(days=number), kind="failover", seconds=seconds, phases={"read": seconds}
        )
    points = analysis.points(scene.empty_run, "failover")
    weeks = analysis.older_weeks(scene.empty_run, "failover", points)
    assert len(points) == 200 and sum(week.of_week for week in weeks) == 30
    assert all(week.phases == {"read": week.seconds} for week in weeks)
    assert [week.at for week in weeks] == sorted(week.at for week in weeks) and weeks[-1].at < points[0].at
    chart = rto.chart(points, "failover", "/x", weeks)
    assert "The newest 200 of 230 drills" in chart.note
    assert "over 200 drills" in chart.verdict


def trial(days_ago: float, *, late: bool = False, failed: bool = False) -> Trial:
    at = START - timedelta(days=days_ago)
    return Trial(at=at, seconds=None if failed else 80.0, is_met=None if failed else not late, phases={})


def test_the_budget_steps_down_at_every_miss_and_says_what_is_left() -> None:
    found = [trial(1), trial(2, late=True), trial(3), trial(40, late=True)]
    drawn = budget.figure(found, START)
    assert drawn["data"][0]["y"] == [1, 1, 0, 0, 0]
    assert budget.chart(found, START, "/x").verdict == "3 judged drills in 28 days may have 1 miss. 1 is used, 0 left."
    over = [trial(1, late=True), trial(2, failed=True)]
    assert budget.chart(over, START, "/x").verdict.endswith("2 are used, 1 more than that.")
    assert {trace["name"] for trace in budget.figure(over, START)["data"]} == {"left", "late", "not restored"}
    assert budget.chart([], START, "/x").is_empty


def cell(node: str, drill: int, rate: float) -> node_rates.Cell:
    return node_rates.Cell(node, f"drl_{drill}", START + timedelta(days=drill), rate)


def test_a_slow_node_is_named_first_with_how_often_it_came_last() -> None:
    cells = [cell(f"gpu-{node}", drill, 0.5e9 if node == 7 else 1e9) for node in range(1, 9) for drill in range(5)]
    grid = node_rates.grid(cells)
    assert grid.lines[0].node == "gpu-7" and grid.lines[0].last_count == 5
    assert node_rates.verdict(grid) == "gpu-7 reads slowest: half of its 5 drills below 0.50 of the median, last in 5."
    drawn = node_rates.figure(grid)["data"][0]
    assert drawn["z"][0] == [0.5] * 5 and drawn["z"][1] == [1.0] * 5 and "texttemplate" in drawn


def test_even_nodes_are_not_called_slow_and_one_client_compares_with_nothing() -> None:
    even = node_rates.grid([cell(f"gpu-{node}", drill, 1e9 + node) for node in range(4) for drill in range(3)])
    assert "No node is clearly slow over 3 drills" in node_rates.verdict(even)
    assert node_rates.grid([cell("gpu-1", 0, 1e9)]).lines == []
    assert node_rates.chart(node_rates.grid([]), "/x").is_empty


def test_a_thousand_nodes_in_forty_drills_stay_under_a_megabyte_and_say_how_many_are_shown() -> None:
    cells = [cell(f"gpu-{node:04d}", drill, 1e9 + node * drill) for node in range(1000) for drill in range(40)]
    grid = node_rates.grid(cells)
    assert len(json.dumps(node_rates.figure(grid))) <= figure.MAX_BYTES
    chart = node_rates.chart(grid, "/x")
    assert len(chart.rows) == 200 and "The 200 slowest of 1,000 nodes" in chart.note


def test_when_clients_had_finished_is_told_with_a_p95_only_from_twenty_on() -> None:
    few = [client(rank, 10 + rank) for rank in range(4)]
    many = [client(rank, 10 + rank) for rank in range(20)]
    assert (
        finish.verdict(few) == "Half of the 4 clients had finished after 12 s, the last, rank 3 on gpu-3, after 14 s."
    )
    assert "95 % after 29 s" in finish.verdict(many)
    assert finish.curve(few) == [(11.0, 0.25), (12.0, 0.5), (13.0, 0.75), (14.0, 1.0)]
    assert finish.chart(few, "/x").rows[0] == ("rank 3", "gpu-3", "14 s", "Read", "2.0 s")


def test_sixteen_thousand_clients_are_512_quantiles_and_the_last_50() -> None:
    many = [client(rank, 10 + rank / 1000) for rank in range(16_384)]
    steps = finish.curve(many)
    assert len(steps) == 562 and steps[-1] == (pytest.approx(27.383), 1.0)
    assert "562 of 16,384 clients are drawn" in finish.chart(many, "/x").note


def track(begin: float, end: float, total: int, reports: int = 4) -> throughput.Track:
    step = (end - begin) / reports
    return throughput.Track(
        tuple((begin + number * step, total * number // reports) for number in range(reports + 1)), reports
    )


def test_throughput_counts_every_byte_once_and_tells_the_tail() -> None:
    tracks = [track(0, 4, 4_000_000_000), track(0, 4, 4_000_000_000), track(0, 10, 4_000_000_000)]
    found = throughput.bins(tracks)
    width = found[1].begin_seconds
    assert sum(one.bytes_per_second for one in found) * width == pytest.approx(12e9)
    assert (found[0].active_count, found[-1].active_count) == (3, 1)
    assert throughput.verdict(found) == (
        "At most 2.40 GB/s together, with 3 clients reading; for the last 6.0 s fewer than half of the 3 clients were "
        "still reading."
    )


def test_throughput_without_reports_says_so_and_an_hour_fits_in_600_bins() -> None:
    assert throughput.bins([]) == [] and throughput.chart([], "/x").is_empty
    hours = throughput.bins([track(0, 36_000, 10**13, 400)])
    assert len(hours) <= 600 and len(json.dumps(throughput.figure(hours))) < 60_000
    blink = throughput.bins([track(0, 0.01, 10**6)])
    assert blink and blink[0].active_count == 1


def test_progress_that_agents_reported_becomes_throughput(scene: Scene) -> None:
    results = drill_rows.results(scene.herd)
    tracks = inside.tracks(results)
    assert len(tracks) == 4 and all(one.points[0][1] == 0 for one in tracks)
    assert [one.points[-1][1] for one in tracks] == [result.bytes for result in results]
    found = throughput.bins(tracks)
    width = found[1].begin_seconds
    assert sum(one.bytes_per_second for one in found) * width == pytest.approx(64e9, rel=1e-6)
    assert "1 client reading" not in throughput.verdict(found)


def test_what_moves_a_prediction_most_is_on_top_and_its_sides_are_the_models_own() -> None:
    limits = rates([Ceiling(1, 2e9), Ceiling(8, 10e9)])
    assert limits is not None
    model = Model(limits, 3.0, 0.8, 10)
    asked = Question(name="", total_bytes=800_000_000_000, rank_count=64, node_count=8, reader_count=8)
    found = what_if.levers(model, {"launch": 20.0, "first_step": 6.0}, asked)
    assert [name for name, _low, _high in found] == [
        "Bandwidth that is reached", "Launch", "First step", "Storage time that no byte explains",
    ]  # fmt: skip
    base = model.seconds(asked.total_bytes, 8) + 26.0
    assert found[0][1] == pytest.approx(26 + 3 + 100 / 1.2) and found[1][2] == pytest.approx(base + 4.0)
    words = what_if.levers_words(found, base, asked)
    assert (
        words
        == "For 800 GB to 8 nodes, 2 min 09 s: bandwidth that is reached moves it most; a fifth better saves 17 s."
    )
