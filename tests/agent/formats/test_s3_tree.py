"""Checkpoints in a bucket: the same words as on disk, and what only a bucket can do to them."""

from __future__ import annotations

import errno
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from muster_agent.formats.base import ShardMap, Status
from muster_agent.formats.s3_tree import S3Tree
from muster_agent.formats.walk import Inventory, RootUnreadable, inventory
from muster_agent.jobs.scan_cache import ScanCache
from muster_agent.jobs.seal import seal
from muster_agent.jobs.verify import verify
from muster_agent.storage import s3_client
from muster_agent.storage.s3_client import S3Store, connect

from tests.agent.formats.damage import DATA, age, copy_sample
from tests.agent.formats.s3_server import S3Server

DAY = 86_400.0
SAMPLES = [
    *("dcp/w2", "dcp/hf", "dcp/w2-nocoll", "dcp/torchtitan", "dcp/crash", "megatron/torch_dist", "megatron/legacy"),
    *("megatron/zarr", "megatron/crash", "deepspeed/zero3-bf16", "deepspeed/zero1-bf16", "bytecheckpoint"),
    *("huggingface/trainer-single", "huggingface/trainer-ddp2", "huggingface/accelerate-fsdp2"),
    *("huggingface/save_pretrained-sharded", "nvrx-local/jobA", "torchsnapshot", "gguf", "torch"),
]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    for name, value in {
        "AWS_ACCESS_KEY_ID": "reader",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
        "NO_PROXY": "127.0.0.1",
    }.items():
        monkeypatch.setenv(name, value)
    with S3Server() as running:
        yield running


def client(server: S3Server) -> S3Store:
    store = connect(server.url)
    store.first_wait_seconds = 0.001
    return store


def scan(server: S3Server, place: str = "s3://bucket/runs", settle_seconds: float = 0.0) -> Inventory:
    return inventory(place, store=client(server), settle_seconds=settle_seconds)


def said(one: ShardMap, root: str) -> tuple[object, ...]:
    findings = sorted((found.code, found.severity.value) for found in one.findings)
    shards = sorted((shard.path, shard.size_bytes, shard.rank, shard.role) for shard in one.shards)
    name = one.path.removeprefix(root)
    return name, one.format, one.status, one.step, one.resumable, one.world_size, findings, shards


def on_disk_and_in_bucket(server: S3Server, place: Path) -> tuple[list[object], list[object]]:
    server.store.put_folder(place, f"runs/{place.name}")
    here, there = inventory(place.parent), scan(server)
    ours = sorted((said(one, str(place.parent)) for one in here.checkpoints), key=str)
    theirs = sorted((said(one, "s3://bucket/runs") for one in there.checkpoints), key=str)
    pointers = [(one.step, one.target) for one in here.pointers], [(one.step, one.target) for one in there.pointers]
    return [ours, pointers[0]], [theirs, pointers[1]]


def without_links(place: Path) -> None:
    """A bucket has no links, so neither has what it is compared with."""
    for path in sorted(place.rglob("*")):
        if path.is_symlink():
            path.unlink()


@pytest.mark.slow
@pytest.mark.parametrize("sample", SAMPLES)
def test_a_sample_is_told_as_on_disk(server: S3Server, tmp_path: Path, sample: str) -> None:
    place = copy_sample(sample, tmp_path)
    without_links(place)
    server.store.page_keys = 7
    on_disk, in_bucket = on_disk_and_in_bucket(server, place)
    assert on_disk[0]
    assert in_bucket == on_disk


def sharded(server: S3Server, prefix: str = "runs/llama/step-100", storage_class: str = "STANDARD") -> None:
    folder = DATA / "huggingface/save_pretrained-sharded"
    server.store.put_folder(folder, prefix, storage_class)
    for key, one in server.store.objects.items():
        if key.startswith(prefix):
            one.unix_seconds = time.time() - DAY


def test_what_lies_as_an_earlier_scan_left_it_is_listed_and_not_read(server: S3Server, tmp_path: Path) -> None:
    sharded(server)
    found = []
    for _ in range(2):
        server.store.requests.clear()
        with ScanCache(tmp_path / "cache", "s3://bucket/runs") as cache:
            found.append(inventory("s3://bucket/runs", store=client(server), memory=cache))
    assert [one.unchanged for one in found] == [0, 1]
    assert found[0].checkpoints == found[1].checkpoints
    assert not any("step-100" in request for request in server.store.requests)


