"""What monitors ask: /metrics and the probes."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import factories
import pytest
from django.db import Error
from django.test import Client
from django.utils import timezone
from prometheus_client.parser import text_string_to_metric_families

from apps.accounts.models import Role
from apps.checkpoints.models import TrainingRun
from apps.core import heartbeats
from apps.drills.models import Drill

pytestmark = pytest.mark.django_db
ROOT = Path(__file__).resolve().parents[2]
NAME = re.compile(r"\bmuster_[a-z_]+")


@pytest.fixture
def fleet() -> TrainingRun:
    cluster = factories.cluster()
    run = factories.run(cluster, "llama-8b", rto_objective_seconds=90)
    factories.placement(run, factories.tier(cluster), step=100)
    Drill.objects.create(
        kind="reload", run=run, cluster=cluster, state="finished", outcome="passed", objective_state="met",
        seconds=12.5, total_bytes=1000, requested_by="olga", created_at=timezone.now(), finished_at=timezone.now(),
    )  # fmt: skip
    return run


@pytest.fixture
def scrape(client: Client) -> str:
    client.force_login(factories.user("prometheus", Role.VIEWER))
    answer = client.get("/metrics")
    assert answer.status_code == 200
    return answer.content.decode()


def samples(text: str) -> dict[str, list[tuple[dict[str, str], float]]]:
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


def test_the_rows_are_told_as_numbers(fleet: TrainingRun, scrape: str) -> None:
    told = samples(scrape)
    labels = {"cluster": fleet.cluster.name, "run": "llama-8b"}
    assert told["muster_run_objective_seconds"] == [(labels, 90.0)]
    assert told["muster_run_drill_seconds"] == [(labels, 12.5)]
    (drills,) = told["muster_drills_finished_total"]
    assert drills[1] == 1.0
    assert drills[0]["outcome"] == "passed"
    assert sum(value for _labels, value in told["muster_placements"]) == 1


def test_what_was_not_measured_is_absent_and_not_zero(fleet: TrainingRun, scrape: str) -> None:
    assert "muster_run_restart_seconds" not in samples(scrape)


def test_no_label_holds_an_id(fleet: TrainingRun, scrape: str) -> None:
    values = {value for rows in samples(scrape).values() for labels, _value in rows for value in labels.values()}
    assert not [value for value in values if re.fullmatch(r"(chk|plc|drl|run|tir|cls|nod|agt)_\w+", value)]


def test_hostile_names_stay_within_their_label(client: Client) -> None:
    factories.run(factories.cluster(), 'x"} 1\nmuster_watching 1 # \\')
    client.force_login(factories.user("prometheus", Role.VIEWER))
    told = samples(client.get("/metrics").content.decode())
    assert told["muster_watching"] == [({}, 0.0)]
    assert told["muster_run_verdict"][0][0]["run"] == 'x"} 1\nmuster_watching 1 # \\'


def test_a_role_that_holds_everywhere_is_needed(client: Client) -> None:
    assert client.get("/metrics").status_code == 401
    client.force_login(factories.user("nobody", Role.NONE))
    assert client.get("/metrics").status_code == 403


def test_a_scrape_costs_no_more_queries_when_there_are_more_rows(
    fleet: TrainingRun, client: Client, django_assert_max_num_queries: object
) -> None:
    client.force_login(factories.user("prometheus", Role.VIEWER))
    for number in range(20):
        factories.run(fleet.cluster, f"run-{number}")
    with django_assert_max_num_queries(45):  # type: ignore[operator]
        client.get("/metrics")


def test_prometheus_own_linter_finds_nothing_wrong_with_names_and_rules(fleet: TrainingRun, scrape: str) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("the program promtool is not installed")
    rules = subprocess.run(
        [promtool, "check", "rules", str(ROOT / "deploy/prometheus/muster.rules.yml")], capture_output=True, text=True
    )
    assert rules.returncode == 0, rules.stdout + rules.stderr
    names = subprocess.run([promtool, "check", "metrics"], input=scrape, capture_output=True, text=True)
    assert (names.returncode, names.stderr) == (0, "")


def test_every_metric_is_documented_and_every_one_that_is_used_exists(fleet: TrainingRun, scrape: str) -> None:
    families = {family.name for family in text_string_to_metric_families(scrape)} | set(
        re.findall(r"^# TYPE (\S+)", scrape, re.MULTILINE)
    )
    documented = set(NAME.findall((ROOT / "docs/monitoring.md").read_text()))
    assert {name for name in families if name not in documented and f"{name}_total" not in documented} == set()
    used = set(NAME.findall((ROOT / "deploy/prometheus/muster.rules.yml").read_text()))
    for board in (ROOT / "deploy/grafana").glob("*.json"):
        panels = json.loads(board.read_text())["panels"]
        used |= {name for panel in panels for target in panel["targets"] for name in NAME.findall(target["expr"])}
    assert used - families == set()
    assert documented - families == set()


def test_the_probes_tell_a_process_that_works_from_a_muster_that_watches(client: Client) -> None:
    assert client.get("/healthz").status_code == 200
    assert client.get("/healthz/watching").status_code == 503
    for part in heartbeats.PARTS:
        heartbeats.beat(part)
    answer = client.get("/healthz/watching")
    assert (answer.status_code, answer.content) == (200, b"watching\n")


def test_a_database_that_is_away_is_503_and_no_traceback(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def away() -> None:
        raise Error("no connection")

    monkeypatch.setattr("controlplane.monitoring.connection.cursor", away)
    assert client.get("/healthz").status_code == 503
