"""The quick look at a file of torch.save lets nothing pass that the full one finds at its ends."""

from __future__ import annotations

import io
import os
import zipfile
from pathlib import Path

import pytest
from muster_agent.formats.folder import look
from muster_agent.formats.torch_archive import inspect
from muster_agent.formats.torch_quick import roots_of_whole

from tests.agent.formats.damage import DATA, KINDS, copy_sample, damage

REAL = sorted(path for path in (DATA / "deepspeed").rglob("*_states.pt") if path.is_file())


def quick(path: Path) -> str | None:
    folder = look(str(path.parent), str(path.parent))
    return roots_of_whole(folder, [path.name]).get(path.name)


def whole(path: Path) -> bool:
    folder = look(str(path.parent), str(path.parent))
    return path.name in folder.files and not inspect(folder, path.name).findings


@pytest.mark.parametrize("path", REAL, ids=lambda path: str(path.relative_to(DATA / "deepspeed")))
def test_what_the_quick_look_passes_the_full_one_passes(path: Path) -> None:
    folder = look(str(path.parent), str(path.parent))
    root = quick(path)
    assert root is None or root == inspect(folder, path.name).root
    assert root is None or whole(path)


def test_nearly_all_real_files_take_the_quick_way() -> None:
    assert sum(quick(path) is not None for path in REAL if whole(path)) > len(REAL) // 2


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(4))
def test_a_damaged_file_does_not_pass(kind: str, seed: int, tmp_path: Path) -> None:
    place = copy_sample("deepspeed", tmp_path)
    files = [path for path in sorted(place.rglob("*_states.pt")) if path.is_file()][seed::5]
    for path in files:
        was_whole = whole(path)
        damage(path, kind, seed)
        if kind != "delete" and was_whole and not whole(path):
            assert quick(path) is None, path


@pytest.mark.parametrize("size_bytes", [300, 9000])
def test_a_file_that_begins_with_zeros_does_not_pass(size_bytes: int, tmp_path: Path) -> None:
    path = tmp_path / "state.pt"
    write(path, b"\0" * size_bytes)
    assert quick(path) == "archive"
    with path.open("r+b") as out:
        out.write(bytes(64))
    assert quick(path) is None


def test_a_file_that_changed_since_it_was_listed_does_not_pass(tmp_path: Path) -> None:
    path = tmp_path / "state.pt"
    write(path, b"\0" * 300)
    folder = look(str(tmp_path), str(tmp_path))
    with path.open("ab") as out:
        out.write(b"more")
    assert roots_of_whole(folder, [path.name]) == {}
    path.unlink()
    assert roots_of_whole(folder, [path.name]) == {}


def test_a_hole_does_not_pass(tmp_path: Path) -> None:
    path = tmp_path / "state.pt"
    write(path, b"\1" * 300_000)
    data = path.read_bytes()
    path.unlink()
    with path.open("wb") as out:
        out.write(data[:4096])
        out.seek(200_000)
        out.write(data[200_000:])
    if os.stat(path).st_blocks * 512 < len(data):
        assert quick(path) is None


def test_other_bytes_before_or_behind_the_zip_do_not_pass(tmp_path: Path) -> None:
    path = tmp_path / "state.pt"
    write(path, b"\0" * 300)
    data = path.read_bytes()
    for changed in (b"before" + data, data + b"behind", data + data, data[100:], data[:-1]):
        path.write_bytes(changed)
        assert quick(path) is None


def write(path: Path, payload: bytes) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, data in (("data.pkl", b"N."), ("data/0", payload), ("version", b"3\n")):
            archive.writestr(f"archive/{name}", data)
    path.write_bytes(buffer.getvalue())
