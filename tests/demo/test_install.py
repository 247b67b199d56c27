"""What `make setup` says where it cannot make a .venv, and that one which does not work is made anew."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    folder = tmp_path / "a checkout"
    (folder / "deploy").mkdir(parents=True)
    shutil.copy(ROOT / "deploy" / "install.sh", folder / "deploy")
    return folder


def program(path: Path, script: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def install(checkout: Path, python: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": "/usr/bin:/bin", "PYTHON": python}
    command = [str(checkout / "deploy" / "install.sh"), "requirements.lock"]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_an_old_python_is_refused_with_its_version_and_how_to_name_another(checkout: Path) -> None:
    old = program(checkout.parent / "python3", '[ "$1" = -V ] && echo Python 3.9.2 && exit\nexit 1')
    done = install(checkout, str(old))
    assert done.returncode == 1
    assert done.stderr.startswith(
        f"Muster needs Python 3.11 or newer; {old} is Python 3.9.2. Name another: make PYTHON="
    )


def test_no_python_at_all_is_said(checkout: Path) -> None:
    done = install(checkout, "/nowhere/python3")
    assert done.returncode == 1
    assert "There is no /nowhere/python3 here" in done.stderr


def test_a_python_without_the_venv_package_is_said_with_what_to_install(checkout: Path) -> None:
    python = program(checkout.parent / "python3", '[ "$1" = -m ] && exit 1\nexit 0')
    done = install(checkout, str(python))
    assert done.returncode == 1
    assert "apt install python3-venv" in done.stderr


@pytest.mark.parametrize(
    ("made_in", "pip"), [("{here}", "exit 1"), ("/where/it/came/from", "exit 0")], ids=["half made", "moved"]
)
def test_a_venv_that_does_not_work_here_is_made_anew(checkout: Path, made_in: str, pip: str) -> None:
    program(checkout / ".venv" / "bin" / "python", pip)
    (checkout / ".venv" / "bin" / "activate").write_text(f"VIRTUAL_ENV={made_in.format(here=checkout / '.venv')}\n")
    python = program(checkout.parent / "python3", '[ "$1" = -m ] && echo "$@" >&2 && exit 1\nexit 0')
    assert "-m venv --clear .venv" in install(checkout, str(python)).stderr


def test_a_venv_that_works_is_kept(checkout: Path) -> None:
    program(checkout / ".venv" / "bin" / "python", "exit 0")
    (checkout / ".venv" / "bin" / "activate").write_text(f"VIRTUAL_ENV={checkout / '.venv'}\n")
    done = install(checkout, "/nowhere/python3")
    assert done.returncode == 0, done.stderr
