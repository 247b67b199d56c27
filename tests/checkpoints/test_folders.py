"""Which run a folder's checkpoints belong to: two trainings are never one run, and a folder keeps its run."""

from __future__ import annotations

import itertools
from typing import Any

import factories
import msgspec
import pytest
from listings import listing, manifest_of, scanned, shard_map
from muster_agent.decide.model import ResumeRequest
from muster_agent.manifest.model import Manifest
from muster_agent.manifest.seal import root_digest
from rest import caller

from apps.accounts.models import Role
from apps.checkpoints.folders import Claim, qualified_name, share_out
from apps.checkpoints.models import Checkpoint, Finding, Placement, RunFolder, TrainingRun
from apps.checkpoints.resume import resume_decision
from apps.checkpoints.runs import ensure_runs

pytestmark = pytest.mark.django_db


@pytest.fixture
def second(tier: Any) -> Any:
    return factories.tier(tier.cluster, "lustre", "/lustre", speed_order=2)


def runs_of_paths() -> dict[str, str]:
    return dict(Placement.objects.values_list("path", "checkpoint__run__name"))


def claim(folder: str, name: str = "llama") -> Claim:
    return Claim(folder, name, qualified_name("/a", folder), f"nvme.{qualified_name('/a', folder)}")


def resumed_path(name: str) -> str | None:
    return resume_decision(TrainingRun.objects.get(name=name), ResumeRequest()).path


def with_other_bytes(manifest: Manifest) -> Manifest:
    shards = tuple(msgspec.structs.replace(one, chunks_xxh3_64="f" * 16) for one in manifest.shards)
    return msgspec.structs.replace(manifest, shards=shards, root_xxh3_128=root_digest(shards))


def test_two_folders_of_one_name_on_a_tier_are_two_runs_and_resume_apart(tier: Any) -> None:
    scanned(tier, listing(shard_map(100), shard_map(200, root="/ckpt/team2")))
    assert runs_of_paths() == {
        "/ckpt/llama-70b/step-100": "llama-70b",
        "/ckpt/team2/llama-70b/step-200": "team2.llama-70b",
    }
    assert resumed_path("llama-70b") == "/ckpt/llama-70b/step-100"
    assert resumed_path("team2.llama-70b") == "/ckpt/team2/llama-70b/step-200"


def test_the_runs_of_folders_do_not_depend_on_the_order_of_the_listing() -> None:
    claims = [claim("/a/llama"), claim("/a/team2/llama"), claim("/a/team1/llama"), claim("/a/team2.llama", "x")]
    orders = [share_out(order, taken=set(), known=set()) for order in itertools.permutations(claims)]
    assert all(order == orders[0] for order in orders)
    assert orders[0] == {
        "/a/llama": "llama", "/a/team1/llama": "team1.llama", "/a/team2/llama": "team2.llama", "/a/team2.llama": "x",
    }  # fmt: skip


def test_names_that_are_taken_in_every_form_end_in_one_that_is_not() -> None:
    taken = {"llama", "t.llama", "nvme.t.llama"}
    name = share_out([claim("/a/t/llama")], taken=taken, known=set())["/a/t/llama"]
    assert name not in taken and name.startswith("llama-")


def test_a_folder_keeps_its_run_when_one_nearer_the_root_appears_later(tier: Any) -> None:
    scanned(tier, listing(shard_map(200, root="/ckpt/team2")))
    scanned(tier, listing(shard_map(100), shard_map(200, root="/ckpt/team2"), shard_map(300, root="/ckpt/team2")))
    assert set(RunFolder.objects.values_list("path", "run__name")) == {
        ("/ckpt/team2/llama-70b", "llama-70b"),
        ("/ckpt/llama-70b", "nvme.llama-70b"),
    }
    before = runs_of_paths()
    scanned(tier, listing(shard_map(100)), root="/ckpt/llama-70b")
    assert runs_of_paths() == before
    assert resumed_path("llama-70b") == "/ckpt/team2/llama-70b/step-300"
    assert resumed_path("nvme.llama-70b") == "/ckpt/llama-70b/step-100"


def test_folders_called_checkpoints_do_not_merge_their_jobs(tier: Any) -> None:
    maps = [shard_map(10, run=f"exp{n}", path=f"/ckpt/exp{n}/checkpoints/step-10") for n in (1, 2)]
    scanned(tier, listing(*maps))
    assert set(TrainingRun.objects.values_list("name", flat=True)) == {"exp1", "exp2"}
    assert Checkpoint.objects.count() == 2


