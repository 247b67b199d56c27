from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec
import pytest
from muster_agent.decide.evidence import ServerEvidence, candidates_of, from_disk
from muster_agent.decide.model import Candidate
from muster_agent.formats.base import ShardMap
from muster_agent.formats.detect import files_of, read_checkpoint
from muster_agent.formats.fingerprint import fingerprint
from muster_agent.jobs.seal import seal
from muster_agent.manifest.beside import read_beside
from muster_agent.manifest.local_verdict import LocalVerdict
from muster_agent.manifest.model import manifest_id
from muster_agent.protocol.trust import Trust

from tests.agent.checkpoint_factory import write_checkpoint


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_checkpoint(tmp_path / "run-a", 40, rank_bytes=600, world_size=2)


def read(folder: Path) -> ShardMap:
    return read_checkpoint(folder, grace_seconds=0)


def said(shard_map: ShardMap, **changes: Any) -> ServerEvidence:
    given = {
        "path": shard_map.path,
        "fingerprint": fingerprint(files_of(shard_map)),
        "trust": "verified",
        "as_of": "2026-01-02T03:04:05+00:00",
        **changes,
    }
    return msgspec.convert(given, ServerEvidence)


def judged(folder: Path, *evidence: ServerEvidence) -> Candidate:
    shard_map = read(folder)
    manifest = read_beside(str(folder))
    manifests = {} if manifest is None else {shard_map.path: manifest}
    return candidates_of([shard_map], 1e10, manifests, evidence)[0]


def test_the_disk_alone_proves_that_it_is_complete(folder: Path) -> None:
    found = judged(folder)
    assert (found.trust, found.source, found.as_of) == (Trust.COMPLETE, "disk", "2286-11-20T17:46:40+00:00")
    assert found.age_seconds is not None and found.age_seconds > 1e9


def test_what_is_not_complete_is_only_listed(folder: Path) -> None:
    (folder / "checkpoint.json").unlink()
    found = judged(folder)
    assert (found.trust, found.status, found.resumable) == (Trust.LISTED, "uncommitted", False)


def test_a_manifest_that_fits_makes_it_sealed(folder: Path) -> None:
    manifest = seal(str(folder)).manifest
    found = judged(folder)
    assert manifest is not None
    assert (found.trust, found.source, found.as_of) == (Trust.SEALED, "disk+manifest", manifest.sealed_at)


def test_a_changed_time_voids_the_manifest(folder: Path) -> None:
    seal(str(folder))
    os.utime(folder / "rank-00000-of-00002.safetensors", (5, 5))
    assert (judged(folder).trust, judged(folder).source) == (Trust.COMPLETE, "disk")


def test_a_sealed_checkpoint_that_lost_a_shard_is_not_sealed(folder: Path) -> None:
    seal(str(folder))
    (folder / "rank-00000-of-00002.safetensors").unlink()
    assert judged(folder).trust is Trust.LISTED


def test_the_server_adds_trust_tier_and_damage_for_these_very_files(folder: Path) -> None:
    found = judged(folder, said(read(folder), tier="nvme", tier_order=2, damage=["bytes differ"]))
    assert (found.trust, found.source, found.as_of) == (Trust.VERIFIED, "disk+server", "2026-01-02T03:04:05+00:00")
    assert (found.tier, found.tier_order, found.damage) == ("nvme", 2, ("bytes differ",))


def test_the_servers_word_about_other_files_counts_for_nothing(folder: Path) -> None:
    before = said(read(folder), damage=["bytes differ"])
    os.utime(folder / "rank-00000-of-00002.safetensors", (5, 5))
    assert (judged(folder, before).trust, judged(folder, before).damage) == (Trust.COMPLETE, ())


def test_the_servers_word_about_another_path_counts_for_nothing(folder: Path) -> None:
    assert judged(folder, said(read(folder), path="/elsewhere/step-40")).trust is Trust.COMPLETE


def test_the_server_cannot_make_a_broken_checkpoint_trusted(folder: Path) -> None:
    (folder / "checkpoint.json").unlink()
    assert judged(folder, said(read(folder))).trust is Trust.LISTED


def test_a_trust_word_of_a_newer_server_is_left_aside(folder: Path) -> None:
    assert judged(folder, said(read(folder), trust="blessed")).trust is Trust.COMPLETE


def test_the_server_never_lowers_what_the_manifest_proves(folder: Path) -> None:
    seal(str(folder))
    assert judged(folder, said(read(folder), trust="complete")).trust is Trust.SEALED


def test_a_time_in_the_future_is_no_negative_age(folder: Path) -> None:
    assert from_disk(read(folder), 0.0).age_seconds == 0.0


