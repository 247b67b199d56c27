from __future__ import annotations

from pathlib import Path

import pytest
from muster_agent.formats.base import Severity
from muster_agent.formats.dcp_plan import Plan
from muster_agent.formats.detect import read_checkpoint
from muster_agent.formats.draft import Draft
from muster_agent.formats.folder import Folder
from muster_agent.formats.torchtitan import is_own, take_loader

from tests.agent.formats.damage import copy_sample


def loader(objects: set[str], writers: int) -> Draft:
    draft = Draft("torchtitan", world_size=writers)
    take_loader(draft, Folder("/x", "/x"), Plan(objects=objects))
    return draft


def test_a_real_save_needs_the_same_data_parallel_ranks(tmp_path: Path) -> None:
    found = read_checkpoint(copy_sample("dcp/torchtitan/step-15", tmp_path))
    assert (found.format, found.dp, found.must_match) == ("torchtitan", 2, ("dp",))
    assert "dataloader_missing" not in {one.code for one in found.findings}


def test_loader_state_of_one_of_several_writers_is_a_warning() -> None:
    draft = loader({"dataloader.dp_rank_0"}, writers=4)
    (found,) = draft.findings
    assert (found.code, found.severity) == ("dataloader_missing", Severity.WARNING)
    assert "1 of 4" in found.detail and draft.dp == 1


@pytest.mark.parametrize(("ranks", "writers"), [((0, 1), 4), ((0,), 1), ((0, 1, 2, 3), 4)])
def test_loader_state_of_fewer_data_parallel_ranks_than_writers_is_legitimate(
    ranks: tuple[int, ...], writers: int
) -> None:
    assert not loader({f"dataloader.dp_rank_{rank}" for rank in ranks}, writers).findings


def test_a_gap_in_the_loader_state_is_told() -> None:
    draft = loader({"dataloader.dp_rank_0", "dataloader.dp_rank_3"}, writers=4)
    assert "2 of 4" in draft.findings[0].detail


def test_a_save_without_any_loader_state_needs_no_ranks() -> None:
    draft = loader({"note"}, writers=4)
    assert (draft.dp, draft.must_match, draft.findings) == (None, (), [])


def test_names_that_any_job_may_use_are_not_taken_for_torchtitans() -> None:
    assert not is_own(Plan(objects={"train_state.step", "model.w"}))
    assert is_own(Plan(objects={"train_state.step", "lr_scheduler.last_epoch"}))
