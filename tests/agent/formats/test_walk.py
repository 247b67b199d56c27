from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from muster_agent.formats import scan_reading
from muster_agent.formats.base import Status
from muster_agent.formats.detect import Inventory, RootUnreadable, inventory
from muster_agent.jobs.control import Cancelled, JobControl

from tests.agent.checkpoint_factory import safetensors_bytes, write_checkpoint


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = tmp_path / "run-a"
    for step in (10, 20, 30):
        write_checkpoint(folder, step, rank_bytes=300, world_size=2)
    return folder


def take(path: Path) -> Inventory:
    return inventory(path, grace_seconds=0)


def steps(found: Inventory) -> list[int | None]:
    return [one.step for one in found.checkpoints]


def codes(found: Inventory) -> list[str]:
    return [one.code for one in found.findings]


def test_a_runs_folder_is_listed_newest_step_first_without_tensors(run: Path) -> None:
    found = take(run)
    assert steps(found) == [30, 20, 10]
    assert {one.run for one in found.checkpoints} == {"run-a"}
    assert all(one.tensors == () and one.status is Status.COMPLETE for one in found.checkpoints)


def test_a_folder_of_runs_is_walked(run: Path, tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "deep" / "er" / "run-b", 25, rank_bytes=300, world_size=2)
    found = take(tmp_path)
    assert steps(found) == [30, 25, 20, 10]
    assert {one.run for one in found.checkpoints} == {"run-a", "run-b"}


def test_one_checkpoint_is_an_inventory_of_one(run: Path, tmp_path: Path) -> None:
    assert steps(take(run / "step-00000020")) == [20]
    (tmp_path / "model.safetensors").write_bytes(safetensors_bytes({"w": bytes(4)}))
    assert [one.path for one in take(tmp_path / "model.safetensors").checkpoints] == [
        str(tmp_path / "model.safetensors")
    ]


def test_an_empty_folder_has_no_checkpoints(tmp_path: Path) -> None:
    assert (take(tmp_path).checkpoints, take(tmp_path).findings) == ((), ())


def test_an_empty_step_folder_is_listed_as_incomplete(run: Path) -> None:
    (run / "step-40").mkdir()
    assert (steps(take(run))[0], take(run).checkpoints[0].status) == (40, Status.INCOMPLETE)


def test_the_step_is_a_full_match_and_not_a_part_of_the_name(run: Path) -> None:
    (run / "step-00000030").rename(run / "step-00000030.backup")
    (run / "step-00000030.backup" / "checkpoint.json").unlink()
    assert steps(take(run)) == [20, 10, None]


def test_a_missing_root_and_an_unlisted_one_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(RootUnreadable, match="no such file") as missing:
        take(tmp_path / "nowhere")
    assert missing.value.is_missing
    (tmp_path / "file").write_text("x")
    with pytest.raises(RootUnreadable, match="no such file"):
        take(tmp_path / "file" / "below")


def test_links_are_followed_once_and_circles_end(run: Path) -> None:
    (run / "again").symlink_to(run)
    (run / "also").symlink_to("step-00000030")
    (run / "step-31").symlink_to("step-31")
    found = take(run)
    assert steps(found) == [31, 30, 20, 10]
    assert [one.code for one in found.checkpoints[0].findings] == ["link_broken"]


def test_a_link_out_of_the_root_is_named_and_not_followed(run: Path, tmp_path: Path) -> None:
    outside = write_checkpoint(tmp_path / "outside", 99, rank_bytes=300, world_size=2)
    (run / "step-99").symlink_to(outside)
    found = take(run)
    assert steps(found) == [99, 30, 20, 10]
    assert (found.checkpoints[0].status, found.checkpoints[0].shards) == (Status.UNREADABLE, ())
    assert [one.code for one in found.checkpoints[0].findings] == ["link_escapes_root"]


def test_a_root_that_is_itself_a_link_is_followed(run: Path, tmp_path: Path) -> None:
    (tmp_path / "alias").symlink_to(run)
    found = take(tmp_path / "alias")
    assert steps(found) == [30, 20, 10]
    assert found.checkpoints[0].path.startswith(str(tmp_path / "alias"))


def test_leftovers_are_named(run: Path) -> None:
    (run / "step-40.tmp").mkdir()
    (run / "state.safetensors.tmp").write_bytes(b"x")
    assert (steps(take(run)), codes(take(run))) == ([30, 20, 10], ["temporary_left"] * 2)


def test_two_folders_of_one_step_say_so(run: Path) -> None:
    (run / "step-00000030").rename(run / "aside")
    write_checkpoint(run, 30, rank_bytes=300, world_size=2)
    doubles = [one for one in take(run).checkpoints if one.step == 30]
    assert [[found.code for found in one.findings] for one in doubles] == [["duplicate_step"]] * 2


