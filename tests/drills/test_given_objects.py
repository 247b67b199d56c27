"""Signed URLs that a drill's nodes get with their orders, and nowhere else."""

from __future__ import annotations

import json
from urllib.parse import parse_qs, urlsplit

import factories
import pytest
from django.conf import LazySettings
from muster_agent.protocol.wire import ReloadParams, TaskKind

from apps.checkpoints.models import Placement
from apps.drills import given_objects, services
from apps.drills.models import Drill
from apps.fleet import polling, tasks
from apps.fleet.models import Agent, AgentTask
from apps.storage import presigned

pytestmark = pytest.mark.django_db

SHARDS = ("model/rank-0.bin", "ü b.bin")


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch, settings: LazySettings) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret-of-the-control-plane")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    settings.S3_PRESIGN = True
    settings.S3_ENDPOINTS = ["http://store-1.test:8000", "https://store-2.test"]
    presigned._signers.cache_clear()


def ordered(path: str = "s3://ckpt/team/run/step-10") -> tuple[AgentTask, Placement]:
    cluster = factories.cluster()
    reader: Agent = factories.agent(factories.node(cluster), roots=["s3://ckpt/team"])
    tier = factories.tier(cluster, uri="s3://ckpt/team", kind="object_store")
    run = factories.run(cluster)
    placement = factories.placement(run, tier, 10, shards=0, path=path)
    for number, name in enumerate(SHARDS if "{" in path or "step" in path else ("model.pt",)):
        placement.shards.create(path=name, size_bytes=100 + number, mtime_ns=1_700_000_000_123_000_000, role="model")
    drill = services.create_drill(run=run, spec={"kind": "reload", "choice": "latest"}, actor="olga")
    Drill.objects.filter(pk=drill.pk).update(placement=placement)
    names = tuple(shard.path for shard in placement.shards.all())
    params = ReloadParams(path=path, shards=names)
    kind = TaskKind.RELOAD
    return tasks.create_task(agent=reader, kind=kind, params=params, owner_kind="drill", owner_id=drill.pk), placement


def given(task: AgentTask) -> dict[str, dict[str, object]]:
    found: dict[str, dict[str, object]] = polling._order(task).params["objects"]
    return found


def test_an_order_has_a_url_of_each_shard_at_each_endpoint() -> None:
    task, _placement = ordered()
    objects = given(task)
    assert set(objects) == set(SHARDS)
    one = objects["ü b.bin"]
    assert (one["size_bytes"], one["mtime_ns"]) == (101, 1_700_000_000_123_000_000)
    first, second = (urlsplit(url) for url in one["urls"])  # type: ignore[attr-defined]
    assert (first.netloc, second.netloc) == ("store-1.test:8000", "store-2.test")
    assert first.path.endswith("/ckpt/team/run/step-10/%C3%BC%20b.bin")
    assert parse_qs(first.query)["X-Amz-Expires"] == ["3600"]
    assert "secret-of-the-control-plane" not in json.dumps(objects)


def test_no_row_ever_holds_one() -> None:
    task, _placement = ordered()
    given(task)
    task.refresh_from_db()
    assert task.params["objects"] == {}


def test_a_checkpoint_that_is_one_object_is_its_own_shard() -> None:
    task, _placement = ordered("s3://ckpt/team/run/model.pt")
    (url, _other) = given(task)["model.pt"]["urls"]  # type: ignore[misc]
    assert urlsplit(url).path.endswith("/ckpt/team/run/model.pt")


def test_files_that_share_a_folder_lie_in_it() -> None:
    task, _placement = ordered("s3://ckpt/team/run/step-10/rank-{rank}.pt")
    (url, _other) = given(task)[SHARDS[0]]["urls"]  # type: ignore[misc]
    assert urlsplit(url).path.endswith("/ckpt/team/run/step-10/model/rank-0.bin")


@pytest.mark.parametrize("path", ["/nvme/run/step-10", "s3://ckpt/team/run/step-10"])
def test_elsewhere_and_where_it_is_off_nodes_sign_for_themselves(path: str, settings: LazySettings) -> None:
    settings.S3_PRESIGN = path.startswith("/")
    task, _placement = ordered(path)
    assert polling._order(task).params["objects"] == {}


def test_a_control_plane_without_keys_leaves_it_to_the_node(
    monkeypatch: pytest.MonkeyPatch, settings: LazySettings, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(_locations: object) -> None:
        raise PermissionError(13, "there are no usable credentials")

    monkeypatch.setattr(given_objects.presigned, "urls_of", refuse)
    task, _placement = ordered()
    assert polling._order(task).params["objects"] == {}
    assert "signs for itself" in caplog.text