def test_a_run_that_only_its_hook_told_of_takes_the_folder_of_its_name(tier: Any) -> None:
    ensure_runs(tier.cluster, ["llama-70b", "team2.llama-70b"])
    scanned(tier, listing(shard_map(10), shard_map(10, root="/ckpt/team2"), shard_map(10, root="/ckpt/team3")))
    assert set(TrainingRun.objects.values_list("name", flat=True)) == {
        "llama-70b", "team2.llama-70b", "team3.llama-70b",
    }  # fmt: skip


def test_the_same_place_on_another_tier_is_the_same_run(tier: Any, second: Any) -> None:
    scanned(tier, listing(shard_map(10), shard_map(20, root="/ckpt/team2")))
    scanned(second, listing(shard_map(20, root="/lustre/team2"), root="/lustre"))
    assert runs_of_paths()["/lustre/team2/llama-70b/step-20"] == "team2.llama-70b"
    assert Checkpoint.objects.get(step=20).placements.count() == 2


def test_copies_with_nothing_against_them_are_one_checkpoint(tier: Any, second: Any) -> None:
    scanned(tier, listing(shard_map(10)))
    scanned(second, listing(shard_map(10, root="/lustre"), root="/lustre"))
    assert Checkpoint.objects.get().placements.filter(resumable=True).count() == 2
    assert not Finding.objects.filter(code="second_lineage").exists()


@pytest.mark.parametrize("fields", [{"shard_bytes": 999}, {"shards": 2, "shard_bytes": 2000}, {"format": "dcp"}])
def test_another_training_of_that_name_on_another_tier_is_another_run(
    tier: Any, second: Any, fields: dict[str, Any]
) -> None:
    scanned(tier, listing(shard_map(100)))
    other = [shard_map(step, root="/lustre", **fields) for step in (100, 600)]
    for _again in range(2):
        scanned(second, listing(*other, root="/lustre"))
        assert resumed_path("llama-70b") == "/ckpt/llama-70b/step-100"
        assert resumed_path("lustre.llama-70b") == "/lustre/llama-70b/step-600"


def test_sealed_bytes_that_differ_tell_trainings_of_equal_size_apart(tier: Any, second: Any) -> None:
    here, there = shard_map(100), shard_map(100, root="/lustre")
    scanned(tier, listing(here, manifests={here.path: manifest_of(here)}))
    scanned(second, listing(there, root="/lustre", manifests={there.path: with_other_bytes(manifest_of(there))}))
    assert runs_of_paths()[there.path] == "lustre.llama-70b"


def test_a_copy_that_differs_from_the_first_is_not_resumable_until_it_is_equal(tier: Any, second: Any) -> None:
    scanned(tier, listing(shard_map(10), shard_map(20)))
    scanned(second, listing(shard_map(10, root="/lustre"), root="/lustre"))
    wrong = shard_map(20, root="/lustre", shard_bytes=999)
    scanned(second, listing(shard_map(10, root="/lustre"), wrong, root="/lustre"))
    row = Placement.objects.get(path=wrong.path)
    found = Finding.objects.get(placement=row, resolved_at=None)
    assert (found.code, row.status, row.resumable) == ("second_lineage", "complete", False)
    assert "/ckpt/llama-70b/step-20" in row.not_resumable_reasons[0] and "3996 bytes" in found.detail
    assert Placement.objects.get(path="/ckpt/llama-70b/step-20").resumable
    scanned(second, listing(shard_map(10, root="/lustre"), shard_map(20, root="/lustre"), root="/lustre"))
    row.refresh_from_db()
    assert row.resumable and not Finding.objects.filter(placement=row, resolved_at=None).exists()


def test_a_sealed_copy_that_is_gone_still_tells_another_training_from_it(tier: Any, second: Any) -> None:
    ten, twenty = shard_map(10), shard_map(20)
    scanned(tier, listing(ten, twenty, manifests={twenty.path: manifest_of(twenty)}))
    scanned(second, listing(shard_map(10, root="/lustre"), root="/lustre"))
    scanned(tier, listing(ten))
    scanned(second, listing(shard_map(20, root="/lustre", shard_bytes=999), root="/lustre"))
    assert Placement.objects.get(path="/ckpt/llama-70b/step-20").status == "missing"
    assert not Placement.objects.get(path="/lustre/llama-70b/step-20").resumable


def test_a_qualified_name_is_found_by_the_api(tier: Any) -> None:
    scanned(tier, listing(shard_map(100), shard_map(200, root="/ckpt/team2")))
    answer = caller(Role.VIEWER).get("runs/team2.llama-70b")
    assert answer.status_code == 200 and answer.json()["name"] == "team2.llama-70b"
