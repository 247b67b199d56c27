"""The manifest beside the data."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import xxhash
from muster_agent.formats.base import ShardMap, Status
from muster_agent.manifest import beside
from muster_agent.manifest.beside import ManifestUnreadable, read_beside, write_beside
from muster_agent.manifest.model import Manifest, ShardDigest, canonical_bytes
from muster_agent.manifest.seal import assemble


def manifest() -> Manifest:
    digest = xxhash.xxh3_64_hexdigest(b"x")
    shard = ShardDigest(path="a", size_bytes=1, mtime_ns=1, xxh3_128="0" * 32, chunks_xxh3_64=digest)
    shard_map = ShardMap(path="/x", run="r", format="f", step=1, status=Status.COMPLETE, resumable=True)
    return assemble(shard_map, [shard], [], sealed_at="2026-01-01T00:00:00Z")


def test_a_folder_holds_its_manifest_inside(tmp_path: Path) -> None:
    assert read_beside(str(tmp_path)) is None
    written = write_beside(str(tmp_path), manifest())
    assert written == str(tmp_path / ".muster-manifest.json")
    assert read_beside(str(tmp_path)) == manifest()


def test_a_single_file_has_its_manifest_beside_it(tmp_path: Path) -> None:
    file = tmp_path / "model.safetensors"
    file.write_bytes(b"x")
    assert write_beside(str(file), manifest()) == str(tmp_path / "model.safetensors.muster.json")
    assert read_beside(str(file)) == manifest()


def test_whoever_may_read_the_checkpoint_may_read_the_manifest(tmp_path: Path) -> None:
    file = tmp_path / "m.safetensors"
    file.write_bytes(b"x")
    file.chmod(0o644)
    assert os.stat(write_beside(str(file), manifest())).st_mode & 0o777 == 0o644


def test_a_failed_write_leaves_the_old_manifest_and_no_litter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_beside(str(tmp_path), manifest())

    def full(_source: str, _target: str) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("muster_agent.storage.small_files.os.replace", full)
    with pytest.raises(OSError, match="No space"):
        write_beside(str(tmp_path), manifest())
    assert os.listdir(tmp_path) == [".muster-manifest.json"]
    assert read_beside(str(tmp_path)) == manifest()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b"[]",
        b"{}",
        b"[" * 100_000,
        canonical_bytes(manifest())[:-20],
        canonical_bytes(manifest()).replace(b'"a"', b'"../a"'),
        canonical_bytes(manifest()).replace(b'"size_bytes":1', b'"size_bytes":9000000000000'),
        canonical_bytes(manifest()).replace(b'"version":1', b'"version":2'),
    ],
)
def test_a_bad_manifest_is_a_finding_with_a_cure(tmp_path: Path, data: bytes) -> None:
    (tmp_path / ".muster-manifest.json").write_bytes(data)
    with pytest.raises(ManifestUnreadable) as caught:
        read_beside(str(tmp_path))
    assert caught.value.finding.code == "metadata_unreadable"
    assert "seal" in caught.value.finding.cure


def test_a_manifest_beyond_the_bound_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beside, "MAX_MANIFEST_BYTES", 100)
    write_beside(str(tmp_path), manifest())
    with pytest.raises(ManifestUnreadable, match="larger than 100"):
        read_beside(str(tmp_path))


def test_a_manifest_that_is_a_folder_is_a_finding(tmp_path: Path) -> None:
    (tmp_path / ".muster-manifest.json").mkdir()
    with pytest.raises(ManifestUnreadable, match="cannot be read"):
        read_beside(str(tmp_path))


def test_a_fifo_in_the_manifests_place_does_not_hang(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / ".muster-manifest.json")
    with pytest.raises(ManifestUnreadable):
        read_beside(str(tmp_path))


def test_a_manifest_that_may_not_be_read_asks_for_the_right_user_and_names_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def deny(*_: object) -> bytes:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("muster_agent.storage.small_files.PosixFiles.read", deny)
    with pytest.raises(beside.ManifestUnreadable) as caught:
        beside.read_beside(str(tmp_path))
    found = caught.value.finding
    assert found.code == "permission_denied" and str(tmp_path / ".muster-manifest.json") in found.detail
    assert "Run as a user who may read it" in found.cure and "seal" not in found.cure.lower()
