from __future__ import annotations

import errno
import mmap
import time
from pathlib import Path

import pytest
from muster_agent.formats.base import Status
from muster_agent.formats.root import RootUnreadable
from muster_agent.formats.tree import ARCHIVED
from muster_agent.jobs.checkpoint_place import BucketPlace, CheckpointNotFound, CheckpointPlace, PosixPlace, place_at
from muster_agent.storage.s3_client import connect

from tests.agent.formats.damage import DATA
from tests.servers.s3 import S3Server

CHECKPOINT = DATA / "megatron/torch_dist/iter_0000100"


def in_bucket(path: str) -> CheckpointPlace:
    return place_at(path, connect())


def bytes_of(place: CheckpointPlace, shard: str) -> bytes:
    (stated,) = place.stat_all([shard])
    with place.reads() as open_shard:
        source = open_shard(stated)
        buffer = memoryview(mmap.mmap(-1, source.size_bytes + 4096))
        count = source.read_into(buffer, 0, source.size_bytes)
        source.close()
    return bytes(buffer[:count])


def test_a_checkpoint_in_a_bucket_is_what_it_is_in_a_folder(any_s3_server: S3Server) -> None:
    here = PosixPlace(str(CHECKPOINT))
    there = in_bucket(any_s3_server.put_folder(CHECKPOINT, "runs/llama/iter_0000100"))
    for place in (here, there):
        place.require()
    own, copy = here.read(), there.read()
    assert (copy.status, copy.format, copy.step) == (own.status, own.format, own.step)
    assert [tensor.name for tensor in copy.tensors] == [tensor.name for tensor in own.tensors]
    names = [shard.path for shard in own.shards]
    assert [shard.path for shard in copy.shards] == names
    for before, after in zip(here.stat_all(names), there.stat_all(names), strict=True):
        assert (before.path, before.size_bytes) == (after.path, after.size_bytes)
        assert after.location == f"{any_s3_server.place}/runs/llama/iter_0000100/{after.path}"
        assert after.etag
        assert abs(after.mtime_ns / 1e9 - time.time()) < 300
    assert bytes_of(there, names[0]) == bytes_of(here, names[0])


def test_what_was_looked_at_is_what_is_read_or_nothing(s3_server: S3Server) -> None:
    place = in_bucket(f"{s3_server.place}/step-5")
    s3_server.put("step-5/a.bin", b"old" * 200_000)
    (stated,) = place.stat_all(["a.bin"])
    s3_server.put("step-5/a.bin", b"new" * 200_000)
    with place.reads() as open_shard, pytest.raises(OSError, match="written again") as met:
        open_shard(stated).read_into(memoryview(bytearray(4096)), 0, 4096)
    assert met.value.errno == errno.ESTALE
    (again,) = place.stat_all(["a.bin"])
    assert again.etag != stated.etag
    assert again.mtime_ns > stated.mtime_ns
    with pytest.raises(OSError, match="written again"):
        place.open_file(stated)


def test_shards_that_are_not_there_are_told_from_those_that_cannot_be_read(s3_server: S3Server) -> None:
    s3_server.put("step-5/cold.bin", b"x", StorageClass="GLACIER")
    place = in_bucket(f"{s3_server.place}/step-5")
    gone, unsafe, cold = place.stat_all(["gone.bin", "../other/a.bin", "cold.bin"])
    assert isinstance(gone.error, FileNotFoundError)
    assert (unsafe.size_bytes, unsafe.error and unsafe.error.errno) == (None, errno.EINVAL)
    assert cold.size_bytes == 1
    with place.reads() as open_shard, pytest.raises(OSError, match="archive") as met:
        open_shard(cold)
    assert met.value.errno == ARCHIVED


def test_a_single_object_is_its_own_shard(s3_server: S3Server) -> None:
    data = (DATA / "safetensors/valid/valid.safetensors").read_bytes()
    s3_server.put("run/step-7.safetensors", data)
    place = in_bucket(f"{s3_server.place}/run/step-7.safetensors")
    place.require()
    assert place.read().status is Status.COMPLETE
    assert bytes_of(place, "step-7.safetensors") == data


def test_files_that_share_a_prefix_are_one_checkpoint(s3_server: S3Server) -> None:
    zipped = (DATA / "torch/zip.pt").read_bytes()
    for rank in range(2):
        s3_server.put(f"shared/ep0-ba10-rank{rank}.pt", zipped)
        s3_server.put(f"shared/ep0-ba20-rank{rank}.pt", zipped)
    place = in_bucket(f"{s3_server.place}/shared/ep0-ba10-rank{{rank}}.pt")
    place.require()
    names = [shard.path for shard in place.read().shards]
    assert names == ["ep0-ba10-rank0.pt", "ep0-ba10-rank1.pt"]
    assert all(stated.size_bytes for stated in place.stat_all(names))
    assert bytes_of(place, names[1]) == zipped


@pytest.mark.parametrize("path", ["nothing", "step-5/a", "step"])
def test_nothing_at_the_path_is_said(s3_server: S3Server, path: str) -> None:
    s3_server.put("step-5/a.bin", b"x")
    with pytest.raises(CheckpointNotFound):
        in_bucket(f"{s3_server.place}/{path}").require()


def test_a_bucket_that_cannot_be_looked_at_is_not_an_empty_one(
    s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(CheckpointNotFound, match="no bucket"):
        in_bucket("s3://no-such-bucket/step-5").require()
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    with pytest.raises(RootUnreadable, match="refused"):
        in_bucket(f"{s3_server.place}/step-5").require()


def test_a_bucket_needs_a_client(tmp_path: Path) -> None:
    with pytest.raises(RootUnreadable):
        place_at("s3://bucket/step-5")
    assert isinstance(place_at(str(tmp_path)), PosixPlace)
    assert BucketPlace("s3://bucket/step-5/", connect("http://127.0.0.1:9")).path == "s3://bucket/step-5"
