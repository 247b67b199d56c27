from __future__ import annotations

import os
from pathlib import Path

import pytest
from agent.checkpoint_factory import write_checkpoint
from muster_agent.jobs import copy_retire
from muster_agent.jobs.copy_retire import known_files, retire_folder
from muster_agent.jobs.copy_survey import list_files
from muster_agent.jobs.copy_trouble import CopyTrouble
from muster_agent.jobs.inventory import run_inventory
from muster_agent.jobs.seal import seal
from muster_agent.protocol.copies import Known
from muster_agent.protocol.wire import InventoryParams


def nothing() -> None:
    return


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    found = write_checkpoint(tmp_path / "llama", 100, world_size=2, rank_bytes=1000)
    (found / "notes").mkdir()
    (found / "notes" / "readme").write_text("x")
    seal(str(found))
    return found


def known(folder: Path) -> list[Known]:
    return known_files(list_files(str(folder), str(folder.parent))[0])


def retire(folder: Path, files: list[Known]) -> bool:
    return retire_folder(str(folder), str(folder.parent), "trf_1", files, nothing)


def test_nothing_of_it_is_left_and_its_neighbours_are(folder: Path) -> None:
    other = write_checkpoint(folder.parent, 200)
    assert retire(folder, known(folder)) is True
    assert [path.name for path in folder.parent.iterdir()] == [other.name]
    assert retire(folder, []) is False


def test_a_lone_file_goes_with_its_manifest(tmp_path: Path, folder: Path) -> None:
    lone = tmp_path / "lone" / "model-step-7.safetensors"
    lone.parent.mkdir()
    lone.write_bytes(next(folder.glob("*.safetensors")).read_bytes())
    seal(str(lone))
    (lone.parent / "model-step-8.safetensors").write_bytes(lone.read_bytes())
    retire(lone, known(lone))
    assert [path.name for path in lone.parent.iterdir()] == ["model-step-8.safetensors"]


@pytest.mark.parametrize("change", ["added", "changed", "removed", "touched"])
def test_what_is_not_as_it_was_copied_stays(folder: Path, change: str) -> None:
    files = known(folder)
    if change == "added":
        (folder / "new").write_text("x")
    elif change == "removed":
        (folder / "notes" / "readme").unlink()
    elif change == "changed":
        (folder / "notes" / "readme").write_text("xy")
    else:
        os.utime(folder / "notes" / "readme", ns=(1, 1))
    before = sorted(path.name for path in folder.rglob("*"))
    with pytest.raises(CopyTrouble, match="it stays") as met:
        retire(folder, files)
    assert met.value.code == "source_changed"
    assert sorted(path.name for path in folder.rglob("*")) == before


def test_a_writer_that_is_quicker_than_the_rename_gets_its_folder_back(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = known(folder)
    real = copy_retire._put_aside

    def with_a_writer(path: str, aside: str, hidden: str) -> None:
        (folder / "late").write_text("just saved")
        real(path, aside, hidden)

    monkeypatch.setattr(copy_retire, "_put_aside", with_a_writer)
    with pytest.raises(CopyTrouble):
        retire(folder, files)
    assert (folder / "late").read_text() == "just saved" and (folder / ".muster-manifest.json").exists()
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]


def test_an_inventory_never_sees_half_of_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def look(name: str) -> None:
        if name in ("retire.aside", "retire.half"):
            seen.append(run_inventory(InventoryParams(root=str(folder.parent))).checkpoints)

    monkeypatch.setattr(copy_retire, "failpoint", look)
    retire(folder, known(folder))
    assert len(seen) > 2 and set(seen) == {()}


def test_a_file_that_appears_in_the_hidden_folder_is_kept(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = known(folder)

    def write(name: str) -> None:
        if name == "retire.half":
            (folder.parent / ".muster-retire-trf_1" / folder.name / "late").write_text("x")

    monkeypatch.setattr(copy_retire, "failpoint", write)
    with pytest.raises(CopyTrouble, match="nobody copied"):
        retire(folder, files)
    assert (folder.parent / ".muster-retire-trf_1" / folder.name / "late").exists()
