"""What a task may read."""

from __future__ import annotations

from pathlib import Path

import pytest
from muster_agent.tasks.roots import PathOutsideRoots, Roots


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "data" / "run").mkdir(parents=True)
    (tmp_path / "data2").mkdir()
    (tmp_path / "data" / "out").symlink_to(tmp_path / "data2")
    (tmp_path / "data" / "in").symlink_to(tmp_path / "data" / "run")
    return tmp_path


def test_what_lies_inside_is_given_without_links(tree: Path) -> None:
    roots = Roots([str(tree / "data")])
    assert roots.resolve(str(tree / "data" / "in")) == str(tree / "data" / "run")
    assert roots.resolve(str(tree / "data")) == str(tree / "data")
    assert roots.resolve(str(tree / "data" / "not-there")) == str(tree / "data" / "not-there")


@pytest.mark.parametrize(
    "path",
    [
        "data2",
        "data/../data2",
        "data/out",
        "data/out/x",
        "data//..//data2",
        "data/run/../../data2",
        "",
        "data/%2e%2e/../..",
    ],
)
def test_what_leads_out_is_refused(tree: Path, path: str) -> None:
    with pytest.raises(PathOutsideRoots):
        Roots([str(tree / "data")]).resolve(str(tree / path) if path else str(tree))


@pytest.mark.parametrize("path", ["data", "", "~/x", "/proc/self/root/etc", "/proc/self/cwd", "/data\0/x"])
def test_relative_and_magic_paths_are_refused(tree: Path, path: str) -> None:
    with pytest.raises(PathOutsideRoots):
        Roots([str(tree / "data")]).resolve(path)


def test_a_root_that_is_itself_a_link_works(tree: Path) -> None:
    (tree / "mount").symlink_to(tree / "data")
    assert Roots([str(tree / "mount")]).resolve(str(tree / "mount" / "run")) == str(tree / "data" / "run")


def test_a_link_inside_a_checkpoint_that_leads_out_is_refused(tree: Path) -> None:
    checkpoint = tree / "data" / "run"
    roots = Roots([str(tree / "data")])
    (checkpoint / "inside").symlink_to(tree / "data" / "in")
    assert roots.resolve_checkpoint(str(checkpoint)) == str(checkpoint)
    (checkpoint / "shard").symlink_to("/etc/hostname")
    with pytest.raises(PathOutsideRoots, match="hostname"):
        roots.resolve_checkpoint(str(checkpoint))


def test_without_roots_nothing_is_allowed(tree: Path) -> None:
    with pytest.raises(PathOutsideRoots, match="none"):
        Roots([]).resolve(str(tree))


def test_a_root_in_a_bucket_contains_what_lies_under_its_prefix() -> None:
    roots = Roots(["s3://ckpt/team-a/"])
    assert roots.resolve("s3://ckpt/team-a/llama/step-10/") == "s3://ckpt/team-a/llama/step-10"
    assert roots.resolve_checkpoint("s3://ckpt/team-a") == "s3://ckpt/team-a"


@pytest.mark.parametrize(
    "path",
    [
        "s3://ckpt/team-ab/x",
        "s3://ckpt/team-a/../team-b",
        "s3://ckpt/team-a//x",
        "s3://other/team-a/x",
        "s3://ckpt",
        "s3:///team-a",
        "s3://",
        "S3://ckpt/team-a/x",
        "/ckpt/team-a",
        "https://ckpt/team-a/x",
    ],
)
def test_what_lies_elsewhere_in_buckets_is_refused(path: str) -> None:
    with pytest.raises(PathOutsideRoots):
        Roots(["s3://ckpt/team-a"]).resolve(path)


def test_a_folder_that_is_called_like_a_bucket_is_no_root_of_one(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tree)
    (tree / "s3:" / "ckpt" / "x").mkdir(parents=True)
    with pytest.raises(PathOutsideRoots):
        Roots([str(tree)]).resolve("s3://ckpt/x")
