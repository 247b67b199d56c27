"""Paths and names that lead out of an agent's roots, over every task kind that takes one: nothing outside is opened.

The kernel itself says so (inotify on the folder outside), so that no way of opening is overlooked.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from muster_agent.formats import fence
from muster_agent.jobs.control import JobControl
from muster_agent.jobs.seal import seal
from muster_agent.manifest.model import Manifest
from muster_agent.protocol.copies import CopiedFile, CopyCursor, CopyOrder, RemovalOrder
from muster_agent.protocol.wire import TaskOrder, TaskResult, VerifyParams
from muster_agent.runtime.execution import execute
from muster_agent.tasks import verify
from muster_agent.tasks.context import TaskContext
from muster_agent.tasks.limits import Limits
from muster_agent.tasks.roots import Roots

from tests.agent.checkpoint_factory import write_checkpoint
from tests.agent.tasks.watching import ACCESS, Watched


class Silent:
    """A reporter and a holding that nobody listens to."""

    stopped: Any = None

    def begin(self, phase: str) -> None: ...

    def end(self, phase: str) -> None: ...

    def end_all(self) -> None: ...

    def log(self, message: str) -> None: ...

    def injected(self, at_unix_seconds: float, mono_seconds: float, data: dict[str, Any]) -> None: ...

    @property
    def reporter(self) -> Silent:
        return self


class Node:
    """A root with a sealed checkpoint, a copy root, and a sealed checkpoint outside of both, which is watched."""

    def __init__(self, tmp_path: Path) -> None:
        self.root, self.copy_root, self.outside = tmp_path / "data", tmp_path / "copies", tmp_path / "outside"
        self.run = write_checkpoint(self.root / "run", 10, rank_bytes=5000, world_size=2)
        self.copy_root.mkdir()
        self.secret = write_checkpoint(self.outside, 10, rank_bytes=5000, world_size=2)
        made = seal(str(self.run)).manifest
        assert made is not None and seal(str(self.secret)).manifest is not None
        self.manifest: Manifest = made
        self._make_links()
        self.watched = Watched(self.outside, self.secret)

    def _make_links(self) -> None:
        root = self.root
        (root / "out").symlink_to(self.secret)
        (root / "relative").symlink_to(f"../outside/{self.secret.name}")
        (root / "up").symlink_to("..")
        (root / "chain").symlink_to("out")
        (root / "magic").symlink_to(f"/proc/self/root{self.secret}")
        (root / "file").symlink_to(next(self.secret.glob("*.safetensors")))
        (root / "null").symlink_to("/dev/null")
        (root / "zero").symlink_to("/dev/zero")
        (root / "circle").symlink_to("circle")
        (root / "linked").mkdir()
        (root / "linked" / "shard.safetensors").symlink_to(root / "file")
        (root / "deep" / "er").mkdir(parents=True)
        (root / "deep" / "er" / "x").symlink_to(self.secret)

    def do(self, kind: str, params: dict[str, Any]) -> TaskResult:
        order = TaskOrder(task_id="t", attempt=1, kind=kind, params=params, lease_seconds=60)
        context = TaskContext(
            roots=Roots([str(self.root)]), copy_roots=Roots([str(self.copy_root)]), limits=Limits(),
            control=JobControl(), reporter=Silent(), clock_offset_seconds=lambda: 0.0, hook_directory=None,
        )  # fmt: skip
        return execute(order, context, Silent(), lambda: None)  # type: ignore[arg-type]

    def copy_order(self, **changes: Any) -> CopyOrder:
        places = {
            "source": str(self.run), "source_root": str(self.root),
            "target": str(self.copy_root / "x"), "target_root": str(self.copy_root),
        }  # fmt: skip
        return CopyOrder(**{**places, "tag": "trf_1", "manifest": self.manifest, **changes})

    def copy(self, step: str, cursor: CopyCursor | None = None, **changes: Any) -> TaskResult:
        given = {"step": step, "cursor": cursor or CopyCursor(), "copy": self.copy_order(**changes)}
        return self.do("copy", msgspec.to_builtins({**given, "asked_unix_seconds": time.time()}))

    def remove(self, **changes: Any) -> TaskResult:
        order = {"source": str(self.copy_root / "x"), "source_root": str(self.copy_root), "tag": "trf_1", **changes}
        given = {"step": "retiring", "cursor": CopyCursor(), "removal": RemovalOrder(**order)}
        return self.do("copy", msgspec.to_builtins({**given, "asked_unix_seconds": time.time()}))

    def require_untouched(self) -> None:
        assert self.watched.events() == []


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    node = Node(tmp_path_factory.mktemp("node"))
    yield node
    node.watched.close()


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    node = Node(tmp_path)
    yield node
    node.watched.close()


SHARD = "rank-00000-of-00002.safetensors"

PATHS = (
    # {d}: a root, {o}: outside, {s}: the checkpoint there, {n}: its name
    "{o}", "{s}", "{s}/", "{s}/.", "/{s}", "//{s}", "{d}/../outside", "{d}/../outside/{n}", "{d}/./../outside/{n}",
    "{d}//..//outside//{n}", "{d}/run/../../outside/{n}", "{d}/nothing/../../outside/{n}", "{d}/run/./.././../outside",
    "{d}/deep/er/../../../outside/{n}", "{d}/..", "{d}/../", "{d}/../..", "/", "//", "/..", "{d}2", "{d}/../data2",
    # links: absolute, relative, of links, through magic ones, deep inside, and `..` behind one
    "{d}/out", "{d}/out/", "{d}/out/.", "{d}/relative", "{d}/chain", "{d}/magic", "{d}/up/outside/{n}", "{d}/up",
    "{d}/deep/er/x", "{d}/file", "{d}/out/..", "{d}/chain/../{n}", "{d}/linked", "{d}/deep",
    # the kernel's own ways around
    "/proc/self/root{s}", "/proc/thread-self/root{s}", "/proc/1/root{s}", "/proc/self/cwd", "/proc/self/fd/0",
    "/dev/fd/0", "/dev/stdin", "/proc/self/environ", "/proc/self/mem", "/sys", "/dev", "/dev/zero", "{d}/null",
    "{d}/zero",
    # no absolute path at all, or none
    "", ".", "..", "outside", "../outside", "~", "~root/x", "$HOME/x", "file://{s}", "data", "\\{s}", "{d}\0", "\0{s}",
    "{d}/x\0/../../outside", "s3://bucket/x", "s3://{s}", "http://127.0.0.1/x", "C:{s}", "\ufeff{s}", "\u2215{s}",
    "{d}/\udcc0\udcae/x", "\udcc0{s}",
)  # fmt: skip
"""All are refused."""

INSIDE = (
    # what only looks like a way out: names of their own, that are not there
    "{d}/%2e%2e/outside/{n}", "{d}/%2e%2e%2foutside", "{d}/..%2foutside", "{d}/..;/outside", "{d}/..\\outside",
    "{d}/．．/outside", "{d}/‥/outside", "{d}/․․/outside", "{d}/.. /outside", "{d}/...", "{d}/..\n/outside",
    "{d}/\u202e/x", "{d}/e\u0301", "{d}/\u00e9", "{d}/" + "x" * 300, "{d}/" + "x/" * 3000,
    "{d}/~", "{d}/$(id)", "{d}/`id`", "{d}/;id", "{d}/|id", "{d}/--help", "{d}/*", "{d}/{{a,b}}", "{d}/circle",
)  # fmt: skip
"""Nothing is outside here; that none of them hangs, crashes or opens anything outside is what is asked."""

KINDS: dict[str, Callable[[Node, str], TaskResult]] = {
    "inventory": lambda node, path: node.do("inventory", {"root": path, "settle_seconds": 0.0}),
    "seal": lambda node, path: node.do("seal", {"path": path}),
    "verify": lambda node, path: node.do("verify", {"path": path, "manifest": msgspec.to_builtins(node.manifest)}),
    "look": lambda node, path: node.do("verify", {"path": path, "manifest": None, "sample_ratio": 0}),
    "reload": lambda node, path: node.do("reload", {"path": path, "shards": [SHARD]}),
    "ceiling": lambda node, path: node.do("ceiling", {"root": path, "seconds_per_try": 0.01}),
    "bandwidth": lambda node, path: node.do("bandwidth", {"root": path, "seconds": 0.01}),
    "copy from": lambda node, path: node.copy("planned", source=path, source_root="/"),
    "copy to": lambda node, path: node.copy("copying", target=path, target_root="/"),
    "discard": lambda node, path: node.copy("discarding", target=path, target_root="/"),
    "remove": lambda node, path: node.remove(source=path, source_root="/", known=()),
}


def written(path: str, node: Node) -> str:
    names = {"d": str(node.root), "o": str(node.outside), "s": str(node.secret), "n": node.secret.name}
    return path.format(**names)


@pytest.mark.parametrize("kind", KINDS)
def test_no_path_leads_a_task_out_of_the_roots(kind: str, shared: Node) -> None:
    for path in PATHS:
        result = KINDS[kind](shared, written(path, shared))
        allowed = kind in ("inventory", "ceiling", "bandwidth") and path in ("{d}/linked", "{d}/deep")
        assert allowed or (result.outcome, result.error_code) in (
            ("failed", "path_outside_roots"), ("failed", "bad_params"), ("unsupported", "bad_params"),
        ), (path, result)  # fmt: skip
        shared.require_untouched()


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("copy to", "discard")])
def test_what_only_looks_like_a_way_out_is_a_name_like_any_other(kind: str, shared: Node) -> None:
    for path in INSIDE:
        result = KINDS[kind](shared, written(path, shared))
        assert result.error_code != "agent_error", (path, result)
    shared.require_untouched()


# -- names, which the control plane gives too --------------------------------------------------------------------------

NAMES = (
    "../outside/{n}/x", "../../../outside/{n}/x", "x/../../../outside/x", "{s}/x", "/etc/passwd", "..", "../", "./../x",
    "", "\0", "x\0/../../y", "//x", "a/b/../../../outside/x",
)  # fmt: skip


def tree_of(folder: Path) -> dict[str, bytes | None]:
    return {str(one): one.read_bytes() if one.is_file() else None for one in sorted(folder.rglob("*"))}


def file(path: str) -> CopiedFile:
    return CopiedFile(path=path, size_bytes=3, mtime_ns=1, copied_bytes=0)


def cursors(name: str) -> Iterator[CopyCursor]:
    yield CopyCursor(is_surveyed=True, files=[file(name)])
    yield CopyCursor(is_surveyed=True, left_out=[file(name)])
    yield CopyCursor(is_surveyed=True, folders=[name])


@pytest.mark.parametrize("name", NAMES)
def test_no_name_in_what_a_copy_was_given_leads_out_of_its_place(name: str, node: Node) -> None:
    """A control plane that was taken over must not write, read or remove anything else through an agent."""
    name = written(name, node)
    before = tree_of(node.copy_root.parent)
    node.watched.events()
    for step in ("planned", "copying", "proving", "switching", "discarding"):
        for cursor in cursors(name):
            result = node.copy(step, cursor)
            assert (result.body or {}).get("state") == "trouble", (step, result)
        result = node.copy(step, tag=f"x/{name}")
        assert (result.body or {}).get("state") == "trouble", (step, result)
    for changes in ({"known": ((name, 3, 1),)}, {"known": (), "tag": f"x/{name}"}, {"tag": name}):
        result = node.remove(**changes)
        assert (result.body or {}).get("state") in ("trouble", "stays"), (changes, result)
    node.require_untouched()
    assert tree_of(node.copy_root.parent) == before


def test_a_stage_that_leads_out_by_its_tag_is_not_removed(node: Node) -> None:
    """The stage's name is made of the tag: with a path for a tag, to discard a copy would be to remove any folder."""
    (node.copy_root / ".muster-copy-x").mkdir()
    result = node.copy("discarding", tag=f"x/../../outside/{node.secret.name}")
    assert (result.body or {})["problem"].endswith("is no plain word; nothing was touched")
    assert node.secret.is_dir()
    node.require_untouched()


