"""A policy that moves optimizer state down only with the newest steps: older copies keep their weights alone."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest
from muster_agent.decide.retention import Action
from muster_agent.jobs.seal import seal

from apps.checkpoints.models import Placement
from apps.transfers import planning
from tests.agent.checkpoint_factory import safetensors_bytes
from tests.transfers.conftest import Tiers, drive

pytestmark = pytest.mark.django_db


def hf_checkpoint(tiers: Tiers, step: int) -> Path:
    """A checkpoint whose optimizer state lies in a file of its own."""
    folder = Path(tiers.hot.uri) / "bert" / f"checkpoint-{step}"
    folder.mkdir(parents=True)
    weights = {"w": bytes([step]) * 64}
    (folder / "model.safetensors").write_bytes(safetensors_bytes(weights))
    (folder / "optimizer.safetensors").write_bytes(safetensors_bytes({"m": bytes([step, 1]) * 64}))
    (folder / "trainer_state.json").write_text(json.dumps({"global_step": step}))
    (folder / "config.json").write_text("{}")
    at = time.time() - 86_400 + step * 60
    for path in folder.iterdir():
        os.utime(path, (at, at))
    assert seal(str(folder)).manifest is not None
    return folder


def test_optimizer_state_moves_down_only_with_the_newest(tiers: Tiers) -> None:
    folders = {step: hf_checkpoint(tiers, step) for step in (10, 20, 30)}
    before = {path.name: path.read_bytes() for path in folders[10].iterdir() if ".muster" not in path.name}
    tiers.scan()
    for placement in Placement.objects.select_related("checkpoint__run", "tier__cluster"):
        tiers.verify(placement)
    policy = tiers.policy(keep_newest=1, optimizer_newest=2)
    found = planning.preview(policy)
    told = {line.copy.step: (line.action.value, line.without_optimizer) for line in found.lines}
    assert told == {10: ("move", True), 20: ("move", False), 30: ("stay", False)}
    for transfer in planning.run_policy(policy=policy, actor="x").transfers.all():
        assert drive(transfer).state == "done", transfer.problem
    cold = Path(tiers.cold.uri) / "bert"
    moved = {path.name: path.read_bytes() for path in (cold / "checkpoint-10").iterdir() if ".muster" not in path.name}
    assert moved == {name: data for name, data in before.items() if not name.startswith("optimizer")}
    assert (cold / "checkpoint-20" / "optimizer.safetensors").exists()
    assert not folders[10].exists() and not folders[20].exists() and folders[30].is_dir()
    trimmed = Placement.objects.get(tier=tiers.cold, checkpoint__step=10)
    assert (trimmed.trust, trimmed.resumable) == ("verified", False)
    assert planning.preview(policy).of(Action.MOVE) == []
