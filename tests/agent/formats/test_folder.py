"""Listing one folder: everything that can lie in it, and everything that can go wrong."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from muster_agent.formats import folder as module
from muster_agent.formats.base import Status
from muster_agent.formats.detect import read_checkpoint
from muster_agent.formats.folder import Folder, PosixTree, look
from muster_agent.formats.names import is_noise
from muster_agent.formats.walk import RootUnreadable, inventory
from muster_agent.jobs.control import Cancelled, JobControl

from tests.agent.checkpoint_factory import write_checkpoint
from tests.agent.formats.damage import age, copy_sample


def codes(folder: Folder) -> list[str]:
    return [found.code for found in folder.findings]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    write_checkpoint(tmp_path / "run", 10, rank_bytes=300, world_size=2)
    write_checkpoint(tmp_path / "run", 20, rank_bytes=300, world_size=2)
    return tmp_path / "run"


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Folders that cannot be opened, by path, with the error's number."""
    numbers: dict[str, int] = {}
    plain = os.open

    def open_or_fail(path: str, *args: int, **options: int) -> int:
        if os.fspath(path) in numbers:
            raise OSError(numbers[os.fspath(path)], os.strerror(numbers[os.fspath(path)]), path)
        return plain(path, *args, **options)

    monkeypatch.setattr(module.os, "open", open_or_fail)
    return numbers


def test_files_folders_and_links_are_told_apart_and_the_rest_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "a.pt").write_bytes(b"12345")
    (tmp_path / "sub").mkdir()
    (tmp_path / "link.pt").symlink_to("a.pt")
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket"))
    (tmp_path / ".nfs000123").write_bytes(b"x")
    (tmp_path / ".muster-manifest.json").write_bytes(b"x")
    found = look(str(tmp_path), str(tmp_path))
    assert {name: seen.size_bytes for name, seen in found.files.items()} == {"a.pt": 5, "link.pt": 5}
    assert (found.folders, found.links, found.own) == (["sub"], {"link.pt"}, {".muster-manifest.json"})
    assert codes(found) == []
    assert found.special == {"pipe": "named pipe", "socket": "socket"}


