from __future__ import annotations

import os
from pathlib import Path

import pytest
from muster_agent.formats import registry
from muster_agent.formats.base import ShardMap, Status
from muster_agent.formats.detect import absolute_path, files_of, read_checkpoint
from muster_agent.formats.draft import Draft
from muster_agent.formats.fingerprint import fingerprint
from muster_agent.formats.folder import Folder
from muster_agent.formats.reader import FolderFormat

from tests.agent.checkpoint_factory import safetensors_bytes, write_checkpoint
from tests.agent.nobody import let_others_in, run_as_nobody

NOBODY = 65534


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_checkpoint(tmp_path / "run-a", 40, rank_bytes=600)


def as_nobody(path: Path) -> list[str]:
    """Status and finding codes as a user who owns nothing sees them."""
    script = (
        "from muster_agent.formats.detect import read_checkpoint\n"
        "found = read_checkpoint(sys.argv[1], grace_seconds=0)\n"
        "print(found.status.value, *(one.code for one in found.findings))\n"
    )
    done = run_as_nobody(script, path)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.fixture
def open_folder(folder: Path) -> Path:
    """The checkpoint where any user may walk to it."""
    return let_others_in(folder)


def test_another_user_may_read_what_is_open_to_all(open_folder: Path) -> None:
    assert as_nobody(open_folder) == ["complete"]


def test_a_shard_that_may_not_be_read_is_unreadable_and_never_missing(open_folder: Path) -> None:
    (open_folder / "rank-00001-of-00004.safetensors").chmod(0)
    assert as_nobody(open_folder) == ["unreadable", "permission_denied"]


def test_a_folder_that_may_not_be_listed_is_unreadable(open_folder: Path) -> None:
    open_folder.chmod(0)
    try:
        assert as_nobody(open_folder) == ["unreadable", "permission_denied"]
    finally:
        open_folder.chmod(0o755)


def test_a_folder_that_may_be_listed_but_not_entered_is_unreadable(open_folder: Path) -> None:
    open_folder.chmod(0o744)
    try:
        status, *codes = as_nobody(open_folder)
        assert (status, set(codes)) == ("unreadable", {"permission_denied"})
    finally:
        open_folder.chmod(0o755)


def test_a_path_that_is_not_there_gives_a_map_and_no_exception(tmp_path: Path) -> None:
    found = read_checkpoint(tmp_path / "step-9")
    assert (found.status, found.step, found.resumable) == (Status.UNREADABLE, 9, False)


def test_an_empty_folder_is_incomplete_once_it_is_old(tmp_path: Path) -> None:
    (tmp_path / "step-3").mkdir()
    assert read_checkpoint(tmp_path / "step-3", grace_seconds=0).status is Status.INCOMPLETE
    assert read_checkpoint(tmp_path / "step-3", grace_seconds=600).status is Status.IN_PROGRESS


@pytest.mark.parametrize("name", ["trainer_state.json", "weights.npz"])
def test_a_format_that_is_not_read_yet_is_unknown(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "step-3"
    folder.mkdir()
    (folder / name).write_bytes(b"{}")
    found = read_checkpoint(folder, grace_seconds=0)
    assert (found.status, found.format, found.total_bytes) == (Status.UNKNOWN, "unknown", 2)
    assert not found.resumable


def test_a_special_file_is_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "step-3")
    assert read_checkpoint(tmp_path / "step-3").status is Status.UNKNOWN


def test_a_shard_behind_a_link_inside_the_runs_folder_is_read(folder: Path) -> None:
    name = "rank-00001-of-00004.safetensors"
    kept = folder.parent / "kept"
    kept.mkdir()
    (folder / name).rename(kept / name)
    (folder / name).symlink_to(kept / name)
    assert read_checkpoint(folder, grace_seconds=0).status is Status.COMPLETE


