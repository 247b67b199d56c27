"""What a real store says, over HTTP and TLS; `test_s3_tree.py` scripts what this one never does."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from muster_agent.cli import main
from muster_agent.formats.base import Status
from muster_agent.formats.walk import Inventory, RootUnreadable, inventory
from muster_agent.storage import s3_client
from muster_agent.storage.s3_client import connect

from tests.agent.formats.damage import DATA, copy_sample
from tests.agent.formats.test_s3_tree import SAMPLES, said, without_links
from tests.servers.s3 import S3Server


def scan(server: S3Server, prefix: str = "runs", grace_seconds: float = 600) -> Inventory:
    return inventory(f"{server.place}/{prefix}", store=connect(), grace_seconds=grace_seconds)


def muster(*arguments: object) -> Result:
    return CliRunner().invoke(main, [*map(str, arguments)], catch_exceptions=False)


def test_every_sample_is_told_as_on_disk(any_s3_server: S3Server, tmp_path: Path) -> None:
    for sample in SAMPLES:
        without_links(copy_sample(sample, tmp_path / "runs" / sample.split("/")[0]))
    with ThreadPoolExecutor(8) as pool:
        files = [path for path in (tmp_path / "runs").rglob("*") if path.is_file()]
        list(pool.map(lambda path: any_s3_server.put(str(path.relative_to(tmp_path)), path.read_bytes()), files))
    here = inventory(tmp_path / "runs", grace_seconds=0)
    there = scan(any_s3_server, grace_seconds=0)
    told = [said(one, f"{any_s3_server.place}/runs") for one in there.checkpoints]
    assert sorted(told, key=str) == sorted((said(one, str(tmp_path / "runs")) for one in here.checkpoints), key=str)
    assert len(told) > len(SAMPLES)
    pointers = sorted(((one.step, one.target) for one in there.pointers), key=str)
    assert pointers == sorted(((one.step, one.target) for one in here.pointers), key=str)


def test_the_commands_take_a_bucket(any_s3_server: S3Server) -> None:
    any_s3_server.put_folder(DATA / "megatron/torch_dist", "runs/llama")
    place = f"{any_s3_server.place}/runs/llama"
    assert muster("resume-point", place, "--format", "path").stdout == f"{place}/iter_0000200\n"
    assert [one["step"] for one in json.loads(muster("inventory", place, "--json").stdout)] == [200, 100]
    assert muster("explain", f"{place}/iter_0000100").stdout.startswith(f"{place}/iter_0000100\n")
    any_s3_server.delete("runs/llama/iter_0000200/.metadata")
    assert muster("resume-point", place, "--format", "path").stdout == f"{place}/iter_0000100\n"


def test_a_listing_of_many_pages_is_whole(s3_server: S3Server) -> None:
    data = (DATA / "safetensors/valid/valid.safetensors").read_bytes()
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda step: s3_server.put(f"runs/step-{step:04d}.safetensors", data), range(1001)))
    found = scan(s3_server)
    assert [one.step for one in found.checkpoints] == list(range(1000, -1, -1))


@pytest.mark.parametrize("name", ["a b", "a+b", "ä模", "a&<b>'\"", "100%41", "a?b#c", "~(x)!*"])
def test_names_are_taken_literally(s3_server: S3Server, name: str) -> None:
    s3_server.put_folder(DATA / "dcp/single/step-5", f"runs/{name}/step-5")
    (one,) = scan(s3_server).checkpoints
    assert (one.path, one.status) == (f"{s3_server.place}/runs/{name}/step-5", Status.COMPLETE)


def test_keys_that_are_no_files_are_told_and_never_merged(s3_server: S3Server) -> None:
    s3_server.put_folder(DATA / "dcp/single/step-5", "runs/a/step-5")
    s3_server.put("runs/a/", b"")
    s3_server.put("runs/a//step-5/.metadata", b"x")
    s3_server.put("runs/a-2/step-6/.metadata", b"x")
    found = scan(s3_server, "runs/a")
    assert [(one.step, one.status) for one in found.checkpoints] == [(5, Status.COMPLETE)]
    assert [one.code for one in found.findings] == ["path_unsafe"]


def test_a_young_upload_of_a_shard_is_a_save_in_progress(s3_server: S3Server) -> None:
    s3_server.put_folder(DATA / "dcp/single/step-5", "runs/step-5")
    key = "runs/step-5/__0_0.distcp"
    s3_server.delete(key)
    assert scan(s3_server, grace_seconds=0).checkpoints[0].status is Status.INCOMPLETE
    begun = s3_server.client.create_multipart_upload(Bucket=s3_server.bucket, Key=key)
    s3_server.client.upload_part(
        Bucket=s3_server.bucket, Key=key, UploadId=begun["UploadId"], PartNumber=1, Body=b"x" * 100
    )
    (one,) = scan(s3_server).checkpoints
    assert one.status is Status.IN_PROGRESS
    assert "multipart_incomplete" in [found.code for found in one.findings]


def test_what_lies_in_an_archive_class_is_archived(s3_server: S3Server) -> None:
    s3_server.put_folder(DATA / "dcp/single/step-5", "runs/step-5", StorageClass="GLACIER")
    s3_server.put_folder(DATA / "dcp/single/step-5", "runs/step-6", StorageClass="STANDARD_IA")
    found = scan(s3_server, grace_seconds=0)
    assert [one.status for one in found.checkpoints] == [Status.COMPLETE, Status.ARCHIVED]


def test_ages_are_told_by_the_clock_of_the_store(s3_server: S3Server) -> None:
    s3_server.put_folder(DATA / "dcp/single/step-5", "runs/step-5")
    found = scan(s3_server)
    assert found.clock == "storage"
    newest = found.checkpoints[0].newest_mtime_ns
    assert newest is not None and abs(newest / 1e9 - time.time()) < 300


def test_a_certificate_that_is_not_trusted_is_said_at_once_with_what_to_do(
    s3_tls_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_CA_BUNDLE")
    monkeypatch.setattr(s3_client, "FIRST_WAIT_SECONDS", 3600)
    with pytest.raises(RootUnreadable, match="certificate is not trusted.*AWS_CA_BUNDLE"):
        scan(s3_tls_server)