@pytest.mark.parametrize(
    ("name", "binding"), [("latest", False), ("latest_checkpointed_iteration.txt", True), ("dlrover_latest.txt", True)]
)
def test_a_pointer_file_is_read(run: Path, name: str, binding: bool) -> None:
    (run / name).write_text("30\n")
    found = take(run)
    assert [(one.step, one.binding, one.path) for one in found.pointers] == [(30, binding, str(run / name))]
    assert codes(found) == []


def test_a_pointer_that_is_a_link_is_read_and_lists_nothing_twice(run: Path) -> None:
    (run / "last").symlink_to("step-00000020")
    found = take(run)
    assert ([one.step for one in found.pointers], steps(found)) == ([20], [30, 20, 10])
    assert codes(found) == ["pointer_stale"]


@pytest.mark.parametrize(
    ("text", "code"),
    [("", "pointer_unreadable"), ("soon", "pointer_unreadable"), ("77", "pointer_dangling"), ("20", "pointer_stale")],
)
def test_a_pointer_that_misleads_is_a_finding(run: Path, text: str, code: str) -> None:
    (run / "latest").write_text(text)
    assert codes(take(run)) == [code]


def test_a_pointer_that_is_not_text_or_a_broken_link_is_a_finding(run: Path) -> None:
    (run / "latest").write_bytes(b"\xff\xfe")
    (run / "last").symlink_to("step-77")
    assert sorted(set(codes(take(run)))) == ["pointer_dangling", "pointer_unreadable"]


def test_threads_give_the_same_inventory(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = take(run)
    monkeypatch.setattr(scan_reading, "FIRST_TASKS", 2)
    monkeypatch.setattr(scan_reading, "WAITING_RATIO", 0.0)
    monkeypatch.setattr(scan_reading, "WAITING_SLEEPS", 0)
    pools: list[int] = []
    monkeypatch.setattr(
        scan_reading, "ThreadPoolExecutor", lambda count: pools.append(count) or ThreadPoolExecutor(count)
    )
    assert take(run) == plain
    assert pools == [scan_reading.READERS]


def test_a_cancelled_inventory_stops(run: Path) -> None:
    stop = threading.Event()
    stop.set()
    with pytest.raises(Cancelled):
        inventory(run, control=JobControl(cancel=stop))


def test_a_link_to_a_file_beside_it_is_no_second_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "step-5.safetensors").write_bytes(safetensors_bytes({"w": bytes(4)}))
    (tmp_path / "best.safetensors").symlink_to("step-5.safetensors")
    (tmp_path / "last.safetensors").symlink_to("step-5.safetensors")
    found = take(tmp_path)
    assert [os.path.basename(one.path) for one in found.checkpoints] == ["step-5.safetensors"]
    assert [one.step for one in found.pointers] == [5]


def test_a_copy_that_is_called_last_is_a_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "last.safetensors").write_bytes(safetensors_bytes({"w": bytes(4)}))
    assert (len(take(tmp_path).checkpoints), take(tmp_path).pointers) == (1, ())


def test_a_file_that_is_no_checkpoint_is_not_listed(run: Path) -> None:
    (run / "train.log").write_text("x")
    os.mkfifo(run / "pipe.safetensors")
    assert steps(take(run)) == [30, 20, 10]


def test_a_final_model_beside_the_steps_hides_none_of_them(run: Path) -> None:
    (run / "model.safetensors").write_bytes(safetensors_bytes({"w": bytes(4)}))
    (run / "training_args.bin").write_bytes(b"x")
    found = take(run)
    assert steps(found) == [30, 20, 10, None]
    assert found.checkpoints[-1].path == str(run)


@pytest.mark.parametrize("name", ["48123", "20260501"])
def test_a_run_called_after_its_job_is_no_step_with_its_final_model_either(run: Path, name: str) -> None:
    place = run.rename(run.parent / name)
    (place / "model.safetensors").write_bytes(safetensors_bytes({"w": bytes(4)}))
    for root in (place, place.parent):
        found = take(root)
        assert steps(found) == [30, 20, 10, None]
        assert [one.path for one in found.checkpoints[-1:]] == [str(place)]
        assert {one.run for one in found.checkpoints if one.step} == {name}


def test_a_plain_metadata_json_does_not_make_a_folder_megatrons(run: Path) -> None:
    (run / "step-00000030" / "metadata.json").write_text('{"owner": "me"}')
    assert take(run).checkpoints[0].status is Status.COMPLETE
    (run / "step-00000030" / "metadata.json").write_text('{"sharded_backend": "of_tomorrow"}')
    assert take(run).checkpoints[0].status is Status.UNKNOWN


def test_a_stage_of_dlrover_is_left_over_and_its_steps_are_no_checkpoints(run: Path) -> None:
    write_checkpoint(run / "._dlrover_ckpt_stage", 40, rank_bytes=300, world_size=2)
    (run / "._step-30").write_bytes(b"of another system")
    found = take(run)
    assert (steps(found), codes(found)) == ([30, 20, 10], ["temporary_left"])
    assert found.findings[0].path == str(run / "._dlrover_ckpt_stage")
