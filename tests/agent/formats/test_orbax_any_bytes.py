"""Whatever lies in the place of Orbax's metadata, the answer is a ShardMap with findings: no exception, no wait."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st
from muster_agent.formats.base import ShardMap, Status
from muster_agent.formats.detect import read_checkpoint
from muster_agent.formats.ocdbt_codec import MANIFEST_MAGIC, NODE_MAGIC, OcdbtRefused, open_envelope, parse_manifest
from muster_agent.formats.zstd import ZstdRefused, decompress

from tests.agent.formats.damage import DATA
from tests.agent.formats.fuzz import examples
from tests.agent.formats.ocdbt_bytes import envelope, manifest_naming, node

ITEM = DATA / "ocdbt" / "two-processes"
MANIFEST = (ITEM / "manifest.ocdbt").read_bytes()
TREE_PATH = next((ITEM / "d").iterdir())
NODE = TREE_PATH.read_bytes()
MANIFEST_BODY, NODE_BODY = open_envelope(MANIFEST, MANIFEST_MAGIC), open_envelope(NODE, NODE_MAGIC)
TREE = (ITEM / "_METADATA").read_bytes()
RECORD = (DATA / "orbax" / "manager-ocdbt" / "200" / "_CHECKPOINT_METADATA").read_bytes()
BOUND_MS = 5_000


def judged(files: dict[str, bytes]) -> ShardMap:
    with tempfile.TemporaryDirectory() as place:
        for name, data in files.items():
            path = Path(place) / "7" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        found = read_checkpoint(Path(place) / "7", grace_seconds=0)
    assert found.status is Status.COMPLETE or found.findings
    assert not any("reader failed" in one.detail for one in found.findings)
    return found


def item(manifest: bytes = MANIFEST, tree_node: bytes = NODE, tree: bytes = TREE) -> dict[str, bytes]:
    return {
        "state/_METADATA": tree,
        "state/manifest.ocdbt": manifest,
        f"state/d/{TREE_PATH.name}": tree_node,
        "_CHECKPOINT_METADATA": RECORD,
    }


def flipped(data: bytes, changes: list[tuple[int, int]]) -> bytes:
    changed = bytearray(data)
    for place, byte in changes:
        changed[place % len(changed)] = byte
    return bytes(changed)


changes = st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(0, 255)), min_size=1, max_size=4)


@settings(max_examples=examples(300), deadline=BOUND_MS)
@given(st.binary(max_size=300))
def test_any_bytes_as_a_manifest_or_a_tree_node(data: bytes) -> None:
    judged(item(manifest=data))
    judged(item(manifest=envelope(MANIFEST_MAGIC, data), tree_node=node(data)))


@settings(max_examples=examples(300), deadline=BOUND_MS)
@given(changes)
def test_a_real_manifest_and_node_with_changed_bytes_and_a_right_crc(flips: list[tuple[int, int]]) -> None:
    judged(item(manifest=envelope(MANIFEST_MAGIC, flipped(MANIFEST_BODY, flips))))
    body = flipped(NODE_BODY, flips)
    manifest = manifest_naming(f"d/{TREE_PATH.name}", length=len(node(body)))
    judged(item(manifest=manifest, tree_node=node(body)))


@settings(max_examples=examples(300), deadline=BOUND_MS)
@given(changes)
def test_orbax_json_with_changed_bytes(flips: list[tuple[int, int]]) -> None:
    judged(item(tree=flipped(TREE, flips)))
    judged({**item(), "_CHECKPOINT_METADATA": flipped(RECORD, flips)})


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inside: st.lists(inside, max_size=3) | st.dictionaries(st.text(max_size=5), inside, max_size=3),
    max_leaves=8,
)


@settings(max_examples=examples(300), deadline=BOUND_MS)
@given(json_values, json_values)
def test_any_json_in_the_place_of_orbax_metadata(first: object, second: object) -> None:
    tree = json.dumps({"tree_metadata": first, "use_ocdbt": second}).encode()
    record = json.dumps({"item_handlers": second, "commit_timestamp_nsecs": first}).encode()
    judged({**item(tree=tree), "_CHECKPOINT_METADATA": record})
    judged({"default/_METADATA": TREE, "default/params.w/.zarray": json.dumps(first).encode()})
    zarray = {"zarr_format": 2, "shape": first, "chunks": second, "dtype": "<f4"}
    judged({"default/_METADATA": TREE, "default/params.w/.zarray": json.dumps(zarray).encode()})


def test_a_node_that_leads_to_itself_ends() -> None:
    judged(item(manifest=manifest_naming("manifest.ocdbt", length=10)))


def test_a_compression_bomb_is_refused_within_its_bound() -> None:
    bomb = zstandard.ZstdCompressor().compress(bytes(1 << 28))
    with pytest.raises(ZstdRefused):
        decompress(bomb, 1 << 20)
    with pytest.raises(OcdbtRefused):
        parse_manifest(envelope(MANIFEST_MAGIC, bomb, compression=1))


def test_counts_are_bounded_by_the_bytes_that_are_left() -> None:
    huge = bytes([255] * 9 + [1])
    with pytest.raises(OcdbtRefused):
        parse_manifest(envelope(MANIFEST_MAGIC, bytes(16) + b"\0\0\0\4\0" + huge))