@pytest.mark.parametrize("name", NAMES)
def test_no_name_in_a_manifest_or_a_choice_of_shards_leads_out(name: str, node: Node) -> None:
    name = written(name, node)
    shards = tuple(msgspec.structs.replace(one, path=name) for one in node.manifest.shards)
    manifest = msgspec.to_builtins(msgspec.structs.replace(node.manifest, shards=shards))
    for ratio in (0, 1.0):
        verified = node.do("verify", {"path": str(node.run), "manifest": manifest, "sample_ratio": ratio})
        assert verified.outcome == "failed" or (verified.body or {}).get("verified") is not True
    for changes in ({}, {"manifest": manifest}, {"objects": {name: {"urls": [], "mtime_ns": 0}}}):
        reloaded = node.do("reload", {"path": str(node.run), "shards": [name], **changes})
        assert reloaded.error_code != "agent_error", reloaded
        assert reloaded.outcome == "failed" or reloaded.body is not None and not reloaded.body["report"]["verified"]
    node.require_untouched()


# -- what is swapped after it was looked at ----------------------------------------------------------------------------


@pytest.fixture
def fenced(node: Node) -> Iterator[Node]:
    fence.keep_to([str(node.root), str(node.copy_root)])
    yield node
    fence.keep_to(None)


def was_read(node: Node) -> bool:
    return any(mask & ACCESS and name for mask, name in node.watched.events())


