"""BasicSR's weights and training states, made by hand from its own names."""

from __future__ import annotations

from pathlib import Path

from muster_agent.formats.base import Severity, ShardMap, Status
from muster_agent.formats.walk import inventory

from tests.agent.formats.damage import age, damage, written
from tests.agent.torch_factory import Tensor, torch_zip

OPTIMIZER = {"state": {0: {"exp_avg": Tensor("0", (4, 4))}}, "param_groups": [{"lr": 0.1}]}


def experiment(place: Path, saves: tuple[int, ...] = (5000, 10000)) -> Path:
    files = {}
    for save in saves:
        for net in ("net_g", "net_d"):
            files[f"models/{net}_{save}.pth"] = torch_zip({"params": {"w": Tensor("0", (4, 4))}}, f"{net}_{save}")
        state = {"epoch": 1, "iter": save, "optimizers": [OPTIMIZER], "schedulers": [{"last_epoch": 1}]}
        files[f"training_states/{save}.state"] = torch_zip(state, str(save))
    return written(place / "experiment", files)


def found(place: Path) -> dict[int | None, ShardMap]:
    return {one.step: one for one in inventory(place).checkpoints}


def test_networks_and_state_of_an_iteration_are_one_checkpoint(tmp_path: Path) -> None:
    both = found(experiment(tmp_path))
    assert {step: (one.format, one.status, one.resumable) for step, one in both.items()} == {
        10000: ("basicsr", Status.COMPLETE, True),
        5000: ("basicsr", Status.COMPLETE, True),
    }
    assert {shard.path for shard in both[5000].shards} == {
        "models/net_g_5000.pth",
        "models/net_d_5000.pth",
        "training_states/5000.state",
    }
    assert both[5000].run == "experiment"


def test_one_of_two_networks_alone_is_incomplete(tmp_path: Path) -> None:
    place = experiment(tmp_path)
    (place / "models" / "net_d_10000.pth").unlink()
    age(place)
    one = found(place)[10000]
    assert one.status is Status.INCOMPLETE
    assert {each.path for each in one.findings if each.severity is Severity.DAMAGE} == {"models/net_d_10000.pth"}


def test_weights_without_their_state_are_no_point_to_resume_from(tmp_path: Path) -> None:
    place = experiment(tmp_path, (5000, 10000, 15000))
    for save in (5000, 10000):
        (place / "training_states" / f"{save}.state").unlink()
    age(place)
    all_three = found(place)
    assert [all_three[step].resumable for step in (5000, 10000, 15000)] == [False, False, True]
    assert {all_three[step].status for step in (5000, 10000)} == {Status.COMPLETE}


def test_a_cut_state_is_damage(tmp_path: Path) -> None:
    place = experiment(tmp_path)
    damage(place / "training_states" / "10000.state", "truncate")
    assert found(place)[10000].status is Status.CORRUPT
