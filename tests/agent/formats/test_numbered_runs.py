"""Folders called by a number alone: a step, or a job that keeps its checkpoints in it."""

from __future__ import annotations

from pathlib import Path

import pytest
from muster_agent.formats.base import Status
from muster_agent.formats.walk import inventory

from tests.agent.formats.damage import written
from tests.agent.torch_factory import Tensor, torch_zip

STATE = {"model": {"w": Tensor("0", (4, 4))}, "optimizer": {"state": {}, "param_groups": []}}


def state(step: int) -> bytes:
    return torch_zip({**STATE, "iteration": step})


@pytest.mark.parametrize(
    "names",
    [
        ("work/iter_1000.pth", "work/iter_2000.pth"),
        ("iter_1000.pth", "iter_2000.pth"),
        ("out/checkpoints/0050000.pt", "out/checkpoints/0100000.pt"),
        ("out/model_0004999.pth", "out/model_0009999.pth"),
    ],
)
@pytest.mark.parametrize("from_above", [True, False])
def test_a_job_called_by_its_number_is_no_step(tmp_path: Path, names: tuple[str, ...], from_above: bool) -> None:
    place = written(tmp_path / "48123", {name: state(index + 1) for index, name in enumerate(names)})
    found = inventory(tmp_path if from_above else place).checkpoints
    assert {str(Path(one.path).relative_to(place)) for one in found} == set(names)
    assert all(one.status is Status.COMPLETE and one.resumable for one in found)


@pytest.mark.parametrize(
    "files",
    [
        {"state.pt": state(1000)},
        {
            "model/weights.pt": torch_zip({"w": Tensor("0", (4, 4))}),
            "optimizer/state.pt": torch_zip(STATE["optimizer"]),
        },
        {"model-step-1000.pt": torch_zip(STATE["model"]), "optimizer-step-1000.pt": torch_zip(STATE["optimizer"])},
    ],
)
def test_a_step_called_by_its_number_stays_one(tmp_path: Path, files: dict[str, bytes]) -> None:
    for step in ("1000", "2000"):
        renamed = {name.replace("1000", step): data for name, data in files.items()}
        written(tmp_path / "run" / step, renamed if "state.pt" not in files else {"state.pt": state(int(step))})
    found = inventory(tmp_path / "run").checkpoints
    assert [Path(one.path).name for one in found] == ["2000", "1000"]


def test_what_nothing_is_understood_of_is_still_listed(tmp_path: Path) -> None:
    written(tmp_path / "run" / "48123", {"a/b/notes.dat": b"x" * 100})
    (found,) = inventory(tmp_path / "run").checkpoints
    assert (Path(found.path).name, found.status) == ("48123", Status.UNKNOWN)