def context_of(node: Node) -> TaskContext:
    return TaskContext(
        roots=Roots([str(node.root)]), copy_roots=Roots([]), limits=Limits(), control=JobControl(), reporter=Silent(),
        clock_offset_seconds=lambda: 0.0, hook_directory=None,
    )  # fmt: skip


def test_a_link_that_is_put_in_a_shards_place_after_the_check_is_not_read(fenced: Node) -> None:
    run = verify.prepare(VerifyParams(path=str(fenced.run), manifest=fenced.manifest), context_of(fenced))
    shard = fenced.run / SHARD
    shard.unlink()
    shard.symlink_to(fenced.secret / SHARD)
    assert run().verified is not True  # type: ignore[attr-defined]
    assert not was_read(fenced)


def test_a_folder_that_is_swapped_for_a_link_after_the_check_is_not_read(fenced: Node) -> None:
    run = verify.prepare(VerifyParams(path=str(fenced.run), manifest=fenced.manifest), context_of(fenced))
    fenced.run.rename(fenced.root / "moved")
    fenced.run.symlink_to(fenced.secret)
    assert run().verified is not True  # type: ignore[attr-defined]
    assert not was_read(fenced)


def test_a_thread_that_swaps_links_all_the_time_never_wins(fenced: Node) -> None:
    shard, kept, link = fenced.run / SHARD, fenced.root / "kept", fenced.root / "link"
    shard.rename(kept)
    link.symlink_to(fenced.secret / SHARD)
    is_over, swaps = threading.Event(), 0

    def swap() -> None:
        nonlocal swaps
        while not is_over.is_set():
            for source in (kept, link):
                os.link(source, fenced.root / "next", follow_symlinks=False)
                os.replace(fenced.root / "next", shard)
                swaps += 1

    swapper = threading.Thread(target=swap)
    swapper.start()
    try:
        for kind in ("verify", "seal", "look", "reload") * 8:
            result = KINDS[kind](fenced, str(fenced.run))
            assert result.error_code != "agent_error", result
    finally:
        is_over.set()
        swapper.join()
    assert swaps > 100
    assert not was_read(fenced)