@pytest.mark.parametrize("change", ["archived", "written again", "being written"])
def test_a_change_that_only_a_bucket_has_is_seen_by_a_scan_that_remembers(
    server: S3Server, tmp_path: Path, change: str
) -> None:
    sharded(server)
    shard = next(key for key in server.store.objects if key.endswith(".safetensors"))
    for _ in range(2):
        with ScanCache(tmp_path / "cache", "s3://bucket/runs") as cache:
            found = inventory("s3://bucket/runs", store=client(server), memory=cache)
        if change == "archived":
            server.store.objects[shard].storage_class = "GLACIER"
        elif change == "written again":
            server.store.objects[shard].unix_seconds += 1
        else:
            server.store.uploads.append((shard, time.time()))
    assert found.unchanged == 0


def only(found: Inventory) -> ShardMap:
    [one] = found.checkpoints
    return one


def codes(one: ShardMap) -> set[str]:
    return {found.code for found in one.findings}


def test_pages_of_two_keys_give_the_whole_listing(server: S3Server) -> None:
    sharded(server)
    whole = only(scan(server))
    server.store.page_keys = 2
    server.store.requests.clear()
    assert only(scan(server)) == whole
    assert server.store.requests.count("list") >= (len(server.store.objects) + 1) // 2


def test_a_prefix_is_a_whole_name(server: S3Server) -> None:
    sharded(server, "runs/ASHA-1/step-100")
    sharded(server, "runs/ASHA-10/step-200")
    assert [one.step for one in scan(server, "s3://bucket/runs/ASHA-1").checkpoints] == [100]
    with pytest.raises(RootUnreadable) as met:
        scan(server, "s3://bucket/runs/ASHA")
    assert met.value.is_missing


def test_markers_of_folders_are_no_files(server: S3Server, tmp_path: Path) -> None:
    place = copy_sample("dcp/w2", tmp_path)
    for key in ("runs/", "runs/w2/"):
        server.store.put(key, b"", time.time() - DAY)
    on_disk, in_bucket = on_disk_and_in_bucket(server, place)
    assert in_bucket == on_disk


def test_a_mirror_that_lost_the_markers_of_folders_holds_the_same_checkpoint(server: S3Server, tmp_path: Path) -> None:
    """What was sealed in the one place is proven in the other, and neither listing has a file more."""
    place = copy_sample("bytecheckpoint/global_step_5", tmp_path)
    for mirror in ("here", "there"):
        server.store.put_folder(place, f"{mirror}/global_step_5")
    for key in ("here/", "here/global_step_5/", "here/global_step_5/model/", "here/global_step_5/loader/"):
        server.store.put(key, b"", time.time() - DAY)
    here, there = (only(scan(server, f"s3://bucket/{mirror}")) for mirror in ("here", "there"))
    assert (here.status, here.shards, codes(here)) == (there.status, there.shards, codes(there))
    store = connect(server.url)
    manifest = seal("s3://bucket/here/global_step_5", write_beside=False, store=store).manifest
    assert manifest is not None
    assert verify("s3://bucket/there/global_step_5", manifest, store=store).verified is True


def test_keys_with_an_empty_part_are_told_and_never_merged(server: S3Server) -> None:
    sharded(server)
    sharded(server, "runs/llama//step-100")
    server.store.objects["runs/llama/step-100//model.safetensors.index.json"] = server.store.objects[
        "runs/llama/step-100/config.json"
    ]
    found = scan(server)
    assert only(found).status is Status.COMPLETE
    assert "path_unsafe" in {one.code for one in found.findings}
    assert "path_unsafe" in codes(only(found))


@pytest.mark.parametrize(
    "name", ["a[1]", "what?#x", "two words", "größe-日本", "100%25", "a+b&c=d", "*", "prefix[bug]"]
)
def test_names_are_taken_literally(server: S3Server, name: str) -> None:
    sharded(server, f"runs/{name}/step-7")
    one = only(scan(server, f"s3://bucket/runs/{name}"))
    assert (one.path, one.step, one.status) == (f"s3://bucket/runs/{name}/step-7", 7, Status.COMPLETE)


@pytest.mark.parametrize("parts", [2, 14])
def test_an_etag_that_is_no_check_sum_of_the_bytes_is_no_damage(server: S3Server, parts: int) -> None:
    sharded(server)
    for stored in server.store.objects.values():
        stored.parts = parts
    one = only(scan(server))
    assert (one.status, codes(one) & {"digest_mismatch", "shard_truncated"}) == (Status.COMPLETE, set())


