"""Copies into a bucket are proven by the CRC that the store compares and keeps, where it has one; else by MD5, with the
reason. The store is emulated: the real one of the tests has no such sums."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from agent.checkpoint_factory import write_checkpoint
from muster_agent.jobs import copy_s3
from muster_agent.jobs.control import JobControl
from muster_agent.jobs.copy import CopyJob, run_copy
from muster_agent.jobs.copy_s3 import S3Target
from muster_agent.jobs.copy_trouble import CopyTrouble
from muster_agent.jobs.own_sums import check_own_sums
from muster_agent.jobs.seal import seal
from muster_agent.manifest.beside import read_beside
from muster_agent.manifest.model import CHUNK_BYTES
from muster_agent.protocol.copies import CopyCursor, CopyOrder
from muster_agent.storage.s3_client import connect
from muster_agent.storage.s3_writer import S3Writer

from tests.servers.emulated_uploads import EmulatedUploads

pytestmark = pytest.mark.emulated
TARGET = "s3://deep/cold/llama/step-00000100"


@pytest.fixture
def emulated(monkeypatch: pytest.MonkeyPatch) -> Iterator[EmulatedUploads]:
    for name, value in {
        "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true", "NO_PROXY": "127.0.0.1",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(copy_s3, "PART_BYTES", CHUNK_BYTES)
    store = EmulatedUploads()
    monkeypatch.setenv("AWS_ENDPOINT_URL", store.url)
    yield store
    store.stop()


@pytest.fixture
def order(tmp_path: Path) -> CopyOrder:
    """Two ranks of two parts each."""
    source = write_checkpoint(tmp_path / "hot" / "llama", 100, world_size=2, rank_bytes=4_500_000)
    (source / "empty").write_bytes(b"")
    seal(str(source))
    return CopyOrder(
        source=str(source), source_root=str(tmp_path / "hot"), target=TARGET, target_root="s3://deep/cold", tag="trf_1",
        manifest=read_beside(str(source)), proof="checksum",
    )  # fmt: skip


def writer() -> S3Writer:
    store = S3Writer.over(connect())
    store.first_wait_seconds = 0.001
    return store


def copied(order: CopyOrder) -> CopyCursor:
    return run_copy(order, S3Target(order, writer()), JobControl(), store=writer())[0]


def compared(order: CopyOrder) -> CopyJob:
    """All steps up to the proof."""
    job = CopyJob(order, CopyCursor(), S3Target(order, writer()))
    job.look()
    job.survey()
    job.copy(JobControl())
    return job


def require_no_reads(store: EmulatedUploads) -> None:
    read = [one for one in store.asked if one.startswith("GET") and ".safetensors" in one and "attributes" not in one]
    assert read == []


@pytest.mark.parametrize(
    ("compares", "unknown", "tells", "proof"),
    [
        (("crc64nvme", "crc32c"), "ignore", "head", "CRC-64/NVME of every object"),
        (("crc64nvme",), "ignore", "attributes", "CRC-64/NVME of every object"),
        (("crc32c",), "ignore", "head", "CRC-32C of every object"),
        (("crc32c",), "501", "attributes", "CRC-32C of every object"),
        ((), "ignore", "head", "MD5 of every part"),
        ((), "400", "head", "MD5 of every part"),
        (("crc64nvme",), "ignore", "", "MD5 of every part"),
    ],
)
def test_the_proof_is_the_best_sum_that_the_store_compares_and_tells(
    emulated: EmulatedUploads, order: CopyOrder, compares: tuple[str, ...], unknown: str, tells: str, proof: str
) -> None:
    emulated.compares, emulated.unknown, emulated.tells = compares, unknown, tells
    job = compared(order)
    job.prove(JobControl())
    assert job.cursor.proved_by == proof
    assert bool(job.cursor.proof_note) == (proof == "MD5 of every part")
    if tells == "":
        assert "does not tell it back" in job.cursor.proof_note
    require_no_reads(emulated)
    assert emulated.under_way == {}, "an upload that was begun only to ask is dropped"
    sums = {one.path: one.sent_sum.partition(":")[0] for one in job.cursor.files if one.size_bytes}
    assert set(sums.values()) == {compares[0] if compares else ""}


@pytest.mark.parametrize("kind", ["crc64nvme", "crc32c"])
def test_bytes_that_rotted_before_the_store_summed_them_are_found_and_sent_again(
    emulated: EmulatedUploads, order: CopyOrder, kind: str
) -> None:
    emulated.compares, emulated.turns = (kind,), "rank-00001"
    job = compared(order)
    with pytest.raises(CopyTrouble) as met:
        job.prove(JobControl())
    assert met.value.code == "proof_failed" and "rank-00001" in str(met.value) and not job.is_proven
    emulated.turns = ""
    job.copy(JobControl())
    job.prove(JobControl())
    job.switch()
    stored = {key.rpartition("/")[2]: one.data for key, one in emulated.objects.items() if ".muster" not in key}
    assert stored == {one.name: one.read_bytes() for one in Path(order.source).iterdir() if ".muster" not in one.name}


def test_an_object_that_somebody_replaced_is_no_proof(emulated: EmulatedUploads, order: CopyOrder) -> None:
    job = compared(order)
    key = next(key for key in emulated.objects if "rank-00000" in key)
    emulated.objects[key].data = bytes(len(emulated.objects[key].data))
    with pytest.raises(CopyTrouble, match="does not keep what was sent"):
        job.prove(JobControl())


def test_a_part_that_turned_after_its_md5_was_compared_is_refused_by_its_crc(
    emulated: EmulatedUploads, order: CopyOrder
) -> None:
    emulated.spoils_parts = True
    with pytest.raises(CopyTrouble, match="is not what was sent"):
        compared(order)
    assert not any(".safetensors" in key for key in emulated.objects)


def test_what_the_bucket_keeps_is_compared_before_sealing(emulated: EmulatedUploads, order: CopyOrder) -> None:
    """By the same sums: whole ones of any size, since the compiled CRC is there."""
    copied(order)
    done = check_own_sums(TARGET, store=writer())
    assert done.findings == () and done.checked_bytes >= 9_000_000
    key = next(key for key in emulated.objects if "rank-00000" in key)
    emulated.objects[key].data = bytes(len(emulated.objects[key].data))
    assert "digest_mismatch" in [one.code for one in check_own_sums(TARGET, store=writer()).findings]


def test_without_the_compiled_crc_the_proof_is_md5_and_says_what_to_install(
    emulated: EmulatedUploads, order: CopyOrder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("muster_agent.storage.s3_sent_sums.fast_crc", lambda _algorithm: None)
    cursor = copied(order)
    assert cursor.proved_by == "MD5 of every part" and "pip install 'muster-agent[s3]'" in cursor.proof_note


# -- puts under a condition --------------------------------------------------------------------------------------------
@pytest.mark.parametrize("keeps", [True, False])
def test_a_small_file_is_only_replaced_while_it_is_the_one_that_was_read(
    emulated: EmulatedUploads, keeps: bool
) -> None:
    """A store that refuses the condition whatever its value, as Ceph 16 does, is asked again without."""
    emulated.keeps_conditions = keeps
    store = writer()
    first = store.write("deep", "note", b"one", only_new=True)
    second = store.write("deep", "note", b"two", only_new=False, replaces=first)
    with pytest.raises(FileExistsError):
        store.write("deep", "note", b"three", only_new=False, replaces=first)
    with pytest.raises(FileExistsError):
        store.write("deep", "note", b"three", only_new=True)
    assert (
        emulated.objects["note"].data == b"two"
        and store.write("deep", "note", b"two", only_new=False, replaces=first) == second
    )


def test_of_two_writers_at_the_same_moment_one_is_told_that_it_lost(
    emulated: EmulatedUploads, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, other = writer(), writer()
    first = store.write("deep", "note", b"one", only_new=True)
    put, raced = S3Writer._put, []

    def late(self: S3Writer, asked: dict[str, Any]) -> str:
        if not raced:
            raced.append(True)
            other.write("deep", "note", b"theirs", only_new=False, replaces=first)
        return put(self, asked)

    monkeypatch.setattr(S3Writer, "_put", late)
    with pytest.raises(FileExistsError):
        store.write("deep", "note", b"ours", only_new=False, replaces=first)
    assert emulated.objects["note"].data == b"theirs"