def test_a_shard_behind_a_link_that_leads_away_is_not_followed(folder: Path, tmp_path: Path) -> None:
    name = "rank-00001-of-00004.safetensors"
    (folder / name).rename(tmp_path / "away")
    (folder / name).symlink_to(tmp_path / "away")
    found = read_checkpoint(folder, grace_seconds=0)
    assert (found.status, [one.code for one in found.findings]) == (Status.UNREADABLE, ["link_escapes_root"])


def test_a_broken_link_and_a_circle_are_not_taken_for_gone(folder: Path) -> None:
    first, second = (folder / f"rank-0000{rank}-of-00004.safetensors" for rank in (1, 2))
    first.unlink()
    second.unlink()
    first.symlink_to("nowhere")
    second.symlink_to(second.name)
    found = read_checkpoint(folder, grace_seconds=0)
    assert (found.status, [one.code for one in found.findings]) == (Status.UNREADABLE, ["link_broken"] * 2)


def test_a_broken_link_that_the_checkpoint_does_not_need_is_only_a_note(folder: Path) -> None:
    (folder / "notes").symlink_to("nowhere")
    found = read_checkpoint(folder, grace_seconds=0)
    assert (found.status, found.resumable) == (Status.COMPLETE, True)
    assert [one.severity.value for one in found.findings] == ["note"]


def test_a_file_name_that_is_no_text_is_named_and_left_out(folder: Path) -> None:
    with open(os.fsencode(folder) + b"/\xff\xfe.safetensors", "wb") as stream:
        stream.write(b"x")
    found = read_checkpoint(folder, grace_seconds=0)
    assert found.status is Status.COMPLETE
    assert [one.code for one in found.findings] == ["path_unsafe"]
    assert all(shard.path.isprintable() for shard in found.shards)


def test_musters_own_manifest_is_no_part_of_the_checkpoint(folder: Path) -> None:
    before = read_checkpoint(folder, grace_seconds=0)
    (folder / ".muster-manifest.json").write_text("{}")
    after = read_checkpoint(folder, grace_seconds=0)
    assert fingerprint(files_of(before)) == fingerprint(files_of(after))


def test_the_fingerprint_changes_with_a_shards_time(folder: Path) -> None:
    before = fingerprint(files_of(read_checkpoint(folder)))
    os.utime(folder / "rank-00001-of-00004.safetensors", (5, 5))
    assert fingerprint(files_of(read_checkpoint(folder))) != before


def test_another_format_than_the_one_asked_for_is_unknown(folder: Path) -> None:
    assert read_checkpoint(folder, format="safetensors").status is Status.COMPLETE
    assert read_checkpoint(folder, format="dcp").status is Status.UNKNOWN


def test_a_shards_place_is_joined_only_for_shards_of_the_map(folder: Path, tmp_path: Path) -> None:
    found = read_checkpoint(folder)
    assert absolute_path(found, "checkpoint.json") == str(folder / "checkpoint.json")
    with pytest.raises(ValueError, match="not a shard"):
        absolute_path(found, "../../../etc/passwd")
    single = tmp_path / "m.safetensors"
    single.write_bytes(safetensors_bytes({"w": bytes(4)}))
    assert absolute_path(read_checkpoint(single), "m.safetensors") == str(single)


def test_a_fault_in_a_reader_becomes_a_finding_of_this_checkpoint(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_folder: Folder, _with_tensors: bool) -> Draft:
        raise ZeroDivisionError

    monkeypatch.setattr(registry, "FOLDER_FORMATS", (FolderFormat("broken", lambda _folder: True, broken),))
    found: ShardMap = read_checkpoint(folder)
    assert (found.status, [one.code for one in found.findings]) == (Status.UNKNOWN, ["metadata_unreadable"])


def test_a_format_that_nobody_reads_is_a_note_of_its_own(tmp_path: Path) -> None:
    folder = tmp_path / "run" / "step-5"
    folder.mkdir(parents=True)
    (folder / "state.npz").write_bytes(b"x")
    (found,) = read_checkpoint(folder, grace_seconds=0).findings
    assert (found.code, found.severity.value) == ("format_unknown", "note")
    assert "listed and left alone" in found.cure
