from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import msgspec
import pytest
from muster_agent.formats.base import Severity
from muster_agent.formats.codes import finding
from muster_agent.manifest.local_verdict import (
    MAX_VERDICT_BYTES,
    LocalVerdict,
    VerdictUnreadable,
    damage_sentences,
    moment,
    read_verdict,
    supersedes,
    verdict_path,
    write_verdict,
)

GIVEN = {
    "version": 1, "manifest_id": "a" * 64, "fingerprint": "b" * 32, "verified": True, "sample_ratio": 1.0,
    "at": "2026-01-02T03:04:05Z",
}  # fmt: skip


def verdict(**changes: Any) -> LocalVerdict:
    return msgspec.convert({**GIVEN, **changes}, LocalVerdict)


def test_what_was_written_is_read_for_a_folder_and_for_a_file(tmp_path: Path) -> None:
    single = tmp_path / "model.safetensors"
    single.write_bytes(b"x")
    for place, name in ((tmp_path, ".muster-verify.json"), (single, "model.safetensors.muster-verify.json")):
        said = verdict(verified=False, findings=["bytes 0 to 5 differ"])
        assert write_verdict(str(place), said) == str(tmp_path / name) == verdict_path(str(place))
        assert read_verdict(str(place)) == said
    assert not list(tmp_path.glob("*.tmp"))


def test_whoever_may_read_the_checkpoint_may_read_its_verdict(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    path = write_verdict(str(tmp_path), verdict())
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o644


def test_without_a_verdict_there_is_none(tmp_path: Path) -> None:
    assert read_verdict(str(tmp_path)) is None and read_verdict(str(tmp_path / "gone")) is None


@pytest.mark.parametrize(
    "content",
    [
        b"", b"{", b"[]", b"\xff" * 20, b"[" * 60_000, b" " * (MAX_VERDICT_BYTES + 1),
        msgspec.json.encode({**GIVEN, "version": 2}), msgspec.json.encode({**GIVEN, "at": "yesterday"}),
        msgspec.json.encode({**GIVEN, "verified": "yes"}), msgspec.json.encode({**GIVEN, "verified": None}),
    ],
)  # fmt: skip
def test_a_verdict_that_is_not_understood_is_refused_by_name(tmp_path: Path, content: bytes) -> None:
    (tmp_path / ".muster-verify.json").write_bytes(content)
    with pytest.raises(VerdictUnreadable, match=r"\.muster-verify\.json"):
        read_verdict(str(tmp_path))


def test_a_pipe_in_its_place_is_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / ".muster-verify.json")
    with pytest.raises(VerdictUnreadable, match="no ordinary file"):
        read_verdict(str(tmp_path))


def test_a_verdict_that_is_not_understood_is_replaced(tmp_path: Path) -> None:
    (tmp_path / ".muster-verify.json").write_text("{")
    write_verdict(str(tmp_path), verdict())
    assert read_verdict(str(tmp_path)) == verdict()


def test_sentences_read_from_outside_are_bounded(tmp_path: Path) -> None:
    (tmp_path / ".muster-verify.json").write_bytes(msgspec.json.encode({**GIVEN, "findings": ["x" * 600] * 50}))
    read = read_verdict(str(tmp_path))
    assert read is not None and [len(one) for one in read.findings] == [500] * 20


@pytest.mark.parametrize(
    ("old", "new", "taken"),
    [
        ({"verified": False}, {"sample_ratio": 0.5}, False),
        ({"verified": False}, {}, True),
        ({}, {"sample_ratio": 0.5}, False),
        ({}, {"verified": False, "sample_ratio": 0.5}, True),
        ({"sample_ratio": 0.5}, {"sample_ratio": 0.1}, True),
        ({"verified": False, "fingerprint": "c"}, {"sample_ratio": 0.5}, True),
        ({"verified": False, "manifest_id": "c"}, {"sample_ratio": 0.5}, True),
    ],
)
def test_a_sample_never_hides_what_says_more_about_the_same_files(
    tmp_path: Path, old: dict[str, Any], new: dict[str, Any], taken: bool
) -> None:
    assert supersedes(verdict(**new), verdict(**old)) is taken
    for one in (old, new):
        write_verdict(str(tmp_path), verdict(**one))
    assert read_verdict(str(tmp_path)) == verdict(**(new if taken else old))


def test_only_damage_becomes_a_sentence() -> None:
    found = [
        finding("digest_mismatch", path="a", detail="bytes differ"),
        finding("changed_since_sealing", path="a", detail="the time differs"),
    ]
    assert found[1].severity is Severity.WARNING
    assert damage_sentences(found) == ("bytes differ",)


@pytest.mark.parametrize("text", [None, "", "now", "2026-01-02T03:04:05"])
def test_a_time_without_a_zone_is_no_moment(text: str | None) -> None:
    assert moment(text) is None