# -- the verdict beside the data ---------------------------------------------------------------------------------------
def left(folder: Path, **changes: Any) -> LocalVerdict:
    """A full, good verdict about the files as they lie, except for `changes`."""
    manifest = read_beside(str(folder))
    assert manifest is not None
    given = {
        "version": 1,
        "manifest_id": manifest_id(manifest),
        "fingerprint": fingerprint(files_of(read(folder))),
        "verified": True,
        "sample_ratio": 1.0,
        "at": "2026-06-01T00:00:00Z",
        **changes,
    }
    return msgspec.convert(given, LocalVerdict)


def judged_with(folder: Path, verdict: LocalVerdict, *evidence: ServerEvidence) -> Candidate:
    shard_map = read(folder)
    manifest = read_beside(str(folder))
    manifests = {} if manifest is None else {shard_map.path: manifest}
    return candidates_of([shard_map], 1e10, manifests, evidence, {shard_map.path: verdict})[0]


@pytest.fixture
def sealed(folder: Path) -> Path:
    assert seal(str(folder)).manifest is not None
    return folder


def test_a_full_verdict_on_these_files_makes_them_verified(sealed: Path) -> None:
    found = judged_with(sealed, left(sealed))
    assert (found.trust, found.as_of, found.source) == (Trust.VERIFIED, "2026-06-01T00:00:00Z", "disk+manifest")
    assert found.damage == ()


def test_a_full_verdict_counts_where_only_the_times_changed_since_sealing(sealed: Path) -> None:
    os.utime(sealed / "rank-00000-of-00002.safetensors", (5, 5))
    assert judged_with(sealed, left(sealed)).trust is Trust.VERIFIED


def test_a_sample_does_not_make_them_verified(sealed: Path) -> None:
    assert judged_with(sealed, left(sealed, sample_ratio=0.9)).trust is Trust.SEALED


@pytest.mark.parametrize("changes", [{"fingerprint": "0" * 32}, {"manifest_id": "0" * 64}])
@pytest.mark.parametrize("verified", [True, False])
def test_a_verdict_on_other_files_or_another_seal_counts_for_nothing(
    sealed: Path, verified: bool, changes: dict[str, str]
) -> None:
    found = judged_with(sealed, left(sealed, verified=verified, findings=["bad"], **changes))
    assert (found.trust, found.damage) == (Trust.SEALED, ())


def test_a_verdict_without_a_manifest_counts_for_nothing(sealed: Path) -> None:
    verdict = left(sealed)
    (sealed / ".muster-manifest.json").unlink()
    assert judged_with(sealed, verdict).trust is Trust.COMPLETE


def test_a_file_that_was_added_voids_a_good_verdict_but_not_damage(sealed: Path) -> None:
    good, bad = left(sealed), left(sealed, verified=False, findings=["bytes differ"])
    (sealed / "notes.txt").write_text("x")
    assert judged_with(sealed, good).trust is Trust.SEALED
    assert len(judged_with(sealed, bad).damage) == 1


def test_a_verdict_of_damage_says_what_when_and_how_to_clear_it(sealed: Path) -> None:
    verdict = left(sealed, verified=False, sample_ratio=0.1, findings=[f"range {n}" for n in range(5)])
    (sentence,) = judged_with(sealed, verdict).damage
    assert sentence.startswith("range 0; range 1; range 2; and 2 more like these (")
    assert "2026-06-01T00:00:00Z" in sentence and "verify it again" in sentence


def test_damage_from_the_server_stands_beside_a_good_verdict(sealed: Path) -> None:
    for at in (None, "2026-06-01T00:00:01+00:00", "garbage"):
        word = said(read(sealed), trust="listed", damage=["bytes differ"], damage_at=at)
        assert judged_with(sealed, left(sealed), word).damage == ("bytes differ",)


def test_a_later_full_verdict_overrules_damage_from_the_server(sealed: Path) -> None:
    word = said(read(sealed), trust="listed", damage=["bytes differ"], damage_at="2026-05-31T23:59:59+00:00")
    found = judged_with(sealed, left(sealed), word)
    assert (found.trust, found.damage) == (Trust.VERIFIED, ())
    assert judged_with(sealed, left(sealed, sample_ratio=0.5), word).damage == ("bytes differ",)


def test_the_server_overrules_damage_only_by_a_later_verification(sealed: Path) -> None:
    bad = left(sealed, verified=False, findings=["bytes differ"])
    later = said(read(sealed), as_of="2026-06-01T00:00:01+00:00")
    assert judged_with(sealed, bad, later).damage == ()
    for word in (said(read(sealed)), said(read(sealed), trust="sealed", as_of="2026-06-01T00:00:01+00:00")):
        assert len(judged_with(sealed, bad, word).damage) == 1
