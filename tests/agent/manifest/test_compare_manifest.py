"""Expected minus observed."""

from __future__ import annotations

import msgspec
import pytest
import xxhash
from muster_agent.formats.base import Severity, ShardMap, Status
from muster_agent.manifest.compare import MAX_RANGES, ObservedShard, compare, matches, verdict
from muster_agent.manifest.model import Manifest, ShardDigest, TensorDigest
from muster_agent.manifest.sampling import (
    covered_chunks,
    detection_probability,
    sample_chunks,
    sample_size,
    turns_to_cover,
)
from muster_agent.manifest.seal import assemble, chunk_digests
from muster_agent.manifest.stale import StaleVerdict, compare_steps

CHUNK = 4096
DATA = bytes(range(256)) * 64  # four chunks


def sealed(step: int = 1, data: bytes = DATA, tensors: tuple[TensorDigest, ...] = ()) -> Manifest:
    shard_map = ShardMap(path="/x", run="r", format="f", step=step, status=Status.COMPLETE, resumable=True)
    digest = ShardDigest(
        path="a",
        size_bytes=len(data),
        mtime_ns=5,
        xxh3_128=xxhash.xxh3_128_hexdigest(data),
        chunks_xxh3_64="".join(chunk_digests(memoryview(data), CHUNK)),
    )
    return assemble(shard_map, [digest], tensors, sealed_at="2026-01-01T00:00:00Z", chunk_bytes=CHUNK)


def seen(data: bytes, sealed_bytes: int = len(DATA)) -> dict[str, ObservedShard]:
    chunks = dict(enumerate(chunk_digests(memoryview(data)[:sealed_bytes], CHUNK)))
    return {"a": ObservedShard(size_bytes=len(data), chunks=chunks)}


def tensor(name: str, begin: int, end: int, data: bytes = DATA) -> TensorDigest:
    digest = xxhash.xxh3_64_hexdigest(data[begin:end])
    return TensorDigest(name=name, shard="a", offset_bytes=begin, length_bytes=end - begin, xxh3_64=digest)


def flipped(*positions: int) -> bytes:
    data = bytearray(DATA)
    for position in positions:
        data[position] ^= 1
    return bytes(data)


def test_equal_bytes_give_no_finding() -> None:
    found = compare(sealed(), seen(DATA))
    assert found == ()
    assert verdict(found) is True


def test_a_changed_chunk_is_named_with_its_range_and_tensor() -> None:
    manifest = sealed(tensors=(tensor("first", 0, 4096), tensor("second", 4096, 9000)))
    (found,) = compare(manifest, seen(flipped(5000)))
    assert (found.code, found.path, found.begin_byte, found.end_byte, found.tensor) == (
        "digest_mismatch",
        "a",
        4096,
        8192,
        "second",
    )
    assert verdict([found]) is False


def test_neighbouring_changed_chunks_are_one_range_and_separate_ones_two() -> None:
    ranges = [(f.begin_byte, f.end_byte) for f in compare(sealed(), seen(flipped(1, 4097, 16383)))]
    assert ranges == [(0, 8192), (12288, 16384)]


def test_a_rotten_shard_is_told_in_a_bounded_number_of_ranges() -> None:
    data = bytes(CHUNK * 400)
    manifest = sealed(data=data)
    rotten = bytearray(data)
    for chunk in range(0, 400, 2):
        rotten[chunk * CHUNK] = 1
    found = compare(manifest, seen(bytes(rotten), len(data)))
    assert len(found) == MAX_RANGES
    assert (found[-1].begin_byte, found[-1].end_byte) == (126 * CHUNK, 399 * CHUNK)
    assert "in 137 separate ranges" in found[-1].detail
    assert "separate" not in found[-2].detail


def test_a_missing_shard_is_damage() -> None:
    (found,) = compare(sealed(), {"a": ObservedShard(size_bytes=None)})
    assert (found.code, found.severity) == ("shard_missing", Severity.DAMAGE)


def test_a_truncated_shard_names_the_lost_range_and_no_half_chunk() -> None:
    (found,) = compare(sealed(), seen(DATA[:10_000]))
    assert (found.code, found.begin_byte, found.end_byte) == ("shard_truncated", 10_000, 16_384)


def test_damage_before_a_truncation_is_named_too() -> None:
    assert [f.code for f in compare(sealed(), seen(flipped(1)[:10_000]))] == ["shard_truncated", "digest_mismatch"]


def test_an_empty_shard_has_its_own_word() -> None:
    assert [f.code for f in compare(sealed(), seen(b""))] == ["shard_empty"]


def test_an_oversized_shard_names_the_extra_range() -> None:
    (found,) = compare(sealed(), seen(DATA + b"tail"))
    assert (found.code, found.begin_byte, found.end_byte) == ("shard_oversized", 16_384, 16_388)


@pytest.mark.parametrize(("denied", "code"), [(True, "permission_denied"), (False, "listing_failed")])
def test_what_could_not_be_read_is_unknown_and_not_gone(denied: bool, code: str) -> None:
    found = compare(sealed(), {"a": ObservedShard(size_bytes=None, error="no answer", denied=denied)})
    assert [f.code for f in found] == [code]
    assert verdict(found) is None


def test_shards_that_were_not_looked_at_give_nothing() -> None:
    assert compare(sealed(), {}) == ()


def test_files_match_only_by_size_and_time() -> None:
    assert matches(sealed(), [("a", len(DATA), 5)]) == (True, ())
    assert [f.code for f in matches(sealed(), [("a", len(DATA), 6)])[1]] == ["changed_since_sealing"]
    assert [f.code for f in matches(sealed(), [("a", 3, 5)])[1]] == ["shard_truncated"]
    assert [f.code for f in matches(sealed(), [])[1]] == ["shard_missing"]