def test_a_metadata_that_a_bucket_never_renamed_is_uncommitted_whatever_the_prefix_is_called(
    server: S3Server, tmp_path: Path
) -> None:
    place = copy_sample("dcp/crash/c-kill-before-rename", tmp_path)
    server.store.put_folder(place / "step-10", "runs/my.prefix[bug]/step-10")
    one = only(scan(server, "s3://bucket/runs/my.prefix[bug]"))
    assert (one.path, one.status) == ("s3://bucket/runs/my.prefix[bug]/step-10", Status.UNCOMMITTED)
    assert "temporary_left" in codes(one)


def test_an_object_and_a_folder_of_one_name_are_both_listed_with_a_warning(server: S3Server) -> None:
    sharded(server)
    server.store.put("runs/llama/step-100/config.json/more.txt", b"x", time.time() - DAY)
    found = scan(server)
    assert only(found).status is Status.COMPLETE
    assert [one.path for one in found.findings] == ["s3://bucket/runs/llama/step-100/config.json"]


def test_one_object_is_a_checkpoint_by_itself(server: S3Server) -> None:
    data = next((DATA / "huggingface/save_pretrained-sharded").glob("*.safetensors")).read_bytes()
    server.store.put("runs/model-step-5.safetensors", data, time.time() - DAY)
    server.store.put("runs/model-step-5.safetensors.bak", data, time.time() - DAY)
    one = only(scan(server, "s3://bucket/runs/model-step-5.safetensors"))
    assert (one.step, one.status) == (5, Status.COMPLETE)


def test_a_whole_bucket_is_a_place_too(server: S3Server) -> None:
    sharded(server, "step-100")
    one = only(scan(server, "s3://bucket"))
    assert (one.path, one.run) == ("s3://bucket/step-100", "bucket")
    assert only(scan(server, "s3://bucket/step-100")).status is Status.COMPLETE


# -- archives ----------------------------------------------------------------------------------------------------------
@pytest.mark.sampled(5)
@pytest.mark.parametrize("sample", [*SAMPLES, "orbax/manager-ocdbt"])
def test_what_lies_in_an_archive_is_archived_whatever_its_format(server: S3Server, tmp_path: Path, sample: str) -> None:
    place = copy_sample(sample, tmp_path)
    server.store.put_folder(place, f"runs/{place.name}", "DEEP_ARCHIVE")
    listed = inventory(tmp_path).checkpoints
    whole = {one.path.removeprefix(str(tmp_path)) for one in listed if one.status is Status.COMPLETE}
    found = [one for one in scan(server).checkpoints if one.path.removeprefix("s3://bucket/runs") in whole]
    assert len(found) == len(whole)
    for one in found:
        assert (one.status, one.resumable) == (Status.ARCHIVED, False), (one.path, one.findings)
        assert not {"shard_missing", "optimizer_missing", "metadata_unreadable"} & codes(one)


def test_one_archived_shard_makes_the_checkpoint_archived(server: S3Server) -> None:
    sharded(server)
    shard = next(key for key in server.store.objects if key.endswith(".safetensors"))
    server.store.objects[shard].storage_class = "GLACIER"
    one = only(scan(server))
    assert one.status is Status.ARCHIVED
    assert "archived" in codes(one)


def test_a_restored_object_is_read(server: S3Server) -> None:
    sharded(server, storage_class="GLACIER")
    for one in server.store.objects.values():
        one.restored = True
    assert only(scan(server)).status is Status.COMPLETE


def test_an_archive_that_the_listing_does_not_show_is_noticed_by_reading(server: S3Server) -> None:
    sharded(server)
    server.store.fail = lambda what: (403, "InvalidObjectState") if what.endswith(".safetensors") else None
    one = only(scan(server))
    assert one.status is Status.ARCHIVED


# -- trouble -----------------------------------------------------------------------------------------------------------
def failing(times: int, kind: str, status: int, code: str) -> object:
    left = [times]

    def fail(what: str) -> tuple[int, str] | None:
        if not what.startswith(kind) or not left[0]:
            return None
        left[0] -= 1
        return status, code

    return fail


@pytest.mark.sampled(4)
@pytest.mark.parametrize("kind", ["list", "get", "uploads"])
@pytest.mark.parametrize("status_and_code", [(503, "SlowDown"), (500, "InternalError"), (429, "TooManyRequests")])
def test_passing_trouble_passes(server: S3Server, kind: str, status_and_code: tuple[int, str]) -> None:
    sharded(server)
    server.store.fail = failing(4, kind, *status_and_code)  # type: ignore[assignment]
    found = scan(server)
    assert only(found).status is Status.COMPLETE
    assert not found.findings


