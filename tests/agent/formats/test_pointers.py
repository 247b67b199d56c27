from __future__ import annotations

import os
import zipfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from muster_agent.decide.model import Pointer
from muster_agent.formats.base import Finding, ShardMap, Status
from muster_agent.formats.folder import look
from muster_agent.formats.pointer_findings import pointer_findings
from muster_agent.formats.pointers import is_pointer, read_pointer
from muster_agent.formats.walk import inventory

from tests.agent.formats.damage import age, copy_sample


def told(place: Path, name: str) -> tuple[Pointer | None, Finding | None]:
    folder = look(str(place), os.path.realpath(place))
    assert is_pointer(folder, name)
    return read_pointer(folder, name)


def train_state(path: Path, step: int, *, as_tensor: bool = True) -> None:
    """A file of torch.save by its own rules: a stored zip with a pickle that refers to the storage beside it."""
    storage = b"(X\x07\x00\x00\x00storagectorch\nIntStorage\nX\x01\x00\x00\x000X\x03\x00\x00\x00cpuK\x01tQ"
    tensor = b"ctorch._utils\n_rebuild_tensor_v2\n(" + storage + b"K\x00))\x89ccollections\nOrderedDict\n)RtR"
    value = tensor if as_tensor else b"K" + bytes([step])
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{path.stem}/data.pkl", b"\x80\x02}X\x04\x00\x00\x00step" + value + b"s.")
        archive.writestr(f"{path.stem}/version", "3\n")
        archive.writestr(f"{path.stem}/data/0", step.to_bytes(4, "little"))


@pytest.mark.parametrize("as_tensor", [True, False])
def test_the_train_state_of_megatron_bridge_is_a_binding_pointer(tmp_path: Path, as_tensor: bool) -> None:
    train_state(tmp_path / "latest_train_state.pt", 120, as_tensor=as_tensor)
    pointer, found = told(tmp_path, "latest_train_state.pt")
    assert pointer == Pointer(path=str(tmp_path / "latest_train_state.pt"), step=120, binding=True)
    assert found is None


@pytest.mark.parametrize("data", [b"", b"PK\x03\x04", b"\0" * 5000, b"not a torch file"])
def test_a_train_state_that_cannot_be_read_is_said(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "latest_train_state.pt").write_bytes(data)
    pointer, found = told(tmp_path, "latest_train_state.pt")
    assert found is not None and found.code == "pointer_unreadable"
    assert pointer is not None and pointer.step is None and pointer.problem


@pytest.mark.parametrize(
    ("name", "text", "step", "target"),
    [
        ("latest_checkpointed_iteration.txt", "100", 100, None),
        ("latest_checkpointed_iteration.txt", "release", None, "release"),
        ("dlrover_latest.txt", "7\n", 7, None),
        ("latest", "global_step4", 4, "global_step4"),
        ("latest", "/old/host/run/global_step4/", 4, "global_step4"),
        ("latest", "my-tag", None, "my-tag"),
        ("latest_universal", "global_step4_universal", None, "global_step4_universal"),
        ("last_checkpoint", "model_0004999.pth", None, "model_0004999.pth"),
        ("latest-rank0.pt.symlink", "prefix/ep0-ba10-rank0.pt", 10, "ep0-ba10-rank0.pt"),
    ],
)
def test_what_a_text_says_is_a_name_or_a_number_beside_it(
    tmp_path: Path, name: str, text: str, step: int | None, target: str | None
) -> None:
    for folder in ("my-tag", "global_step4_universal"):
        (tmp_path / folder).mkdir()
    (tmp_path / "model_0004999.pth").write_bytes(b"x")
    (tmp_path / name).write_text(text)
    pointer, found = told(tmp_path, name)
    assert found is None and pointer is not None
    assert (pointer.step, pointer.target, pointer.problem) == (step, target, None)


@pytest.mark.parametrize("text", ["iter_0000200", "/old/host/iter_0000200"])
def test_a_tracker_that_holds_a_name_for_a_number_stops_megatron(tmp_path: Path, text: str) -> None:
    (tmp_path / "iter_0000200").mkdir()
    (tmp_path / "latest_checkpointed_iteration.txt").write_text(text)
    pointer, found = told(tmp_path, "latest_checkpointed_iteration.txt")
    assert found is not None and found.code == "pointer_unreadable" and "Megatron" in found.detail
    assert pointer is not None and (pointer.step, pointer.binding) == (200, True) and pointer.problem == found.detail


def test_a_copy_or_a_folder_with_a_pointers_name_is_none(tmp_path: Path) -> None:
    (tmp_path / "last.ckpt").write_bytes(b"x")
    (tmp_path / "latest").mkdir()
    (tmp_path / "step-5").mkdir()
    (tmp_path / "step-7").symlink_to("step-5")
    folder = look(str(tmp_path), str(tmp_path))
    assert not any(is_pointer(folder, name) for name in ("last.ckpt", "latest", "step-5", "step-7"))