def test_every_finding_says_what_to_do() -> None:
    found = [*compare(sealed(), seen(flipped(1) + b"x")), *matches(sealed(), [])[1]]
    assert all(f.cure for f in found)


def test_equal_trained_state_at_two_steps_is_a_stale_save() -> None:
    tensors = (tensor("w", 0, 100), tensor("m", 100, 200))
    stale = compare_steps(sealed(1, tensors=tensors), sealed(2, tensors=tensors))
    assert stale.verdict == StaleVerdict.STALE
    assert stale.finding is not None and stale.finding.code == "stale_save"


def test_a_frozen_layer_alone_is_no_stale_save() -> None:
    older = (tensor("frozen", 0, 100), tensor("m", 100, 200))
    newer = (tensor("frozen", 0, 100), tensor("m", 100, 200, flipped(150)))
    changed = compare_steps(sealed(1, tensors=older), sealed(2, tensors=newer))
    assert changed.verdict == StaleVerdict.CHANGED and changed.reason.startswith(
        "1 of 2 tensors changed; 1 of 2 trained"
    )
    assert (changed.equal_bytes, changed.trained_bytes) == (
        older[0].length_bytes,
        sum(one.length_bytes for one in older),
    )


def test_a_file_whose_tensors_are_all_old_is_a_partly_stale_save_unless_declared_frozen() -> None:
    other = msgspec.structs.replace(tensor("visual.w", 0, 100), shard="b")
    older = (tensor("w", 0, 100), other)
    newer = (tensor("w", 0, 100, flipped(50)), other)
    partly = compare_steps(sealed(1, tensors=older), sealed(2, tensors=newer))
    assert partly.verdict == StaleVerdict.PARTLY and partly.finding is not None
    assert (partly.finding.severity, partly.finding.path) == ("warning", "b") and "declare them" in partly.finding.cure
    declared = compare_steps(sealed(1, tensors=older), sealed(2, tensors=newer), ["visual.*"])
    assert (declared.verdict, declared.equal_bytes) == (StaleVerdict.CHANGED, 0)
    assert (
        compare_steps(sealed(1, tensors=older), sealed(2, tensors=newer), ["*"]).verdict == StaleVerdict.NOT_DECIDABLE
    )


def test_a_stale_save_is_seen_although_the_tensors_moved_in_the_file() -> None:
    moved = msgspec.structs.replace(tensor("w", 0, 100), offset_bytes=777)
    assert compare_steps(sealed(1, tensors=(tensor("w", 0, 100),)), sealed(2, tensors=(moved,))).verdict == "stale"


@pytest.mark.parametrize(
    ("older", "newer"),
    [((), ()), ((tensor("w", 0, 9),), ()), ((tensor("w", 0, 9),), (tensor("v", 0, 9),))],
)
def test_without_comparable_tensors_staleness_is_not_decidable(
    older: tuple[TensorDigest, ...], newer: tuple[TensorDigest, ...]
) -> None:
    assert compare_steps(sealed(1, tensors=older), sealed(2, tensors=newer)).verdict == StaleVerdict.NOT_DECIDABLE


def test_one_step_is_not_compared_with_itself() -> None:
    manifest = sealed(tensors=(tensor("w", 0, 9),))
    assert compare_steps(manifest, manifest).verdict == StaleVerdict.NOT_DECIDABLE


def test_a_sample_is_reproducible_and_of_the_asked_size() -> None:
    assert sample_chunks(1024, 0.1, 7) == sample_chunks(1024, 0.1, 7)
    assert sample_chunks(1024, 0.1, 7) != sample_chunks(1024, 0.1, 8)
    assert len(set(sample_chunks(1024, 0.1, 7))) == 103
    assert sample_chunks(10, 1.0, 0) == list(range(10))
    assert len(sample_chunks(10, 0.0001, 0)) == 1
    assert sample_chunks(0, 0.5, 0) == []


@pytest.mark.parametrize(
    ("total", "ratio", "turns"), [(1024, 0.1, 10), (1000, 0.3, 4), (7, 0.5, 2), (3, 0.01, 3), (5, 1, 1)]
)
def test_turns_in_a_row_read_every_chunk_from_whichever_they_begin(total: int, ratio: float, turns: int) -> None:
    assert turns_to_cover(total, ratio) == turns
    for first in (0, 1, 17):
        read = [sample_chunks(total, ratio, 7, turn) for turn in range(first, first + turns)]
        assert set().union(*read) == set(range(total))
        assert {len(one) for one in read} == {sample_size(total, ratio)}
    early = [sample_chunks(total, ratio, 7, turn) for turn in range(turns - 1)]
    assert len(set().union(*early)) == (covered_chunks(total, ratio, turns - 1) if early else 0)


@pytest.mark.parametrize("ratio", [0, -1, 1.1, float("nan")])
def test_a_ratio_outside_its_range_is_refused(ratio: float) -> None:
    with pytest.raises(ValueError, match="sample ratio"):
        sample_chunks(10, ratio, 0)


def test_the_chance_of_finding_damage_is_the_hypergeometric_one() -> None:
    assert detection_probability(1024, 102, 1) == pytest.approx(0.0996, abs=5e-5)
    assert detection_probability(10, 1, 10) == 1.0
    assert detection_probability(10, 10, 1) == 1.0
    assert detection_probability(10, 5, 0) == 0
    assert detection_probability(10, 3, 2) == pytest.approx(1 - (7 * 6) / (10 * 9))
    assert detection_probability(10, 10) == 1.0
    assert detection_probability(10, 0) == 0.0
    assert detection_probability(10, 5, 0) == 0.0
    with pytest.raises(ValueError, match="between"):
        detection_probability(10, 11)
