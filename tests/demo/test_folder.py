"""The demo's folder is its own: never somebody's files, never two demos at once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from deploy.demo.control_plane import DemoFailure
from deploy.demo.folder import MARKER, claim


@pytest.fixture(autouse=True)
def room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deploy.demo.folder.LEAST_FREE_BYTES", 0)


def test_a_new_folder_is_made_and_one_of_an_earlier_demo_is_emptied(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    claim(folder, own=tmp_path / "own").close()
    (folder / "checkpoints").mkdir()
    (folder / "web.log").write_text("old")
    (folder / "link").symlink_to(tmp_path)
    claim(folder, own=tmp_path / "own").close()
    assert os.listdir(folder) == [MARKER]
    assert tmp_path.exists()


def test_a_folder_with_somebodys_files_is_refused_and_keeps_them(tmp_path: Path) -> None:
    precious = tmp_path / "thesis.txt"
    precious.write_text("years of work")
    with pytest.raises(DemoFailure, match="no demo made"):
        claim(tmp_path, own=tmp_path / "own")
    assert precious.read_text() == "years of work"
    assert os.listdir(tmp_path) == ["thesis.txt"]


def test_the_checkouts_own_folder_is_emptied_whatever_is_in_it(tmp_path: Path) -> None:
    (tmp_path / "muster.sqlite3").write_text("of a demo that left no marker")
    claim(tmp_path, own=tmp_path).close()
    assert os.listdir(tmp_path) == [MARKER]


def test_a_second_demo_is_refused_while_the_first_runs_and_touches_nothing(tmp_path: Path) -> None:
    with claim(tmp_path / "demo", own=tmp_path):
        (tmp_path / "demo" / "web.log").write_text("running")
        with pytest.raises(DemoFailure, match="Another demo runs in"):
            claim(tmp_path / "demo", own=tmp_path)
        assert (tmp_path / "demo" / "web.log").read_text() == "running"
    claim(tmp_path / "demo", own=tmp_path).close()


def test_a_path_that_is_a_file_is_refused_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "demo").write_text("")
    with pytest.raises(DemoFailure, match="cannot be used .*FOLDER="):
        claim(tmp_path / "demo", own=tmp_path)


def test_too_little_room_is_said_with_how_much_is_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deploy.demo.folder.LEAST_FREE_BYTES", 2**62)
    with pytest.raises(DemoFailure, match="needs 6 GB"):
        claim(tmp_path / "demo", own=tmp_path)


def test_the_command_says_what_is_wrong_with_its_folder_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    command = [sys.executable, "-m", "deploy.demo", "--folder", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith(f"\nThe demo failed: {tmp_path} holds files that no demo made")
    assert "Logs are in" not in done.stderr