def test_the_names_of_links_are_known_by_their_words(tmp_path: Path) -> None:
    (tmp_path / "step-5").mkdir()
    names = ["latest", "last", "last.ckpt", "last-v1.ckpt", "latest-rank0.pt", "step_latest", "model_latest", "current"]
    for name in [*names, "outlast", "best"]:
        (tmp_path / name).symlink_to("step-5")
    folder = look(str(tmp_path), str(tmp_path))
    assert [name for name in sorted(folder.links) if is_pointer(folder, name)] == sorted(names)


def test_a_link_to_another_folder_says_nothing_of_the_steps_beside_it(tmp_path: Path) -> None:
    (tmp_path / "other" / "step-9").mkdir(parents=True)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "latest").symlink_to("../other/step-9")
    folder = look(str(tmp_path / "run"), str(tmp_path))
    assert read_pointer(folder, "latest") == (Pointer(path=str(tmp_path / "run" / "latest"), step=None), None)


@given(data=st.binary(max_size=300))
def test_any_bytes_in_a_pointer_give_a_step_a_name_or_a_finding(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    place = tmp_path_factory.mktemp("any")
    for name in ("latest", "latest_checkpointed_iteration.txt", "latest_train_state.pt"):
        (place / name).write_bytes(data)
        pointer, found = told(place, name)
        assert pointer is not None
        assert (found is not None) == (pointer.problem is not None)
        assert pointer.step is None or 0 <= pointer.step < 10**18


# -- held against what lies beside -------------------------------------------------------------------------------------
def made(name: str, step: int, status: Status = Status.COMPLETE, format_name: str = "megatron_dist") -> ShardMap:
    good = status is Status.COMPLETE
    return ShardMap(path=f"/run/{name}", run="run", format=format_name, step=step, status=status, resumable=good)


def codes(pointers: list[Pointer], beside: list[ShardMap]) -> list[tuple[str, str]]:
    return [(found.code, found.detail) for found in pointer_findings(pointers, beside)]


def test_the_links_of_ranks_that_differ_are_named_once() -> None:
    beside = [made("ep0-ba10-rank{rank}.pt", 10, format_name="composer"), made("ep0-ba20-rank{rank}.pt", 20)]
    links = [
        Pointer(path=f"/run/latest-rank{rank}.pt", step=step, target=f"ep0-ba{step}-rank{rank}.pt")
        for rank, step in enumerate((20, 20, 10))
    ]
    said = codes(links, beside)
    assert ("pointer_stale", "the ranks' links name different steps: 10, 20") in said
    assert all(code == "pointer_stale" for code, _ in said)


def test_the_universal_pointer_says_nothing_of_other_checkpoints() -> None:
    pointer = Pointer(path="/run/latest_universal", step=None, target="global_step4_universal")
    beside = [made("global_step4_universal", 4), made("global_step9", 9, format_name="deepspeed")]
    assert codes([pointer, Pointer(path="/run/latest", step=9, target="global_step9")], beside) == []


@pytest.mark.parametrize(
    ("name", "format_name", "missed"),
    [
        ("iter_0000050", "megatron_dist", "latest_checkpointed_iteration.txt"),
        ("iter_0000050", "dcp", "latest_checkpointed_iteration.txt"),
        ("global_step4", "deepspeed", "latest"),
        ("global_step_4", "bytecheckpoint", "latest_checkpointed_iteration.txt"),
        ("step-50", "dcp", None),
        ("step-50", "torchtitan", None),
        ("checkpoint-50", "hf_trainer", None),
        ("50", "orbax", None),
        ("my-model", "megatron_dist", None),
    ],
)
def test_only_a_pointer_that_the_framework_always_writes_is_missed(
    name: str, format_name: str, missed: str | None
) -> None:
    found = pointer_findings([], [made(name, 50, format_name=format_name)])
    assert [os.path.basename(one.path) for one in found] == ([missed] if missed else [])
    assert all(one.code == "pointer_missing" for one in found)


def test_no_pointer_is_missed_before_the_first_save_has_ended() -> None:
    assert codes([], [made("iter_0000050", 50, Status.IN_PROGRESS)]) == []


def test_a_pointer_to_a_running_save_is_a_note() -> None:
    pointer = Pointer(path="/run/latest_checkpointed_iteration.txt", step=50, binding=True)
    (found,) = pointer_findings([pointer], [made("iter_0000050", 50, Status.IN_PROGRESS)])
    assert (found.code, found.severity.value) == ("pointer_dangling", "note")


@pytest.mark.parametrize("status", [Status.UNREADABLE, Status.UNKNOWN, Status.ARCHIVED])
def test_nothing_is_said_of_what_could_not_be_looked_at(status: Status) -> None:
    pointer = Pointer(path="/run/latest_checkpointed_iteration.txt", step=50, binding=True)
    assert codes([pointer], [made("iter_0000050", 50, status)]) == []


def test_a_pointer_for_converted_checkpoints_does_not_stand_in_for_the_other(tmp_path: Path) -> None:
    place = copy_sample("deepspeed/zero1-bf16", tmp_path)
    (place / "latest_universal").write_text("global_step4_universal")
    (place / "latest").unlink()
    age(place)
    assert "pointer_missing" in {found.code for found in inventory(place).findings}
