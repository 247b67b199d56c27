"""`muster get`, `describe`, `checkpoint`, `token` and `agent` against the real application."""

from __future__ import annotations

import csv
import io
import json

import factories
import pytest
import yaml
from dashboard.stored_text import TERMINAL
from django.utils import timezone
from muster_agent.cli.kinds import KINDS
from muster_agent.cli.shapes import seconds, yaml_of

from apps.accounts.models import ApiToken
from apps.checkpoints.models import Finding, Placement
from apps.drills.models import Drill
from apps.fleet.models import Agent
from tests.agent.cli.asking import muster

FORMULA = "=HYPERLINK(1)"


@pytest.fixture
def placement(operator: str) -> Placement:
    east = factories.cluster()
    return factories.placement(factories.run(east), factories.tier(east))


@pytest.mark.sampled(5)
@pytest.mark.parametrize("kind", [kind.name for kind in KINDS])
@pytest.mark.parametrize("output", ["table", "wide", "json", "yaml", "name", "csv"])
def test_every_kind_prints_in_every_shape(admin: str, kind: str, output: str) -> None:
    done = muster("get", kind, "-o", output)
    assert (done.exit_code, done.exception) == (0, None)
    if output == "json":
        assert isinstance(json.loads(done.stdout), list)


def test_rows_are_a_table_for_people_and_plain_values_for_programs(placement: Placement) -> None:
    table = muster("get", "checkpoints").stdout.splitlines()
    assert table[0].split() == ["ID", "RUN", "STEP", "FORMAT", "RANKS", "SIZE", "SAVED"]
    assert "llama-70b" in table[1] and "4.0 kB" in table[1]
    row = next(csv.DictReader(io.StringIO(muster("get", "checkpoints", "-o", "csv").stdout)))
    assert row["total_bytes"] == "4000"
    identifier = muster("get", "checkpoints", "-o", "name").stdout.strip()
    assert identifier == placement.checkpoint_id
    assert json.loads(muster("get", "checkpoints", identifier, "-o", "json").stdout)[0]["step"] == 10


def test_yaml_says_what_json_says(placement: Placement) -> None:
    as_json = json.loads(muster("get", "placements", "-o", "json").stdout)
    assert yaml.safe_load(muster("get", "placements", "-o", "yaml").stdout) == as_json
    hostile = {"no": "no", "a": ["1e3", "x: y", "- z", "#", "", None, 1.5, True, {}, [], [[1]], {"b": ["\n", "é"]}]}
    assert yaml.safe_load(yaml_of(hostile)) == hostile


def test_a_name_from_disk_is_no_formula_and_no_command_of_the_terminal(operator: str) -> None:
    east = factories.cluster()
    factories.placement(factories.run(east, FORMULA), factories.tier(east))
    assert f"'{FORMULA}" in muster("get", "checkpoints", "-o", "csv").stdout
    Placement.objects.update(path="/ckpt/\x1b[31mred")
    assert "\x1b" not in muster("get", "placements", "-o", "wide").stdout


def test_no_text_that_was_stored_is_a_command_of_the_terminal_or_a_line_of_its_own(placement: Placement) -> None:
    text = "".join(TERMINAL)
    Placement.objects.update(path=f"/ckpt/{text}", not_resumable_reasons=[text])
    node = factories.node(placement.tier.cluster, facts={f"team{text}": {f"of{text}": text}})
    for words in (
        ("get", "placements", "-o", "wide"),
        ("describe", "placement", placement.pk),
        ("describe", "node", node.pk),
    ):
        told = muster(*words).stdout
        assert "\\x1b[31mred" in told, words
        lines = told.split("\n")
        assert all(line.isprintable() for line in lines), words
        assert not [line for line in lines if line.startswith(("2026", "INFO", "ok"))], words


def test_a_limit_says_that_there_is_more_and_all_gives_it(operator: str) -> None:
    east = factories.cluster()
    run, tier = factories.run(east), factories.tier(east)
    for step in range(3):
        factories.placement(run, tier, step=step)
    few = muster("get", "checkpoints", "--limit", "2", "-o", "name")
    assert len(few.stdout.split()) == 2 and "more than 2" in few.stderr
    everything = muster("get", "checkpoints", "--all", "-o", "name")
    assert len(everything.stdout.split()) == 3 and everything.stderr == ""


def test_filters_are_the_apis_and_an_unknown_one_names_those_that_are(placement: Placement) -> None:
    assert muster("get", "placements", "--filter", "tier=tir_none", "-o", "name").stdout == ""
    assert muster("get", "placements", "--filter", "trust=complete", "-o", "name").stdout.strip() == placement.pk
    assert muster("get", "placements", "--filter", "damaged=true", "-o", "name").stdout == ""
    wrong = muster("get", "placements", "--filter", "colour=red")
    assert wrong.exit_code == 2 and "trust" in wrong.stderr
    assert muster("get", "wombats").exit_code == 2


