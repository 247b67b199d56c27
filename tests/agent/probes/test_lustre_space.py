"""The room on each target of a Lustre, as its client shows it. Composed by hand after the names that the client gives
its files; not recorded on a Lustre."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from muster_agent.probes.lustre_space import TargetSpace, parse_file_system, read_target_spaces, short_of

GIB = 1 << 30
MOUNTS = """\
/dev/sda1 / ext4 rw 0 0
10.0.0.5@tcp:/scratch /mnt/scratch lustre rw,flock,lazystatfs 0 0
mgs1@o2ib:mgs2@o2ib:/proj/team /mnt/team\\040one lustre ro 0 0
server:/export /mnt/scratch/nfs nfs4 rw 0 0
"""


def client(place: Path, targets: dict[str, tuple[int, int]], *, active: int | None = 1) -> Path:
    """What the client keeps of targets by name: (GiB in all, GiB free)."""
    for target, (total, free) in targets.items():
        folder = place / "osc" / f"{target}-osc-ffff88003f8a1000"
        folder.mkdir(parents=True)
        (folder / "kbytestotal").write_text(f"{total * GIB // 1024}\n")
        (folder / "kbytesavail").write_text(f"{free * GIB // 1024}\n")
        if active is not None:
            (folder / "active").write_text(f"{active}\n")
    (place / "mounts").write_text(MOUNTS)
    return place


def spaces(place: Path, path: str = "/mnt/scratch/run") -> tuple[TargetSpace, ...]:
    return read_target_spaces(path, str(place / "mounts"), [str(place / "absent"), str(place / "osc")])


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/mnt/scratch", "scratch"),
        ("/mnt/scratch/run/step-5", "scratch"),
        ("/mnt/team one/run", "proj"),
        ("/mnt/scratch/nfs/run", None),
        ("/mnt/scratches", None),
        ("/home", None),
    ],
)
def test_the_lustre_at_a_path_is_the_one_mounted_nearest_above(path: str, name: str | None) -> None:
    assert parse_file_system(MOUNTS, path) == name


@pytest.mark.parametrize("active", [1, None])
def test_each_target_tells_what_is_free_on_it_alone(tmp_path: Path, active: int | None) -> None:
    targets = {"scratch-OST0000": (100, 40), "scratch-OST0001": (100, 0), "proj-OST0000": (10, 1)}
    client(tmp_path, targets, active=active)
    assert spaces(tmp_path) == (
        TargetSpace("scratch-OST0000", 100 * GIB, 40 * GIB),
        TargetSpace("scratch-OST0001", 100 * GIB, 0),
    )


def test_a_target_that_was_taken_out_of_use_takes_no_new_files(tmp_path: Path) -> None:
    assert spaces(client(tmp_path, {"scratch-OST0000": (100, 0)}, active=0)) == ()


def test_a_file_system_that_is_mounted_twice_has_each_target_once(tmp_path: Path) -> None:
    client(tmp_path, {"scratch-OST0000": (100, 40)})
    (tmp_path / "osc" / "scratch-OST0000-osc-ffff88003f8a2000").mkdir()
    (tmp_path / "osc" / "MGC10.0.0.5@tcp").mkdir()
    assert [one.target for one in spaces(tmp_path)] == ["scratch-OST0000"]


def test_where_nothing_is_told_nothing_is_said(tmp_path: Path) -> None:
    client(tmp_path, {"scratch-OST0000": (100, 40)})
    (tmp_path / "osc" / "scratch-OST0000-osc-ffff88003f8a1000" / "kbytesavail").write_text("a lot\n")
    assert spaces(tmp_path) == ()
    assert spaces(tmp_path / "absent") == ()
    assert spaces(tmp_path, "/home") == ()


@given(st.text(max_size=300), st.text(max_size=40))
def test_any_table_of_mounts_gives_a_name_or_none(table: str, path: str) -> None:
    found = parse_file_system(table, path)
    assert found is None or found


def test_the_fullest_comes_first() -> None:
    few, none, many = (TargetSpace(name, 100, free) for name, free in (("few", 5), ("none", 0), ("many", 50)))
    assert short_of([few, many, none], 10) == [none, few]
