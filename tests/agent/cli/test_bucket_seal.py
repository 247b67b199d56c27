from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from muster_agent.cli import main
from muster_agent.manifest.beside import decode
from muster_agent.storage.s3_client import connect
from muster_agent.storage.small_files import BucketFiles

from tests.agent.checkpoint_factory import write_checkpoint
from tests.agent.formats.damage import DATA
from tests.servers.fault_proxy import Fault, fault_proxy, gets
from tests.servers.s3 import S3Server

MANIFEST, VERDICT = ".muster-manifest.json", ".muster-verify.json"


def muster(*arguments: object) -> Result:
    return CliRunner().invoke(main, [*map(str, arguments)], catch_exceptions=False)


def a_step(server: S3Server, folder: Path, step: int = 10) -> str:
    """The place of a small sealed-able checkpoint in the bucket."""
    return server.put_folder(write_checkpoint(folder / "run", step, rank_bytes=60_000), f"run/step-{step:08d}")


def test_what_is_sealed_and_verified_in_a_bucket_is_trusted_from_there(any_s3_server: S3Server, tmp_path: Path) -> None:
    place = a_step(any_s3_server, tmp_path)
    done = muster("seal", place)
    assert (done.exit_code, done.stderr) == (0, "")
    assert f"manifest written to {place}/{MANIFEST}" in done.stdout
    stored = any_s3_server.get(f"run/step-00000010/{MANIFEST}")
    assert muster("resume-point", f"{any_s3_server.place}/run", "--require", "verified").exit_code == 3
    point = muster("resume-point", f"{any_s3_server.place}/run", "--require", "sealed", "--json")
    assert (json.loads(point.stdout)["path"], json.loads(point.stdout)["trust"]) == (place, "sealed")

    done = muster("verify", place)
    assert done.exit_code == 0 and "unchanged since sealing" in done.stdout
    assert any_s3_server.keys("run/step-00000010/.muster") == [
        f"run/step-00000010/{one}" for one in (MANIFEST, VERDICT)
    ]
    point = muster("resume-point", f"{any_s3_server.place}/run", "--require", "verified", "--json")
    assert json.loads(point.stdout)["trust"] == "verified"
    assert "verified" in muster("inventory", f"{any_s3_server.place}/run").stdout
    assert muster("seal", place).exit_code == 0
    assert any_s3_server.get(f"run/step-00000010/{MANIFEST}") == stored
    assert decode(stored, "") == decode(stored, "")


def test_a_sample_reads_only_its_share(s3_server: S3Server, tmp_path: Path) -> None:
    place = a_step(s3_server, tmp_path)
    assert muster("seal", place).exit_code == 0
    with fault_proxy(s3_server.url) as proxy:
        done = muster("verify", place, "--sample", "0.4", "--json", "--endpoint-url", proxy.url)
        got = json.loads(done.stdout)
        assert (done.exit_code, got["checked_chunks"], got["total_chunks"]) == (0, 2, 5)
        data = [
            one.key for one in proxy.asked if one.kind == "get" and one.key.endswith((".safetensors", "point.json"))
        ]
        assert len(set(data)) == 2


def test_bytes_that_arrive_other_than_sealed_are_damage_and_name_the_tensor(
    s3_server: S3Server, tmp_path: Path
) -> None:
    place = a_step(s3_server, tmp_path)
    assert muster("seal", place).exit_code == 0
    with fault_proxy(s3_server.url) as proxy:
        proxy.add(Fault(gets("rank-00002-of-00004.safetensors"), flip_byte=30_000))
        done = muster("verify", place, "--endpoint-url", proxy.url)
    assert done.exit_code == 7
    assert "rank-00002-of-00004.safetensors" in done.stderr
    assert "tensor" in done.stderr
    shown = json.loads(muster("inventory", f"{s3_server.place}/run", "--json").stdout)
    assert shown[0]["status"] == "corrupt"
    assert muster("resume-point", f"{s3_server.place}/run").exit_code == 3


def test_an_object_written_after_the_seal_is_no_damage_but_not_proven(s3_server: S3Server, tmp_path: Path) -> None:
    place = a_step(s3_server, tmp_path)
    assert muster("seal", place).exit_code == 0
    name = "run/step-00000010/rank-00001-of-00004.safetensors"
    data = bytearray(s3_server.get(name))
    data[-1] ^= 1
    s3_server.put(name, bytes(data))
    done = muster("verify", place)
    assert done.exit_code == 1
    assert "written again" in done.stderr


def test_own_check_sums_are_looked_at_before_a_seal(s3_server: S3Server) -> None:
    place = s3_server.put_folder(DATA / "dcp/single/step-5", "runs/step-5")
    name = next(key for key in s3_server.keys("runs/step-5/") if key.endswith(".distcp"))
    data = bytearray(s3_server.get(name))
    data[len(data) // 2] ^= 1
    s3_server.put(name, bytes(data))
    done = muster("seal", place)
    assert done.exit_code == 7
    assert not s3_server.keys(f"runs/step-5/{MANIFEST}")
    assert muster("verify", place).exit_code == 7


def test_what_was_never_sealed_is_said(s3_server: S3Server, tmp_path: Path) -> None:
    place = a_step(s3_server, tmp_path)
    done = muster("verify", place)
    assert done.exit_code == 3
    assert f"never sealed: there is no {place}/{MANIFEST}" in done.stderr


def test_a_single_object_has_its_manifest_beside_it(s3_server: S3Server) -> None:
    s3_server.put("one/step-7.safetensors", (DATA / "safetensors/valid/valid.safetensors").read_bytes())
    assert muster("seal", f"{s3_server.place}/one/step-7.safetensors").exit_code == 0
    assert "one/step-7.safetensors.muster.json" in s3_server.keys("one/")
    assert muster("verify", f"{s3_server.place}/one/step-7.safetensors").exit_code == 0
    assert [one["path"] for one in json.loads(muster("inventory", f"{s3_server.place}/one", "--json").stdout)] == [
        f"{s3_server.place}/one/step-7.safetensors"
    ]


@pytest.mark.parametrize("command", ["seal", "verify"])
def test_one_checkpoint_must_be_named(s3_server: S3Server, tmp_path: Path, command: str) -> None:
    for step in (10, 20):
        a_step(s3_server, tmp_path, step)
    done = muster(command, f"{s3_server.place}/run")
    assert done.exit_code == 2
    assert f"{s3_server.place}/run/step-000000" in done.stderr
    assert muster(command, f"{s3_server.place}/other").exit_code == 3


def test_nothing_of_another_writer_is_written_over(s3_server: S3Server) -> None:
    path = f"{s3_server.place}/step-5/{MANIFEST}"
    first, second = BucketFiles(connect()), BucketFiles(connect())
    for files in (first, second):
        with pytest.raises(FileNotFoundError):
            files.read(path, 100)
    first.replace(path, b"mine", mode_like="")
    with pytest.raises(FileExistsError):
        second.replace(path, b"theirs", mode_like="")
    assert second.read(path, 100) == b"mine"
    second.replace(path, b"later", mode_like="")
    with pytest.raises(FileExistsError):
        first.replace(path, b"late", mode_like="")
    assert s3_server.get(f"step-5/{MANIFEST}") == b"later"
    assert second.read(path, 3) is None