def test_names_of_one_file_can_be_told(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x")
    os.link(tmp_path / "a", tmp_path / "b")
    (tmp_path / "c").write_bytes(b"x")
    files = look(str(tmp_path), str(tmp_path)).files
    assert files["a"] == files["b"]
    assert files["a"].inode != files["c"].inode
    assert files["a"].link_count == 2
    assert files["c"].link_count == 1


def test_every_kind_of_noise_takes_the_long_way(tmp_path: Path) -> None:
    noise = [".nfs1", "._x", ".DS_Store", "lost+found", ".snapshot", ".muster-manifest.json", "a.muster.json"]
    for name in noise:
        assert is_noise(name)
        assert name[0] in module._SPECIAL_FIRST or name[-1] == module._SPECIAL_LAST
        (tmp_path / name).write_bytes(b"x")
    assert look(str(tmp_path), str(tmp_path)).files == {}


def test_a_name_that_is_no_text_is_said_and_hides_no_other(run: Path) -> None:
    os.mkdir(os.fsencode(run) + b"/step-\xff")
    Path(os.fsdecode(os.fsencode(run) + b"/\xfe.pt")).write_bytes(b"x")
    found = inventory(run, grace_seconds=0)
    assert [one.step for one in found.checkpoints] == [20, 10]
    assert sorted(one.code for one in found.findings) == ["listing_failed", "path_unsafe"]


def test_a_file_that_vanishes_while_it_is_listed_is_gone_not_unreadable(run: Path) -> None:
    step = run / "step-00000010"
    with os.scandir(step) as entries:
        listed = list(entries)
    for path in step.iterdir():
        path.unlink()
    folder = Folder(str(step), str(run))
    module._take(folder, listed, step.stat().st_dev)
    assert (folder.files, folder.blocked, folder.findings) == ({}, set(), [])


@pytest.mark.parametrize("number", [errno.EIO, errno.ESTALE, errno.EACCES, errno.ETIMEDOUT])
def test_a_checkpoint_that_cannot_be_listed_is_unreadable_never_missing_or_empty(
    run: Path, broken: dict[str, int], number: int
) -> None:
    broken[str(run / "step-00000020")] = number
    found = inventory(run, grace_seconds=0).checkpoints
    assert [(one.step, one.status) for one in found] == [(20, Status.UNREADABLE), (10, Status.COMPLETE)]
    code = "permission_denied" if number == errno.EACCES else "listing_failed"
    assert [one.code for one in found[0].findings] == [code]


def test_a_checkpoint_deleted_while_the_scan_runs_is_gone(run: Path, broken: dict[str, int]) -> None:
    broken[str(run / "step-00000020")] = errno.ENOENT
    assert [one.step for one in inventory(run, grace_seconds=0).checkpoints] == [10]


def test_a_folder_of_runs_that_may_not_be_entered_is_listed_as_unreadable(
    run: Path, tmp_path: Path, broken: dict[str, int]
) -> None:
    (tmp_path / "secret").mkdir()
    broken[str(tmp_path / "secret")] = errno.EACCES
    found = inventory(tmp_path, grace_seconds=0).checkpoints
    assert [one.status for one in found if one.path.endswith("secret")] == [Status.UNREADABLE]


def test_a_listing_that_fails_on_its_way_shows_nothing_of_what_it_saw(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(folder: Folder, entries: list[os.DirEntry[str]], _device: int) -> None:
        folder.files[entries[0].name] = module.FileSeen(1, 1)
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(module, "_take", fail)
    folder = look(str(run / "step-00000010"), str(run))
    assert (folder.files, folder.listed, codes(folder)) == ({}, False, ["listing_failed"])


def test_a_huge_folder_can_be_left_while_it_is_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(50):
        (tmp_path / f"{number}.distcp").touch()
    monkeypatch.setattr(module, "CHECK_ENTRIES", 10)
    calls: list[int] = []

    def check() -> None:
        calls.append(1)
        if len(calls) == 3:
            raise Cancelled("cancelled")

    with pytest.raises(Cancelled):
        look(str(tmp_path), str(tmp_path), PosixTree(check))
    assert len(calls) == 3


def test_folders_within_folders_end_somewhere(run: Path) -> None:
    descriptor = os.open(run, os.O_RDONLY)
    for _ in range(300):
        os.mkdir("deeper", dir_fd=descriptor)
        below = os.open("deeper", os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = below
    os.close(descriptor)
    found = inventory(run, grace_seconds=0)
    assert [one.step for one in found.checkpoints] == [20, 10]


def test_a_root_that_cannot_be_listed_is_an_error_never_an_empty_inventory(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, words in ((errno.EACCES, "may not read"), (errno.ESTALE, "could not be read")):

        def fail(*_: object, number: int = number) -> None:
            raise OSError(number, os.strerror(number))

        monkeypatch.setattr(os, "scandir", fail)
        with pytest.raises(RootUnreadable, match=words):
            inventory(run)


def test_a_root_where_the_storage_is_not_mounted_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ckpt").mkdir()
    table = tmp_path / "fstab"
    monkeypatch.setattr("muster_agent.probes.filesystem.FSTAB", str(table))
    table.write_text(f"# storage\nserver:/export {tmp_path}/ckpt nfs noauto 0 0\n")
    assert inventory(tmp_path / "ckpt").checkpoints == ()
    table.write_text(f"# storage\nserver:/export {tmp_path}/ckpt nfs defaults 0 0\n")
    with pytest.raises(RootUnreadable, match="nothing is mounted"):
        inventory(tmp_path / "ckpt")
    write_checkpoint(tmp_path / "ckpt", 1, rank_bytes=300, world_size=1)
    assert len(inventory(tmp_path / "ckpt", control=JobControl()).checkpoints) == 1


# -- what lies in a file's place and is none ---------------------------------------------------------------------------
def _pipe(path: Path) -> None:
    os.mkfifo(path)


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as one:
        here = os.getcwd()
        os.chdir(path.parent)
        try:
            one.bind(path.name)
        finally:
            os.chdir(here)


@pytest.mark.parametrize(("make", "word"), [(_pipe, "named pipe"), (_socket, "socket"), (Path.mkdir, "folder")])
@pytest.mark.parametrize("name", ["__1_0.distcp", "a shard of an index"])
def test_what_lies_in_a_shards_place_and_is_no_file_is_named(
    tmp_path: Path, make: Callable[[Path], None], word: str, name: str
) -> None:
    if name.endswith(".distcp"):
        place = copy_sample("dcp/w2/step-10", tmp_path)
    else:
        place = copy_sample("huggingface/save_pretrained-sharded", tmp_path)
        name = min(one.name for one in place.glob("*.safetensors"))
    (place / name).unlink()
    make(place / name)
    age(place)
    shard_map = read_checkpoint(place)
    assert shard_map.status in (Status.CORRUPT, Status.INCOMPLETE) and not shard_map.resumable
    assert any(found.path == name and word in found.detail for found in shard_map.findings)


def test_a_pipe_beside_a_checkpoint_changes_nothing(tmp_path: Path) -> None:
    place = copy_sample("dcp/w2/step-10", tmp_path)
    _pipe(place / "control")
    age(place)
    assert read_checkpoint(place).status is Status.COMPLETE
