"""Charts of many drills, nodes and clients: decimated without losing an extreme, and told from all of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from dashboard.scene import Scene, factories_drill
from dashboard.test_charts import START, client, dot, point
from django.test import Client
from django.utils import timezone

from apps.checkpoints.models import Placement
from apps.core import units
from apps.core.phases import PHASES, Phase
from apps.dashboard.charts import budget, figure, finish, node_rates, phase_map, rto, stored, throughput, trend, what_if
from apps.dashboard.charts.decimate import extremes
from apps.dashboard.selectors import analysis, inside
from apps.dashboard.selectors import drills as drill_rows
from apps.drills.models import Drill
from apps.recovery import rto as statistics
from apps.recovery.scaling import Ceiling, Model, rates
from apps.recovery.trials import Trial
from apps.recovery.what_if import Question


def test_the_band_begins_with_the_twentieth_drill_and_every_level_was_measured() -> None:
    few, many = [dot(day) for day in range(19)], [dot(day, 60.0 + day) for day in range(25)]
    assert trend.rolling(few) == []
    levels = trend.rolling(many)
    assert len(levels) == 6 and (levels[0].p50, levels[0].p95) == (69.5, 78.0)
    names = [trace["name"] for trace in trend.figure(many)["data"]]
    assert names == ["in time", "rolling p50", "up to p95"]


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
    weeks = analysis.older_weeks(points, analysis.dots(scene.empty_run, "failover")[0])
    assert len(points) == 200 and sum(week.of_week for week in weeks) == 30
    assert all(week.phases == {"read": week.seconds} for week in weeks)
    assert [week.at for week in weeks] == sorted(week.at for week in weeks) and weeks[-1].at < points[0].at
    chart = rto.chart(points, "failover", "/x", weeks)
    assert "The newest 200 of 230 drills" in chart.note
    assert "over 200 drills" in chart.verdict


def test_a_diamond_says_what_the_predictor_made_of_the_drills_before(scene: Scene) -> None:
    now = timezone.now()
    for number, read in enumerate((40.0, 44.0, 60.0)):
        factories_drill(
            scene.empty_run, now - timedelta(days=3 - number), kind="failover", seconds=read + 10, placement=scene.good,
            phases={"read": read, "first_step": 10.0}, total_bytes=64_000_000_000,
        )  # fmt: skip
    points = analysis.points(scene.empty_run, "failover")
    assert [one.foretold_seconds for one in points] == [None, pytest.approx(50.0), pytest.approx(52.0)]
    traces = {trace["name"]: trace for trace in rto.figure(points, "failover")["data"]}
    assert traces["predicted before it"]["marker"]["symbol"] == "diamond-open"
    chart = rto.chart(points, "failover", "/x")
    assert [row[chart.headers.index("Predicted before")] for row in chart.rows] == ["52 s", "50 s", "not measured"]


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
    assert sum(one.bytes_per_second * one.seconds for one in found) == pytest.approx(12e9)
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
    assert sum(one.bytes_per_second * one.seconds for one in found) == pytest.approx(64e9, rel=1e-6)
    assert found[-1].bytes_per_second == pytest.approx(found[-2].bytes_per_second)  # a part of a bin is no slower
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


def test_bytes_are_told_by_tier_with_the_largest_runs_named() -> None:
    parts = [stored.Part("nvme", f"run-{n:02d}", (20 - n) * 10**12, 3, 500 * 10**12) for n in range(12)]
    parts.append(stored.Part("nas", "run-00", 10**12, 1))
    found = stored.tiers(parts)
    assert [tier.name for tier in found] == ["nvme", "nas"]
    assert len(found[0].parts) == 9 and found[0].parts[-1].run == stored.OTHERS
    assert sum(part.total_bytes for part in found[0].parts) == found[0].total_bytes == 174 * 10**12
    words = stored.chart(parts, "/x").verdict
    assert words.startswith("175 TB on 2 tiers; nvme holds 174 TB, 34.8 % of its capacity, most of it of run-00")
    assert stored.chart([], "/x").is_empty


def test_what_is_gone_takes_no_bytes_and_other_clusters_do_not_show(
    scene: Scene, signed_in: Callable[[str], Client]
) -> None:
    viewer = signed_in("viewer")
    shown = viewer.get("/charts/stored.json").json()
    assert any("llama-70b-pt" in trace["text"] for trace in shown["data"])
    Placement.objects.update(status="missing")
    assert viewer.get("/charts/stored.json").json()["data"] == []
    assert "llama" not in signed_in("stranger").get("/charts/stored.json").content.decode()


def test_reloads_say_their_share_of_the_measured_ceiling_or_that_it_is_not_measured() -> None:
    known = rto.Point("a", START, 10.0, {"read": 9.0}, None, False, efficiency_ratio=0.82)
    assert rto.verdict([known], "reload").endswith("The newest reached 82.0 % of the measured ceiling.")
    assert rto.verdict([point(0)], "reload").endswith("Efficiency against the measured ceiling: not measured.")
    assert "ceiling" not in rto.verdict([known], "failover")
    chart = rto.chart([known], "reload", "/x")
    assert chart.rows[0][chart.headers.index("Of the ceiling")] == "82.0 %"


@pytest.mark.slow
def test_ten_thousand_drills_in_the_database_draw_every_chart_of_their_run_under_a_megabyte(
    scene: Scene, signed_in: Callable[[str], Client], django_assert_max_num_queries: Any
) -> None:
    now, phases = timezone.now(), {"detect": 4.0, "launch": 10.0, "read": 40.0, "first_step": 8.0}
    common: dict[str, Any] = {
        "kind": "failover", "state": "finished", "outcome": "passed", "objective_seconds": 120, "requested_by": "olga",
        "cluster": scene.lab, "run": scene.empty_run, "phases": phases,
    }  # fmt: skip
    Drill.objects.bulk_create(
        [
            Drill(
                **common,
                seconds=62.0 + number % 83,
                objective_state="breached" if number % 83 > 58 else "met",
                created_at=now - timedelta(minutes=10 * number),
                finished_at=now - timedelta(minutes=10 * number),
            )
            for number in range(10_000)
        ],
        batch_size=500,
    )
    viewer, run = signed_in("viewer"), f"run={scene.empty_run.pk}&kind=failover"
    for name in ("rto", "trend", "budget", "groups", "sureness", "corner"):
        answer = viewer.get(f"/charts/{name}.json?{run}&weeks=1")
        assert answer.status_code == 200 and len(answer.content) <= figure.MAX_BYTES, name
    for url in (f"/analysis/?{run}", "/analysis/groups/?kind=failover", "/objectives/"):
        with django_assert_max_num_queries(12):
            page = viewer.get(url)
        assert page.status_code == 200 and len(page.content) <= 300_000, (url, len(page.content))


def test_sixteen_thousand_clients_are_a_map_of_their_phases_under_a_megabyte() -> None:
    many = [client(rank, 10 + rank / 4000, start=0.5) for rank in range(16_384)]
    drawn = phase_map.figure(many)
    assert len(json.dumps(drawn)) <= figure.MAX_BYTES
    chart = phase_map.chart(many, "/x")
    assert "512 of 16,384 clients" in chart.note
    assert chart.verdict == "Read took the longest in 16,384 of 16,384 clients."
    assert drawn["data"][0]["colorscale"][-1] == [1.0, "var(--phase-first-step)"]


def test_a_cell_of_the_map_is_the_phase_of_its_moment_and_nothing_outside_of_any() -> None:
    one = client(0, 6.0, start=1.0)  # starts after 1 s, reads for 6 s, verifies for 1 s
    read, verify = list(PHASES).index(Phase.READ), list(PHASES).index(Phase.VERIFY)
    assert phase_map.cells(one, 1.0, 10) == [None, *[read] * 6, verify, None, None]