def test_a_hard_link_is_a_file_of_the_root_and_pipes_sockets_and_devices_are_none(node: Node) -> None:
    """The kernel lets only owners make hard links (`fs.protected_hardlinks`); a FIFO must not hang the agent."""
    os.mkfifo(node.run / "pipe.safetensors")
    folder = os.open(node.run, os.O_PATH)
    with socket.socket(socket.AF_UNIX) as listening:  # by a short name: a socket's is short
        listening.bind(f"/proc/self/fd/{folder}/socket.safetensors")
    os.close(folder)
    shard = node.run / SHARD
    shard.rename(node.root / "kept")
    os.mkfifo(shard)
    for kind in ("seal", "verify", "look", "reload", "copy from"):
        result = KINDS[kind](node, str(node.run))
        assert result.error_code != "agent_error", result
        assert result.outcome == "failed" or not (result.body or {}).get("verified")
    node.require_untouched()


def test_a_manifest_beside_a_lone_file_that_is_a_link_is_refused(node: Node) -> None:
    lone = node.root / "model-step-7.safetensors"
    lone.write_bytes((node.run / SHARD).read_bytes())
    (node.root / f"{lone.name}.muster.json").symlink_to(node.secret / ".muster-manifest.json")
    for kind in ("seal", "verify", "reload"):
        assert KINDS[kind](node, str(lone)).error_code == "path_outside_roots"
    node.require_untouched()