def test_a_listing_that_fails_for_good_is_no_empty_listing(server: S3Server) -> None:
    sharded(server)
    server.store.page_keys = 2
    pages = iter(range(100))
    server.store.fail = lambda what: (503, "SlowDown") if what == "list" and next(pages) > 1 else None
    with pytest.raises(RootUnreadable) as met:
        scan(server)
    assert not met.value.is_missing
    assert "SlowDown" in str(met.value)


def test_a_listing_that_turns_in_circles_ends(server: S3Server) -> None:
    sharded(server)
    server.store.page_keys = 0
    with pytest.raises(RootUnreadable):
        scan(server)


@pytest.mark.parametrize("code", ["AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch"])
def test_refused_credentials_are_said_to_be_that(server: S3Server, code: str) -> None:
    server.store.fail = lambda _what: (403, code)
    with pytest.raises(RootUnreadable) as met:
        scan(server)
    assert not met.value.is_missing
    assert code in str(met.value)
    assert "s3:ListBucket" in met.value.hint or "AWS_ACCESS_KEY_ID" in met.value.hint


def test_a_bucket_that_is_not_there_is_named(server: S3Server) -> None:
    with pytest.raises(RootUnreadable, match="there is no bucket other") as met:
        scan(server, "s3://other/runs")
    assert met.value.is_missing


def test_a_server_that_does_not_answer_is_no_missing_bucket(server: S3Server) -> None:
    store = connect("http://127.0.0.1:9")
    store.first_wait_seconds = 0.001
    with pytest.raises(RootUnreadable) as met:
        inventory("s3://bucket/runs", store=store)
    assert not met.value.is_missing


def test_an_object_that_may_not_be_read_is_unreadable_not_damaged(server: S3Server) -> None:
    sharded(server)
    server.store.fail = lambda what: (403, "AccessDenied") if what.endswith(".safetensors") else None
    one = only(scan(server))
    assert one.status is Status.UNREADABLE
    assert "permission_denied" in codes(one)


def test_bodies_that_are_cut_are_read_again(server: S3Server) -> None:
    sharded(server)
    cuts = iter(range(1000))
    server.store.cut = lambda _key, length: length // 2 if next(cuts) % 3 else length
    assert only(scan(server)).status is Status.COMPLETE


def test_bodies_that_are_always_cut_make_it_unreadable(server: S3Server) -> None:
    sharded(server)
    server.store.cut = lambda key, length: length // 2 if key.endswith(".safetensors") else length
    one = only(scan(server))
    assert one.status is Status.UNREADABLE
    assert "shard_truncated" not in codes(one)


def test_a_store_without_ranges_is_read_at_the_start_and_else_refused(server: S3Server) -> None:
    server.store.put("runs/x.bin", bytes(1_000_000), time.time() - DAY)
    server.store.honours_ranges = False
    tree = S3Tree(client(server), "s3://bucket/runs")
    with tree.open("s3://bucket/runs/x.bin") as opened:
        assert opened.pread(10, 0) == bytes(10)
        with pytest.raises(OSError, match="ranges"):
            opened.pread(10, 500_000)


def test_an_object_written_again_between_two_reads_is_noticed(server: S3Server) -> None:
    server.store.put("runs/x.bin", bytes(1_000_000), time.time())
    tree = S3Tree(client(server), "s3://bucket/runs")
    with tree.open("s3://bucket/runs/x.bin") as opened:
        assert opened.pread(4, 0) == bytes(4)
        server.store.put("runs/x.bin", b"\1" * 1_000_000, time.time())
        with pytest.raises(OSError, match="written again") as met:
            opened.pread(4, 900_000)
    assert met.value.errno == errno.ESTALE


def test_reading_a_key_that_is_not_there_says_so(server: S3Server) -> None:
    server.store.put("runs/x.bin", b"x", time.time())
    tree = S3Tree(client(server), "s3://bucket/runs")
    with pytest.raises(FileNotFoundError):
        tree.open("s3://bucket/runs/y.bin")
    assert tree.look("s3://bucket/runs/y", "s3://bucket/runs").gone


# -- saves that run ----------------------------------------------------------------------------------------------------
def test_ages_are_told_by_the_clock_of_the_store(server: S3Server, tmp_path: Path) -> None:
    server.store.put_folder(copy_sample("dcp/w2", tmp_path), "runs/w2")
    for key in [key for key in server.store.objects if key.endswith("/.metadata")]:
        del server.store.objects[key]
    assert only(scan(server)).status is Status.INCOMPLETE
    server.store.now_unix_seconds = time.time() - DAY + 60
    found = scan(server)
    assert (only(found).status, found.clock) == (Status.IN_PROGRESS, "storage")


