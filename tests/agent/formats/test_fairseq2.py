"""fairseq2's step folders in the layouts of its versions, made by hand from its own rules."""

from __future__ import annotations

from pathlib import Path

import pytest
from muster_agent.formats.base import Role, Severity, ShardMap, Status
from muster_agent.formats.detect import read_checkpoint
from muster_agent.formats.walk import inventory

from tests.agent.formats.damage import written
from tests.agent.torch_factory import Tensor, torch_zip

ADAM = {"state": {0: {"exp_avg": Tensor("0", (8, 8))}}, "param_groups": [{"lr": 0.1}]}
OLD = "old"
NEW = "new"


def files(layout: str, *, sdp: int = 2, tp: int = 1) -> dict[str, bytes]:
    """A step of sdp x tp ranks."""
    made = {}
    for rank in range(sdp * tp):
        made[f"trainer/{'rank' if layout == NEW else 'state'}_{rank:02d}.pt"] = torch_zip({"step_nr": 100})
    for rank in range(sdp):
        made[f"data_reader/{'dp' if layout == NEW else 'state'}_{rank:02d}.pt"] = torch_zip({"position": 7})
    for part, state in {"model": {"w": Tensor("0", (8, 8))}, "optimizer": ADAM}.items():
        for tensor_rank in range(tp):
            for rank in range(sdp):
                under = f"{part}/pp_00/tp_{tensor_rank:02d}/sdp_{rank:02d}.pt"
                if layout == OLD:
                    of_rank = f".{tensor_rank:02d}" if tp > 1 else ""
                    under = f"{part}{of_rank}.pt" + (f"/shard.{rank:02d}.pt" if sdp > 1 else "")
                made[under] = torch_zip(state)
    return made


def lost(shard_map: ShardMap) -> set[str]:
    return {one.path for one in shard_map.findings if one.severity is Severity.DAMAGE}


@pytest.mark.parametrize("layout", [OLD, NEW])
@pytest.mark.parametrize(("sdp", "tp"), [(1, 1), (2, 1), (1, 2), (2, 2)])
def test_a_whole_step_is_complete_with_its_ranks_and_layout(layout: str, sdp: int, tp: int, tmp_path: Path) -> None:
    place = written(tmp_path / "step_100", files(layout, sdp=sdp, tp=tp))
    shard_map = read_checkpoint(place)
    assert (shard_map.format, shard_map.step, shard_map.status) == ("fairseq2", 100, Status.COMPLETE)
    assert shard_map.resumable and lost(shard_map) == set()
    assert (shard_map.world_size, shard_map.dp, shard_map.tp) == (sdp * tp, sdp, tp)
    assert {shard.role for shard in shard_map.shards} == {Role.MODEL, Role.OPTIMIZER, Role.RNG, Role.DATALOADER}
    assert {shard.path for shard in shard_map.shards} == files(layout, sdp=sdp, tp=tp).keys()


@pytest.mark.parametrize("layout", [OLD, NEW])
def test_every_file_of_a_rank_but_the_last_readers_is_missed(layout: str, tmp_path: Path) -> None:
    whole = files(layout, sdp=2, tp=2)
    for name in whole.keys() - {f"data_reader/{'dp' if layout == NEW else 'state'}_01.pt"}:
        place = written(tmp_path / f"{name.replace('/', '-')}/step_100", {n: d for n, d in whole.items() if n != name})
        shard_map = read_checkpoint(place)
        assert (shard_map.status, lost(shard_map)) == (Status.INCOMPLETE, {name}), name


def test_a_cut_file_is_damage(tmp_path: Path) -> None:
    whole = files(NEW)
    name = "optimizer/pp_00/tp_00/sdp_01.pt"
    whole[name] = whole[name][:300]
    shard_map = read_checkpoint(written(tmp_path / "step_100", whole))
    assert (shard_map.status, lost(shard_map)) == (Status.CORRUPT, {name})


def test_a_model_alone_is_complete_and_no_point_to_resume_from(tmp_path: Path) -> None:
    only = {name: data for name, data in files(NEW).items() if name.startswith("model")}
    shard_map = read_checkpoint(written(tmp_path / "step_100", only))
    assert (shard_map.format, shard_map.status, shard_map.resumable) == ("fairseq2", Status.COMPLETE, False)


def test_a_step_that_was_never_renamed_is_no_step(tmp_path: Path) -> None:
    written(tmp_path / "checkpoints/step_100", files(NEW))
    written(tmp_path / "checkpoints/step_200.tmp", files(NEW))
    found = {one.step: (one.status, one.resumable) for one in inventory(tmp_path).checkpoints}
    assert found == {100: (Status.COMPLETE, True), 200: (Status.UNCOMMITTED, False)}
