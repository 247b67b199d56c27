"""The damage matrix: every kind of damage in every shard, over several seeds, is found and named."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from muster_agent.formats.detect import files_of, read_checkpoint
from muster_agent.formats.fingerprint import fingerprint
from muster_agent.jobs.checkpoint_place import CheckpointNotFound, place_at
from muster_agent.jobs.control import Cancelled, JobControl
from muster_agent.jobs.seal import seal
from muster_agent.jobs.structure import look
from muster_agent.jobs.verify import Verification, VerifyCursor, verify
from muster_agent.manifest.compare import matches
from muster_agent.manifest.model import CHUNK_BYTES, Manifest
from muster_agent.manifest.sampling import Sample, turns_to_cover
from muster_agent.probes.page_cache import cached_ratio, evict
from muster_agent.protocol.wire import VerifyBody
from muster_agent.storage.posix import PosixShard

from tests.agent.checkpoint_factory import rank_tensors, safetensors_bytes, tensor_offset, write_checkpoint
from tests.agent.formats.damage import copy_sample
from tests.agent.torch_factory import Tensor, torch_zip

RANK_BYTES = 5_000_000  # two chunks


def sealed(tmp_path: Path, seed: int = 0) -> tuple[Path, Manifest]:
    folder = write_checkpoint(tmp_path / "run", 10, rank_bytes=RANK_BYTES, seed=seed)
    manifest = seal(str(folder)).manifest
    assert manifest is not None
    return folder, manifest


def flip(shard: Path, source: random.Random) -> tuple[str, int]:
    position = source.randrange(shard.stat().st_size)
    overwrite(shard, position, bytes([shard.read_bytes()[position] ^ (1 << source.randrange(8))]))
    return "digest_mismatch", position


def zero_block(shard: Path, source: random.Random) -> tuple[str, int]:
    position = source.randrange(600, shard.stat().st_size - 4096)
    overwrite(shard, position, bytes(4096))
    return "digest_mismatch", position


def truncate(shard: Path, source: random.Random) -> tuple[str, int]:
    size = source.randrange(1, shard.stat().st_size)
    os.truncate(shard, size)
    return "shard_truncated", size


def empty(shard: Path, _source: random.Random) -> tuple[str, int]:
    os.truncate(shard, 0)
    return "shard_empty", 0


def extra_bytes(shard: Path, source: random.Random) -> tuple[str, int]:
    size = shard.stat().st_size
    with open(shard, "ab") as file:
        file.write(source.randbytes(source.randrange(1, 10_000)))
    return "shard_oversized", size


def delete(shard: Path, _source: random.Random) -> tuple[str, None]:
    shard.unlink()
    return "shard_missing", None


def overwrite(shard: Path, position: int, data: bytes) -> None:
    """Change bytes and put the times back, as silent damage does."""
    before = shard.stat()
    with open(shard, "r+b") as file:
        file.seek(position)
        file.write(data)
    os.utime(shard, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> dict[int, tuple[Path, Manifest]]:
    """Sealed checkpoints by seed, never to be changed."""
    return {seed: sealed(tmp_path_factory.mktemp(f"seed-{seed}"), seed) for seed in (1, 2, 3)}


def copy_with_links(source: Path, target: Path, changing: str) -> Path:
    """Only the file that will be damaged is copied, the others are links: a hundred tests need little disk."""
    target.mkdir()
    for file in source.iterdir():
        if file.name == changing:
            shutil.copy2(file, target)
        else:
            os.link(file, target / file.name)
    return target


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("rank", [0, 1, 2, 3])
@pytest.mark.parametrize("damage", [flip, zero_block, truncate, empty, extra_bytes, delete])
def test_damage_is_found_and_its_place_is_named(
    pristine: dict[int, tuple[Path, Manifest]],
    tmp_path: Path,
    damage: Callable[[Path, random.Random], tuple[str, int | None]],
    rank: int,
    seed: int,
) -> None:
    original, manifest = pristine[seed]
    name = f"rank-{rank:05d}-of-00004.safetensors"
    folder = copy_with_links(original, tmp_path / "copy", name)
    shard = folder / name
    code, position = damage(shard, random.Random(f"{seed}/{rank}"))
    body = verify(str(folder), manifest)
    assert body.verified is False
    (found, *others) = [f for f in body.findings if f.code == code]
    assert found.path == shard.name and {f.path for f in body.findings} == {shard.name} and not others
    if position is not None:
        assert found.begin_byte is not None and found.end_byte is not None
        assert found.begin_byte <= position < found.end_byte
    if code == "digest_mismatch":
        assert found.begin_byte is not None and found.begin_byte % CHUNK_BYTES == 0


def test_an_undamaged_checkpoint_verifies_whatever_the_seed(tmp_path: Path) -> None:
    folder, manifest = sealed(tmp_path)
    body = verify(str(folder), manifest)
    assert (body.verified, body.findings) == (True, ())
    assert body.checked_bytes == manifest.total_bytes
    assert body.checked_chunks == body.total_chunks == 9
    assert body.fingerprint == fingerprint(files_of(read_checkpoint(str(folder))))


def flip_in_tensor(folder: Path, kind: str) -> tuple[Path, str, int]:
    shard = folder / "rank-00002-of-00004.safetensors"
    name = next(name for name in rank_tensors(2, RANK_BYTES, 10) if name.startswith(kind))
    position = tensor_offset(shard, name) + 3
    overwrite(shard, position, bytes([shard.read_bytes()[position] ^ 0x10]))
    return shard, name, position


@pytest.mark.parametrize("kind", ["model.", "optimizer.exp_avg.", "optimizer.exp_avg_sq."])
def test_a_flipped_byte_is_named_to_its_chunk_and_its_tensor(tmp_path: Path, kind: str) -> None:
    folder, manifest = sealed(tmp_path)
    shard, name, position = flip_in_tensor(folder, kind)
    (found,) = verify(str(folder), manifest).findings
    chunk = position // CHUNK_BYTES * CHUNK_BYTES
    assert (found.code, found.path, found.tensor) == ("digest_mismatch", shard.name, name)
    assert (found.begin_byte, found.end_byte) == (chunk, min(chunk + CHUNK_BYTES, shard.stat().st_size))
    assert f"damaged: tensor {name}" in found.detail and found.cure


@pytest.mark.parametrize("kind", ["rng.", "dataloader."])
def test_of_several_suspects_without_digests_none_is_accused(tmp_path: Path, kind: str) -> None:
    folder, manifest = sealed(tmp_path)
    flip_in_tensor(folder, kind)
    (found,) = verify(str(folder), manifest).findings
    assert found.tensor is None
    assert "the range holds: tensors rng.state, dataloader.position" in found.detail


def test_two_swapped_shards_are_both_named(tmp_path: Path) -> None:
    folder, manifest = sealed(tmp_path)
    a, b = (folder / f"rank-{rank:05d}-of-00004.safetensors" for rank in (0, 1))
    data = a.read_bytes()
    a.write_bytes(b.read_bytes())
    b.write_bytes(data)
    body = verify(str(folder), manifest)
    assert body.verified is False
    assert {found.path for found in body.findings} == {a.name, b.name}


def test_a_manifest_of_another_save_matches_no_shard_and_proves_no_damage(tmp_path: Path) -> None:
    folder, _ = sealed(tmp_path)
    (tmp_path / "other").mkdir()
    _, stale = sealed(tmp_path / "other", seed=99)
    body = verify(str(folder), stale)
    assert body.verified is None
    assert {f.path for f in body.findings if f.code == "changed_since_sealing"} >= {
        f"rank-{rank:05d}-of-00004.safetensors" for rank in range(4)
    }


def test_all_damage_is_named_and_not_only_the_first(tmp_path: Path) -> None:
    folder, manifest = sealed(tmp_path)
    source = random.Random(5)
    shards = sorted(folder.glob("rank-*"))
    codes = [
        damage(shard, source)[0] for damage, shard in zip((flip, truncate, delete, extra_bytes), shards, strict=True)
    ]
    found = verify(str(folder), manifest).findings
    assert [next(f.code for f in found if f.path == shard.name) for shard in shards] == codes


def test_damaged_metadata_is_named_although_no_reader_understands_it(tmp_path: Path) -> None:
    folder, manifest = sealed(tmp_path)
    overwrite(folder / "checkpoint.json", 0, b"\0\0")
    (found,) = verify(str(folder), manifest).findings
    assert (found.code, found.path) == ("digest_mismatch", "checkpoint.json")


def test_a_sample_reads_less_and_is_the_same_for_the_same_seed(tmp_path: Path) -> None:
    folder, manifest = sealed(tmp_path)
    body = verify(str(folder), manifest, sample=Sample(0.5, 3))
    assert body.verified is True
    assert (body.checked_chunks, body.total_chunks) == (5, 9)
    again = verify(str(folder), manifest, sample=Sample(0.5, 3))
    assert again.checked_bytes == body.checked_bytes < manifest.total_bytes


def test_the_turns_of_a_rotation_leave_no_chunk_out(tmp_path: Path) -> None:
    folder, manifest = sealed(tmp_path)
    flip(folder / "rank-00002-of-00004.safetensors", random.Random(4))
    turns = turns_to_cover(9, 0.3)
    verdicts = [verify(str(folder), manifest, sample=Sample(0.3, 11, turn)).verified for turn in range(turns)]
    assert turns == 3 and sorted(map(bool, verdicts)) == [False, True, True], "one turn in three meets it"


def read_from_storage(work: Callable[[], VerifyBody]) -> tuple[VerifyBody, int]:
    """What it gives, and the bytes that this process asked the kernel for meanwhile."""

    def so_far() -> int:
        return int(Path("/proc/self/io").read_text().split()[1])

    before = so_far()
    return work(), so_far() - before


def test_a_sample_reads_what_it_says_and_no_more(tmp_path: Path) -> None:
    folder, manifest = sealed(tmp_path)
    body, asked_bytes = read_from_storage(lambda: verify(str(folder), manifest, sample=Sample(0.3, 5)))
    assert body.checked_chunks == 3
    assert body.checked_bytes <= asked_bytes < body.checked_bytes + 64 * 1024 < manifest.total_bytes


def test_a_look_at_the_structure_reads_no_data_and_sees_what_is_missing(tmp_path: Path) -> None:
    folder, manifest = sealed(tmp_path)
    body, asked_bytes = read_from_storage(lambda: look(str(folder), manifest))
    assert (body.verified, body.checked_bytes, body.checked_chunks, body.total_chunks) == (True, 0, 0, 9)
    assert asked_bytes < manifest.total_bytes / 50 and body.fingerprint == verify(str(folder), manifest).fingerprint
    assert look(str(folder), None).verified is True
    os.truncate(folder / "rank-00001-of-00004.safetensors", 5)
    os.utime(folder / "rank-00001-of-00004.safetensors", ns=(0, manifest.shards[2].mtime_ns))
    for known in (manifest, None):
        found = [one.code for one in look(str(folder), known).findings]
        assert look(str(folder), known).verified is False and "shard_truncated" in found


def test_a_save_that_is_not_finished_is_not_decided_by_a_look(tmp_path: Path) -> None:
    folder, _manifest = sealed(tmp_path)
    (folder / "checkpoint.json").unlink()
    body = look(str(folder), None)
    assert body.verified is not True and body.findings


def test_a_full_verification_gives_the_root_digest_of_the_seal(tmp_path: Path) -> None:
    folder, manifest = sealed(tmp_path)
    assert verify(str(folder), manifest).read_xxh3_128 == manifest.root_xxh3_128
    assert verify(str(folder), manifest, sample=Sample(0.5, 3)).read_xxh3_128 != manifest.root_xxh3_128


class StopsAfter(JobControl):
    """Ends the work once so many bytes were read in this turn."""

    def __init__(self, stop_bytes: int) -> None:
        super().__init__(self._moved)
        self._stop_bytes = stop_bytes

    def _moved(self, _phase: str, done_bytes: int, _total_bytes: int) -> None:
        if done_bytes >= self._stop_bytes:
            self.cancel()


def test_a_verification_goes_on_where_it_was_stopped_and_finds_the_same(tmp_path: Path) -> None:
    folder, manifest = sealed(tmp_path)
    flip(folder / "rank-00002-of-00004.safetensors", random.Random(4))
    whole = verify(str(folder), manifest)
    saved, turns = msgspec.json.encode(VerifyCursor()), 0
    while True:
        turns += 1
        cursor = msgspec.json.decode(saved, type=VerifyCursor)
        work = Verification(place_at(str(folder)), manifest, cursor, threads=1)
        try:
            work.read(StopsAfter(CHUNK_BYTES))
            break
        except Cancelled:
            saved = msgspec.json.encode(cursor)
    parts = work.result()
    assert turns > 3 and parts.findings == whole.findings
    assert (parts.checked_chunks, parts.read_xxh3_128) == (9, whole.read_xxh3_128)
    assert parts.checked_bytes == whole.checked_bytes == manifest.total_bytes


def test_through_the_page_cache_the_same_is_found(tmp_path: Path) -> None:
    folder, manifest = sealed(tmp_path)
    good = verify(str(folder), manifest, through_cache=True)
    assert (good.verified, good.read_xxh3_128) == (True, manifest.root_xxh3_128)
    flip(folder / "rank-00002-of-00004.safetensors", random.Random(4))
    around, through = verify(str(folder), manifest), verify(str(folder), manifest, through_cache=True)
    assert through.verified is False and through.findings == around.findings
    assert through.read_xxh3_128 == around.read_xxh3_128


@pytest.mark.parametrize("through_cache", [False, True])
def test_files_are_left_out_of_memory_unless_read_through_it(tmp_path: Path, through_cache: bool) -> None:
    folder, manifest = sealed(tmp_path)
    files = [str(path) for path in folder.iterdir()]
    evict(files)
    if (cached_ratio(files) or 0) > 0.01:
        pytest.skip("this file system keeps files in memory")
    verify(str(folder), manifest, through_cache=through_cache)
    assert (cached_ratio(files) or 0) > 0.9 if through_cache else (cached_ratio(files) or 0) < 0.2


@pytest.mark.parametrize("through_cache", [False, True])
def test_a_cap_holds_the_reading_back(tmp_path: Path, through_cache: bool) -> None:
    folder, manifest = sealed(tmp_path)
    body = verify(str(folder), manifest, max_bytes_per_second=40_000_000, through_cache=through_cache)
    assert body.verified is True and body.seconds >= manifest.total_bytes / 40_000_000 * 0.9


def test_a_sample_always_sees_a_changed_size(tmp_path: Path) -> None:
    folder, manifest = sealed(tmp_path)
    delete(folder / "rank-00003-of-00004.safetensors", random.Random())
    assert verify(str(folder), manifest, sample=Sample(0.01, 1)).verified is False


def test_some_sample_meets_the_damage_and_some_misses_it(tmp_path: Path) -> None:
    folder, manifest = sealed(tmp_path)
    flip(folder / "rank-00000-of-00004.safetensors", random.Random(1))
    verdicts = {verify(str(folder), manifest, sample=Sample(0.3, seed)).verified for seed in range(12)}
    assert verdicts == {True, False}


def test_a_shard_that_may_not_be_read_is_unknown_and_not_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, manifest = sealed(tmp_path)
    real = PosixShard.__init__

    def deny(self: PosixShard, path: str, *, direct: bool) -> None:
        if "rank-00001" in path:
            raise PermissionError(13, "Permission denied", path)
        real(self, path, direct=direct)

    monkeypatch.setattr(PosixShard, "__init__", deny)
    body = verify(str(folder), manifest)
    assert body.verified is None
    assert [(f.code, f.path) for f in body.findings] == [("permission_denied", "rank-00001-of-00004.safetensors")]


def test_a_hostile_manifest_reads_nothing(tmp_path: Path) -> None:
    import msgspec

    folder, manifest = sealed(tmp_path)
    evil = msgspec.structs.replace(manifest.shards[0], path="../../../etc/passwd")
    body = verify(str(folder), msgspec.structs.replace(manifest, shards=(evil,)))
    assert (body.verified, body.checked_bytes) == (None, 0)
    assert "leads out" in body.findings[0].detail


def test_a_path_without_anything_is_not_found(tmp_path: Path) -> None:
    _, manifest = sealed(tmp_path)
    with pytest.raises(CheckpointNotFound):
        verify(str(tmp_path / "gone"), manifest)


def test_verifying_stops_when_told(tmp_path: Path) -> None:
    folder, manifest = sealed(tmp_path)
    control = JobControl()
    control.cancel()
    with pytest.raises(Cancelled):
        verify(str(folder), manifest, control=control)


def test_the_world_size_file_is_sealed_like_any_other(tmp_path: Path) -> None:
    folder, manifest = sealed(tmp_path)
    changed = json.loads((folder / "checkpoint.json").read_text()) | {"step": 11}
    overwrite(folder / "checkpoint.json", 0, json.dumps(changed).encode())
    assert verify(str(folder), manifest).verified is False


# -- written again since the seal, or rotten ---------------------------------------------------------------------------
def saved_again(folder: Path, seed: int = 7) -> None:
    """The same step with other values, every file written again later."""
    for path in write_checkpoint(folder.parent / "other-values", 10, rank_bytes=RANK_BYTES, seed=seed).iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    later_ns = max(path.stat().st_mtime_ns for path in folder.iterdir()) + 60_000_000_000
    for path in folder.iterdir():
        if not path.name.startswith("."):
            os.utime(path, ns=(later_ns, later_ns))


def codes(body: VerifyBody) -> set[tuple[str, str]]:
    return {(found.code, found.severity.value) for found in body.findings}


def test_a_step_saved_again_is_changed_and_not_damaged_and_a_new_seal_verifies(tmp_path: Path) -> None:
    folder, manifest = sealed(tmp_path)
    saved_again(folder)
    body = verify(str(folder), manifest)
    assert (body.verified, codes(body)) == (None, {("changed_since_sealing", "warning")})
    assert {found.path for found in body.findings} >= {f"rank-{rank:05d}-of-00004.safetensors" for rank in range(4)}
    assert "changed since sealing" in body.findings[0].detail and "if nobody saved" in body.findings[0].cure
    anew = seal(str(folder)).manifest
    assert anew is not None and verify(str(folder), anew).verified is True


@pytest.mark.parametrize("damage", [truncate, empty, extra_bytes, delete])
def test_in_a_step_that_is_being_saved_again_a_file_of_another_size_is_no_damage(
    tmp_path: Path, damage: Callable[[Path, random.Random], tuple[str, int | None]]
) -> None:
    folder, manifest = sealed(tmp_path)
    metadata = folder / "checkpoint.json"
    before = metadata.stat()
    saved_again(folder)
    os.utime(metadata, ns=(before.st_atime_ns, before.st_mtime_ns))  # a save comes to it last
    shard = folder / "rank-00002-of-00004.safetensors"
    later_ns = shard.stat().st_mtime_ns
    damage(shard, random.Random(1))
    if shard.exists():
        os.utime(shard, ns=(later_ns, later_ns))
    body = verify(str(folder), manifest)
    assert (body.verified, codes(body)) == (None, {("changed_since_sealing", "warning")})


def test_one_file_written_again_with_other_bytes_is_changed_and_equal_bytes_still_verify(tmp_path: Path) -> None:
    folder, manifest = sealed(tmp_path)
    shard = folder / "rank-00001-of-00004.safetensors"
    os.utime(shard)
    assert verify(str(folder), manifest).verified is True
    flip(shard, random.Random(3))
    body = verify(str(folder), manifest)
    assert body.verified is None
    assert [(found.code, found.path) for found in body.findings] == [("changed_since_sealing", shard.name)]


def test_a_file_that_changes_while_it_is_read_is_changed_and_not_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, manifest = sealed(tmp_path)
    shard = folder / "rank-00001-of-00004.safetensors"
    real = PosixShard.read_into

    def write_first(self: PosixShard, buffer: memoryview, offset_bytes: int, length_bytes: int) -> int:
        if self.path.endswith(shard.name) and offset_bytes == 0:
            shard.write_bytes(bytes(shard.stat().st_size))
        return real(self, buffer, offset_bytes, length_bytes)

    monkeypatch.setattr(PosixShard, "read_into", write_first)
    body = verify(str(folder), manifest)
    assert body.verified is None
    (found,) = body.findings
    assert found.code == "changed_since_sealing" and "while it was read" in found.detail


def test_damage_beside_a_file_that_was_written_again_is_still_damage(tmp_path: Path) -> None:
    folder, manifest = sealed(tmp_path)
    shards = sorted(folder.glob("rank-*"))
    shards[0].write_bytes(bytes(shards[0].stat().st_size))
    flip(shards[1], random.Random(2))
    body = verify(str(folder), manifest)
    assert body.verified is False
    assert {(found.code, found.path) for found in body.findings} == {
        ("changed_since_sealing", shards[0].name),
        ("digest_mismatch", shards[1].name),
    }


@pytest.mark.parametrize("damage", [flip, truncate])
def test_damage_in_a_copy_made_without_times_is_damage_and_no_new_save(
    tmp_path: Path, damage: Callable[[Path, random.Random], tuple[str, int | None]]
) -> None:
    folder, manifest = sealed(tmp_path)
    copy = shutil.copytree(folder, tmp_path / "copy", copy_function=shutil.copyfile)
    later_ns = max(shard.mtime_ns for shard in manifest.shards) + 60_000_000_000
    shard = copy / "rank-00001-of-00004.safetensors"
    damage(shard, random.Random(3))
    for file in copy.iterdir():
        os.utime(file, ns=(later_ns, later_ns))
    body = verify(str(copy), manifest)
    assert body.verified is False and {found.path for found in body.findings} == {shard.name}
    assert {severity for _, severity in codes(body)} == {"damage"}


def test_a_lone_file_that_was_cut_is_damage_and_one_that_was_saved_again_is_not(tmp_path: Path) -> None:
    path = tmp_path / "step-10.safetensors"
    path.write_bytes(safetensors_bytes({"model.w": bytes(5_000)}))
    manifest = seal(str(path)).manifest
    assert manifest is not None
    path.write_bytes(safetensors_bytes({"model.w": bytes(9_000)}))
    os.utime(path, ns=(0, manifest.shards[0].mtime_ns + 10**9))
    assert verify(str(path), manifest).verified is None
    os.truncate(path, 3_000)
    os.utime(path, ns=(0, manifest.shards[0].mtime_ns + 10**9))
    assert verify(str(path), manifest).verified is False


# -- every file has a later time: a new save, or a copy made without times ---------------------------------------------
def later(folder: Path, manifest: Manifest) -> None:
    when_ns = max(shard.mtime_ns for shard in manifest.shards) + 60_000_000_000
    for path in folder.rglob("*") if folder.is_dir() else [folder]:
        if path.is_file() and not path.name.startswith(".muster"):
            os.utime(path, ns=(when_ns, when_ns))


def sealed_trainer(tmp_path: Path) -> tuple[Path, Manifest]:
    folder = copy_sample("huggingface/trainer-ddp2/checkpoint-9", tmp_path)
    manifest = seal(str(folder)).manifest
    assert manifest is not None
    return folder, manifest


def test_a_step_saved_again_with_other_random_states_only_is_changed_and_not_damaged(tmp_path: Path) -> None:
    folder, manifest = sealed_trainer(tmp_path)
    for rank in (0, 1):
        (folder / f"rng_state_{rank}.pth").write_bytes(torch_zip({"cpu": Tensor("0", (16,)), "step": rank}))
    later(folder, manifest)
    body = verify(str(folder), manifest)
    assert (body.verified, codes(body)) == (None, {("changed_since_sealing", "warning")})


@pytest.mark.parametrize("name", ["rng_state_1.pth", "optimizer.pt", "model.safetensors"])
def test_a_flipped_byte_in_a_copy_made_without_times_is_damage_in_whatever_file(tmp_path: Path, name: str) -> None:
    folder, manifest = sealed_trainer(tmp_path)
    data = bytearray((folder / name).read_bytes())
    data[len(data) // 2] ^= 1
    (folder / name).write_bytes(data)
    later(folder, manifest)
    body = verify(str(folder), manifest)
    assert (body.verified, {found.path for found in body.findings}) == (False, {name})


@pytest.mark.parametrize("large", [False, True])
def test_a_flipped_byte_in_the_only_file_of_a_copy_made_without_times_is_damage(tmp_path: Path, large: bool) -> None:
    source = random.Random(5)
    path = tmp_path / "step-10.safetensors"
    parts = {f"model.w{number}": source.randbytes(3_000_000 if large else 3_000) for number in range(4)}
    path.write_bytes(safetensors_bytes(parts))
    manifest = seal(str(path)).manifest
    assert manifest is not None
    flip(path, random.Random(8))
    later(path, manifest)
    assert verify(str(path), manifest).verified is False
    path.write_bytes(safetensors_bytes({name: source.randbytes(len(data)) for name, data in parts.items()}))
    later(path, manifest)
    assert verify(str(path), manifest).verified is None


def test_a_new_save_that_left_most_of_a_model_frozen_is_changed_where_its_own_sums_agree(tmp_path: Path) -> None:
    folder, manifest = sealed_trainer(tmp_path)
    state = {"state": {0: {"exp_avg": Tensor("0", (64, 64)), "exp_avg_sq": Tensor("1", (64, 64))}}, "param_groups": []}
    (folder / "optimizer.pt").write_bytes(torch_zip(state))
    later(folder, manifest)
    assert verify(str(folder), manifest).verified is None


def test_a_time_that_no_calendar_holds_is_told_without_a_traceback(tmp_path: Path) -> None:
    folder, manifest = sealed(tmp_path)
    strange = {"rank-00001-of-00004.safetensors": 999_999_999_999 * 10**9}
    files = [(shard.path, shard.size_bytes, strange.get(shard.path, shard.mtime_ns)) for shard in manifest.shards]
    same, (found,) = matches(manifest, files)
    assert not same and "no calendar" in found.detail
