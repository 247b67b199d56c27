from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import msgspec
import pytest
from muster_agent.formats import registry
from muster_agent.formats.base import Finding, Role, Severity, ShardEntry, ShardMap, Status
from muster_agent.formats.codes import finding
from muster_agent.formats.detect import read_checkpoint
from muster_agent.formats.explain import explain
from muster_agent.formats.explain_words import FORMAT_WORDS

from tests.agent.checkpoint_factory import write_checkpoint

HEADINGS = ["Format", "Step", "Ranks", "Shards", "Commit marker", "Findings", "Status", "Resumable"]


def told(shard_map: ShardMap) -> dict[str, str]:
    sentences: dict[str, list[str]] = defaultdict(list)
    for line in explain(shard_map):
        sentences[line.heading].append(line.sentence)
    return {heading: " ".join(each) for heading, each in sentences.items()}


def made(status: Status = Status.COMPLETE, **changes: object) -> ShardMap:
    fields: dict[str, object] = {
        "path": "/ckpt/run/step-30",
        "run": "run",
        "format": "dcp",
        "step": 30,
        "resumable": status is Status.COMPLETE,
        **changes,
    }
    return ShardMap(status=status, **fields)  # type: ignore[arg-type]


def test_a_whole_checkpoint_is_explained_under_every_heading(tmp_path: Path) -> None:
    shard_map = read_checkpoint(write_checkpoint(tmp_path / "run", 30, rank_bytes=300, world_size=2))
    words = told(shard_map)
    assert list(words) == HEADINGS
    assert "safetensors" in words["Format"] and "recognised by" in words["Format"]
    assert words["Step"].startswith("30, from the name step-00000030")
    assert "2 ranks" in words["Ranks"] and "as many ranks" in words["Ranks"]
    assert "model: 2 expected, 2 there." in words["Shards"]
    assert "there." in words["Commit marker"] and "NOT THERE" not in words["Commit marker"]
    assert words["Status"].startswith("Complete") and words["Resumable"].startswith("Yes")


def test_what_is_missing_is_named_where_it_counts(tmp_path: Path) -> None:
    place = write_checkpoint(tmp_path / "run", 30, rank_bytes=300, world_size=2)
    (place / "rank-00001-of-00002.safetensors").unlink()
    words = told(read_checkpoint(place))
    assert "1 NOT THERE" in words["Shards"]
    assert "shard_missing" in words["Findings"] and "What to do:" in words["Findings"]
    assert words["Status"].startswith("Incomplete") and "Decided by: shard_missing" in words["Status"]
    assert words["Resumable"].startswith("No. Parts of it are not there")


@pytest.mark.parametrize("status", list(Status))
def test_every_status_has_its_rule(status: Status) -> None:
    assert told(made(status))["Status"].lower().startswith(status.value)


def test_where_the_step_comes_from_is_told() -> None:
    assert "from the name step-30" in told(made())["Step"]
    assert "which counts; the name step-30 says 30" in told(made(step=28))["Step"]
    assert "from the state inside" in told(made(path="/ckpt/run/final"))["Step"]
    assert "counts epochs" in told(made(path="/ckpt/run/epoch3"))["Step"]
    assert told(made(path="/ckpt/run/final", step=None))["Step"].startswith("Not known")


def test_a_place_that_could_not_be_looked_at_is_not_called_missing() -> None:
    denied = finding("permission_denied", path="/ckpt/run/step-30", detail="it may not be read")
    words = told(made(Status.UNREADABLE, format="unknown", findings=(denied,)))
    assert "neither missing nor empty" in words["Status"] and "permission_denied" in words["Status"]
    assert words["Format"].startswith("Not known") and "NOT THERE" not in " ".join(words.values())


def test_many_findings_are_cut_worst_first() -> None:
    notes = [finding("rng_missing", path=f"/{index}", detail="d") for index in range(30)]
    worst = finding("shard_missing", path="a", detail="a is gone")
    sentences = [line.sentence for line in explain(made(findings=(*notes, worst))) if line.heading == "Findings"]
    assert sentences[0].startswith("damage shard_missing") and sentences[-1] == "And 11 more."


def test_every_format_that_is_read_has_words() -> None:
    tables = (*registry.FOLDER_FORMATS, *registry.FILE_FORMATS, *registry.FAMILY_FORMATS)
    assert {one.name for one in tables} - {"unknown"} <= set(FORMAT_WORDS)


def test_a_save_without_zero_says_what_a_job_with_zero_would_miss() -> None:
    said = "stage 0"
    data = Path(__file__).parents[2] / "data" / "deepspeed"
    whole, parted = (read_checkpoint(data / name / "global_step4") for name in ("zero0-fp32", "zero2-fp32"))
    assert (whole.status, parted.status) == (Status.COMPLETE, Status.COMPLETE)
    assert said in str(explain(whole)) and said not in str(explain(parted))


def test_a_file_at_the_head_of_a_sentence_keeps_its_name(tmp_path: Path) -> None:
    (tmp_path / "nested.pkl").write_bytes(b"\x80\x04]q\x00.")
    lines = explain(read_checkpoint(tmp_path / "nested.pkl"))
    assert any(line.sentence.startswith("nested.pkl ") for line in lines), lines


def test_a_format_of_a_newer_version_is_explained_too() -> None:
    strange = made(
        format="of-tomorrow",
        shards=(ShardEntry(path="a", size_bytes=3, promised_bytes=5, role=Role.MODEL),),
        findings=(Finding(code="new_code", severity=Severity.NOTE, path="", detail="", cure=""),),
    )
    assert "does not know" in told(strange)["Format"] and "promises: a" in told(strange)["Shards"]
    assert msgspec.json.encode([line._asdict() for line in explain(strange)])
