"""Files that Keras wrote: HDF5, and a zip around it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from muster_agent.formats.base import Role, Severity, Status
from muster_agent.formats.detect import read_checkpoint
from muster_agent.formats.walk import inventory
from muster_agent.jobs.own_sums import check_own_sums

from tests.agent.formats.damage import DATA, age, copy_sample, damage
from tests.agent.formats.fuzz import examples

NAMES = ("ckpt-03.weights.h5", "model.h5", "model.keras", "only.weights.h5")
REAL = {name: (DATA / "keras" / name).read_bytes() for name in NAMES}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return copy_sample("keras", tmp_path)


def test_weights_with_an_optimizer_are_a_point_to_resume_from_and_alone_they_are_none(run: Path) -> None:
    found = {
        Path(one.path).name: (one.format, one.step, one.status, one.resumable) for one in inventory(run).checkpoints
    }
    assert found == {
        "ckpt-03.weights.h5": ("keras", 6, Status.COMPLETE, True),
        "model.h5": ("keras", 6, Status.COMPLETE, True),
        "model.keras": ("keras", 6, Status.COMPLETE, True),
        "only.weights.h5": ("keras", None, Status.COMPLETE, False),
    }


@pytest.mark.parametrize("name", ["ckpt-03.weights.h5", "model.keras"])
def test_where_each_variable_lies_is_told(run: Path, name: str) -> None:
    tensors = {one.name: one for one in read_checkpoint(run / name).tensors}
    kernel = tensors["layers/dense/vars/0"]
    assert (kernel.dtype, kernel.shape, kernel.role) == ("float32", (3, 4), Role.MODEL)
    assert tensors["optimizer/vars/0"].role is Role.OPTIMIZER
    count = tensors["optimizer/vars/0"]
    assert REAL[name][count.offset_bytes :][: count.length_bytes] == (6).to_bytes(count.length_bytes, "little")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", ["truncate", "empty"])
@pytest.mark.parametrize("seed", range(3))
def test_a_cut_file_is_damage(run: Path, name: str, kind: str, seed: int) -> None:
    done = damage(run / name, kind, seed)
    found = next(one for one in inventory(run).checkpoints if one.path.endswith(name))
    assert found.status in (Status.CORRUPT, Status.INCOMPLETE) and not found.resumable, done
    assert {one.path for one in found.findings if one.severity is Severity.DAMAGE} == {name}


def test_bytes_behind_the_end_are_told(run: Path) -> None:
    damage(run / "only.weights.h5", "extend")
    found = read_checkpoint(run / "only.weights.h5")
    assert found.status is Status.COMPLETE and "shard_oversized" in {one.code for one in found.findings}


def test_the_sum_in_the_zip_tells_of_a_changed_value(run: Path) -> None:
    place = read_checkpoint(run / "model.keras").tensors[0].offset_bytes
    data = bytearray(REAL["model.keras"])
    data[place] ^= 1
    (run / "model.keras").write_bytes(data)
    assert [one.code for one in check_own_sums(str(run / "model.keras")).findings] == ["digest_mismatch"]


def test_data_in_hdf5_is_no_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "features.h5").write_bytes(REAL["only.weights.h5"])
    (tmp_path / "train_data.hdf5").write_bytes(REAL["only.weights.h5"])
    age(tmp_path)
    assert not inventory(tmp_path).checkpoints


@settings(max_examples=examples(200), deadline=None)
@given(st.sampled_from(NAMES), st.data())
def test_any_bytes_give_findings_and_no_exception(
    tmp_path_factory: pytest.TempPathFactory, name: str, data: st.DataObject
) -> None:
    real = REAL[name]
    at = data.draw(st.integers(0, len(real) - 1))
    patch = data.draw(st.binary(min_size=1, max_size=20))
    place = tmp_path_factory.mktemp("keras")
    (place / name).write_bytes(real[:at] + patch + real[at + len(patch) :])
    found = read_checkpoint(place / name, grace_seconds=0)
    assert not any("reader failed" in one.detail for one in found.findings)
