"""The tensors of sealed checkpoints: kept in pages, listed by name over REST and on a page of their own."""

from __future__ import annotations

import random
from typing import Any

import factories
import msgspec
import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from listings import manifest_of, shard_map
from muster_agent.manifest.model import Manifest, TensorDigest, canonical_bytes
from rest import Caller, caller

from apps.accounts.models import Role
from apps.checkpoints import manifests, models
from apps.checkpoints.tensors import TENSORS_IN_PAGE, tensors_page

pytestmark = pytest.mark.django_db


def digest(name: str, offset: int = 0, **more: Any) -> TensorDigest:
    place = {"shard": "rank-00000-of-00004.safetensors", "offset_bytes": offset, "length_bytes": 64}
    return TensorDigest(name=name, xxh3_64=f"{offset:016x}", **place, **more)


def names(count: int) -> list[str]:
    return [f"model.layers.{layer}.{part}.weight" for layer in range(count // 2) for part in ("attention", "mlp")]


def sealed(tensors: list[TensorDigest]) -> tuple[models.Placement, Manifest]:
    cluster = factories.cluster()
    copy = factories.placement(factories.run(cluster), factories.tier(cluster))
    manifest = msgspec.structs.replace(manifest_of(shard_map(10)), tensors=tuple(tensors))
    row = manifests.store_manifest(checkpoint=copy.checkpoint, manifest=manifest)
    models.Placement.objects.filter(pk=copy.pk).update(manifest=row)
    copy.refresh_from_db()
    return copy, manifest


@pytest.fixture
def viewer() -> Caller:
    return caller(Role.VIEWER)


@pytest.fixture
def many() -> models.Placement:
    tensors = [digest(name, index, dtype="bfloat16", shape=(8, 4)) for index, name in enumerate(names(2500))]
    random.Random(7).shuffle(tensors)
    return sealed(tensors)[0]


def walked(viewer: Caller, path: str, **query: Any) -> list[dict[str, Any]]:
    found, cursor = [], None
    while True:
        reply = viewer.get(path, **query, **({"cursor": cursor} if cursor else {}))
        assert reply.status_code == 200, reply.content
        found += reply.json()["items"]
        cursor = reply.json()["next_cursor"]
        if cursor is None:
            return found


def test_every_tensor_comes_once_and_in_the_order_of_names(many: models.Placement, viewer: Caller) -> None:
    found = walked(viewer, f"checkpoints/{many.checkpoint_id}/tensors", limit=170)
    assert [one["name"] for one in found] == sorted(names(2500))
    assert models.TensorPage.objects.count() == -(-2500 // TENSORS_IN_PAGE)
    assert found[0] == {
        "name": "model.layers.0.attention.weight", "dtype": "bfloat16", "shape": [8, 4], "offset_bytes": 0,
        "length_bytes": 64, "shard": "rank-00000-of-00004.safetensors", "xxh3_64": "0" * 16,
    }  # fmt: skip


@pytest.mark.parametrize("prefix", ["model.layers.12", "model.layers.999.mlp", "model.", "nothing", "z", "A"])
def test_those_whose_names_begin_so_are_counted_exactly(many: models.Placement, viewer: Caller, prefix: str) -> None:
    path = f"checkpoints/{many.checkpoint_id}/tensors"
    wanted = sorted(name for name in names(2500) if name.startswith(prefix))
    reply = viewer.get(path, prefix=prefix).json()
    assert reply["total"] == {"value": len(wanted), "relation": "eq"}
    assert [one["name"] for one in walked(viewer, path, prefix=prefix, limit=200)] == wanted


def test_a_page_back_is_the_page_that_was_before(many: models.Placement) -> None:
    manifest_id = str(many.manifest_id)
    first = tensors_page(manifest_id, prefix="", limit=30, cursor=None)
    second = tensors_page(manifest_id, prefix="", limit=30, cursor=first.next_cursor)
    assert first.prev_cursor is None
    assert tensors_page(manifest_id, prefix="", limit=30, cursor=second.prev_cursor).items == first.items


def test_a_page_costs_the_same_however_many_there_are(many: models.Placement, viewer: Caller) -> None:
    def cost(prefix: str) -> int:
        with CaptureQueriesContext(connection) as queries:
            assert viewer.get(f"checkpoints/{many.checkpoint_id}/tensors", prefix=prefix).status_code == 200
        return len(queries)

    assert cost("model.layers.12") <= cost("") + 2


def test_the_pieces_of_a_tensor_are_listed_by_their_places(viewer: Caller) -> None:
    copy, _ = sealed([digest("w", 128), digest("w", 0), digest("a", 64)])
    found = viewer.get(f"checkpoints/{copy.checkpoint_id}/tensors").json()["items"]
    assert [(one["name"], one["offset_bytes"]) for one in found] == [("a", 64), ("w", 0), ("w", 128)]


def test_a_manifest_from_before_types_were_kept_is_listed_and_keeps_its_bytes(viewer: Caller) -> None:
    copy, manifest = sealed([digest("w")])
    assert b"dtype" not in canonical_bytes(manifest) and b"shape" not in canonical_bytes(manifest)
    (found,) = viewer.get(f"checkpoints/{copy.checkpoint_id}/tensors").json()["items"]
    assert (found["dtype"], found["shape"]) == (None, None)


def test_what_was_never_sealed_says_so(viewer: Caller) -> None:
    cluster = factories.cluster()
    copy = factories.placement(factories.run(cluster), factories.tier(cluster))
    reply = viewer.get(f"checkpoints/{copy.checkpoint_id}/tensors")
    assert reply.status_code == 409 and "seal a copy" in reply.json()["detail"]


def test_a_cursor_of_something_else_is_refused(many: models.Placement, viewer: Caller) -> None:
    reply = viewer.get(f"checkpoints/{many.checkpoint_id}/tensors", cursor="abc")
    assert reply.status_code == 400


def test_storing_a_manifest_again_keeps_one_list(many: models.Placement) -> None:
    manifest = manifests.load_manifest(models.Manifest.objects.get())
    manifests.store_manifest(checkpoint=many.checkpoint, manifest=manifest)
    assert sum(models.TensorPage.objects.values_list("tensor_count", flat=True)) == 2500