def test_a_key_that_the_first_listing_does_not_show_yet_is_found_by_the_second(server: S3Server) -> None:
    sharded(server)
    shard = next(key for key in sorted(server.store.objects) if key.endswith(".safetensors"))
    late, listings = server.store.objects.pop(shard), iter(range(100))

    def before_listing() -> None:
        if next(listings) == 1:
            server.store.objects[shard] = late

    server.store.before_listing = before_listing
    assert only(scan(server, settle_seconds=0.05)).status is Status.COMPLETE


def test_a_second_listing_that_fails_makes_it_unreadable_not_gone(server: S3Server) -> None:
    for step in (100, 200, 300):
        sharded(server, f"runs/llama/step-{step}")
        shard = next(key for key in sorted(server.store.objects) if f"{step}/" in key and key.endswith(".safetensors"))
        del server.store.objects[shard]
    listings = iter(range(100))
    server.store.fail = lambda what: (503, "SlowDown") if what == "list" and next(listings) > 0 else None
    found = scan(server, settle_seconds=0.05).checkpoints
    assert [one.status for one in found] == [Status.UNREADABLE] * 3
    assert next(listings) <= 1 + s3_client.ATTEMPTS + 1


def test_a_young_upload_of_a_shard_is_a_save_in_progress(server: S3Server) -> None:
    sharded(server)
    shard = next(key for key in sorted(server.store.objects) if key.endswith(".safetensors"))
    del server.store.objects[shard]
    server.store.uploads = [(shard, time.time() - 5)]
    one = only(scan(server))
    assert one.status is Status.IN_PROGRESS
    assert "multipart_incomplete" in codes(one)


def test_an_old_upload_is_a_warning_and_excuses_nothing(server: S3Server) -> None:
    sharded(server)
    server.store.uploads = [(f"runs/llama/step-100/{n}.bin", time.time() - DAY) for n in range(5)]
    server.store.page_keys = 2
    one = only(scan(server))
    assert one.status is Status.COMPLETE
    assert "multipart_incomplete" in codes(one)
    shard = next(key for key in sorted(server.store.objects) if key.endswith(".safetensors"))
    del server.store.objects[shard]
    assert only(scan(server)).status is Status.INCOMPLETE


def test_uploads_that_may_not_be_listed_are_a_note(server: S3Server) -> None:
    sharded(server)
    server.store.fail = lambda what: (403, "AccessDenied") if what == "uploads" else None
    found = scan(server)
    assert only(found).status is Status.COMPLETE
    assert [one.severity.value for one in found.findings] == ["note"]


# -- formats -----------------------------------------------------------------------------------------------------------
def orbax(server: S3Server, tmp_path: Path, marked: bool) -> ShardMap:
    place = tmp_path / "runs"
    shutil.copytree(DATA / "orbax/manager-ocdbt", place / "orbax")
    step = next(one for one in sorted((place / "orbax").iterdir()) if one.name.isdigit())
    for marker in [] if marked else sorted(step.rglob("commit_success.txt")):
        marker.unlink()
    age(place)
    server.store.put_folder(step, f"runs/orbax/{step.name}")
    return only(scan(server))


def test_orbax_in_a_bucket_is_committed_by_its_marker(server: S3Server, tmp_path: Path) -> None:
    assert orbax(server, tmp_path, marked=True).status is Status.COMPLETE


def test_orbax_in_a_bucket_without_the_marker_is_uncommitted(server: S3Server, tmp_path: Path) -> None:
    assert orbax(server, tmp_path, marked=False).status is Status.UNCOMMITTED


def test_damage_in_a_bucket_is_damage(server: S3Server) -> None:
    sharded(server)
    shard = next(key for key in sorted(server.store.objects) if key.endswith(".safetensors"))
    server.store.objects[shard].data = server.store.objects[shard].data[:-10]
    one = only(scan(server))
    assert one.status is Status.CORRUPT
    assert "shard_truncated" in codes(one)


def test_many_checkpoints_cost_one_listing_and_are_read_without_forks(server: S3Server) -> None:
    for step in range(100):
        sharded(server, f"runs/llama/step-{step}")
    server.store.requests.clear()
    found = scan(server).checkpoints
    assert {one.status for one in found} == {Status.COMPLETE}
    assert len(found) == 100
    assert server.store.requests.count("list") == -(-len(server.store.objects) // 1000)