def test_nothing_found_is_said_on_stderr_and_json_stays_json(operator: str) -> None:
    done = muster("get", "drills")
    assert (done.stdout, done.exit_code) == ("", 0) and "no drills" in done.stderr
    assert json.loads(muster("get", "drills", "-o", "json").stdout) == []


def test_describe_tells_every_field_in_units(placement: Placement) -> None:
    text = muster("describe", "placement", placement.pk).stdout
    assert "total_bytes: 4.0 kB (4000)" in text and "manifest: -" in text
    assert muster("describe", "drill", "drl_none").exit_code == 3
    assert muster("describe", "finding", "99").exit_code == 3


def test_without_a_token_or_with_a_dead_one_it_exits_4(operator: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ApiToken.objects.update(expires_at=timezone.now())
    refused = muster("get", "runs")
    assert refused.exit_code == 4 and "expired" in refused.stderr and "muster login" in refused.stderr
    monkeypatch.delenv("MUSTER_TOKEN")
    assert muster("get", "runs").exit_code == 4


def test_the_latest_checkpoint_and_its_absence(placement: Placement) -> None:
    found = muster("checkpoint", "latest", "llama-70b")
    assert (found.exit_code, found.stdout.splitlines()[0]) == (0, f"step 10: {placement.path}")
    assert muster("checkpoint", "latest", "llama-70b", "-o", "name").stdout.strip() == placement.path
    Placement.objects.update(resumable=False, status="incomplete", not_resumable_reasons=["a shard is missing"])
    assert muster("checkpoint", "latest", "llama-70b").exit_code == 3


def test_copies_and_findings_of_a_checkpoint(placement: Placement) -> None:
    assert placement.path in muster("checkpoint", "copies", placement.checkpoint_id).stdout
    assert muster("checkpoint", "findings", placement.checkpoint_id).exit_code == 0
    Finding.objects.create(
        placement=placement, code="digest_mismatch", severity="damage", path="a", detail="d", found_at=timezone.now()
    )
    damaged = muster("checkpoint", "findings", placement.checkpoint_id)
    assert damaged.exit_code == 7 and "digest_mismatch" in damaged.stdout


def test_a_checkpoint_is_sealed_pinned_and_left_again(placement: Placement) -> None:
    factories.agent(factories.node(placement.tier.cluster))
    started = muster("checkpoint", "seal", placement.pk)
    assert started.exit_code == 0 and started.stdout.startswith("audit aud_")
    identifier = started.stdout.split()[1].rstrip(":")
    assert muster("checkpoint", "cancel", identifier).exit_code == 0
    assert muster("checkpoint", "pin", placement.checkpoint_id, "--reason", "paper").exit_code == 0
    assert muster("checkpoint", "unpin", placement.checkpoint_id).exit_code == 0
    assert muster("checkpoint", "cancel", "drl_1").exit_code == 2


def test_agents_are_found_by_their_nodes_name(admin: str) -> None:
    agent = factories.agent(factories.node(factories.cluster()))
    assert "gpu-1" in muster("agent", "list").stdout
    assert "draining" in muster("agent", "drain", "gpu-1").stdout
    assert muster("agent", "resume", agent.pk).exit_code == 0
    assert muster("agent", "drain", "gpu-99").exit_code == 3
    assert muster("agent", "revoke", "gpu-1", "--reason", "sold", "--yes").exit_code == 0
    assert Agent.objects.get(pk=agent.pk).state == "revoked"


def test_a_viewer_may_look_and_not_touch(application: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MUSTER_TOKEN", factories.token(factories.user("vera", "viewer")))  # type: ignore[arg-type]
    factories.agent(factories.node(factories.cluster()))
    assert muster("agent", "list").exit_code == 0
    refused = muster("agent", "drain", "gpu-1")
    assert refused.exit_code == 4 and "admin" in refused.stderr


def test_a_token_is_rotated_without_a_gap(admin: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made = muster("token", "create", "ci", "--role", "operator")
    assert made.stdout.startswith("mst_") and made.stdout.strip() not in made.stderr
    old = ApiToken.objects.get(name="ci")
    successor = muster("token", "rotate", old.pk).stdout.strip()
    for secret in (made.stdout.strip(), successor):
        monkeypatch.setenv("MUSTER_TOKEN", secret)
        assert muster("get", "runs").exit_code == 0
    assert muster("token", "revoke", old.pk).exit_code == 0
    assert muster("get", "runs").exit_code == 0
    monkeypatch.setenv("MUSTER_TOKEN", made.stdout.strip())
    assert muster("get", "runs").exit_code == 4
    monkeypatch.setenv("MUSTER_TOKEN", admin)
    assert muster("token", "rotate", "tok_none").exit_code == 3
    assert "ci" in muster("token", "list").stdout
    assert Drill.objects.count() == 0


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "-"), (0, "0.0 s"), (850.0, "14 m 10 s"), (11_100, "3 h 5 m"), (187_200, "2 d 4 h")],
)
def test_durations_are_for_people(value: float | None, text: str) -> None:
    assert seconds(value) == text
