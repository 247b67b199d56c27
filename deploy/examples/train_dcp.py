"""Plain PyTorch with torch.distributed.checkpoint: resumes by itself, reports to Muster, saves in shards.

    torchrun --nproc-per-node=2 deploy/examples/train_dcp.py CHECKPOINTS --run demo --attempt demo-1 --steps 60

Kill it with `kill -9`, start it again with another `--attempt`, and it goes on where its newest whole checkpoint was.
"""

from __future__ import annotations

import argparse
import os
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from muster_agent.hooks import RunReporter
from muster_agent.hooks.resuming import resume_point
from muster_agent.hooks.saving import report_async_save, reported_save
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.checkpoint.stateful import Stateful


class Training(Stateful):
    """Model, optimizer, step and random state: what a restart needs to go on as if nothing had been."""

    def __init__(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
        self.model, self.optimizer, self.step = model, optimizer, 0

    def state_dict(self) -> dict[str, Any]:
        model, optimizer = get_state_dict(self.model, self.optimizer)
        return {"model": model, "optimizer": optimizer, "step": self.step, "rng": torch.get_rng_state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        set_state_dict(self.model, self.optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
        self.step = int(state["step"])
        torch.set_rng_state(state["rng"])


def main() -> None:
    arguments = parse_arguments()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    reporter = RunReporter(run=arguments.run, attempt=arguments.attempt, rank=rank)
    reporter.process_started()

    with reporter.phase("resolve"):
        point = resume_point(arguments.checkpoints, rank=rank, broadcast=dist.broadcast_object_list)
    with reporter.phase("allocate"):
        torch.manual_seed(1234)
        model = torch.nn.parallel.DistributedDataParallel(
            torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.Linear(64, 1))
        )
        training = Training(model, torch.optim.AdamW(model.parameters(), lr=1e-3))
    if point.path:
        with reporter.phase("read"):
            dcp.load({"training": training}, checkpoint_id=point.path)
        reporter.resumed_from(training.step, point.path)
    # A save in the background speaks to the other ranks too; in the trainer's own group the two wait for each other.
    group = dist.new_group(backend="gloo") if arguments.asynchronous else None
    train(arguments, reporter, training, rank, group)
    reporter.close()
    dist.destroy_process_group()


def train(arguments: argparse.Namespace, reporter: RunReporter, training: Training, rank: int, group: Any) -> None:
    saving = None
    while training.step < arguments.steps:
        inputs = torch.randn(16, 32)
        loss = torch.nn.functional.mse_loss(training.model(inputs), inputs.sum(dim=1, keepdim=True))
        training.optimizer.zero_grad()
        loss.backward()
        training.optimizer.step()
        training.step += 1
        reporter.step(training.step, loss=loss.item() if training.step % 10 == 0 else None)
        if training.step % arguments.save_every == 0:
            if saving is not None:
                saving.result()
            saving = save(arguments, reporter, training, rank, group)
    if saving is not None:
        saving.result()


def save(arguments: argparse.Namespace, reporter: RunReporter, training: Training, rank: int, group: Any) -> Any:
    """Rank 0 speaks for the save, which is whole once every rank has written."""
    path = os.path.join(arguments.checkpoints, f"step-{training.step}")
    state = {"training": training}
    if not arguments.asynchronous:
        if rank != 0:
            dcp.save(state, checkpoint_id=path)
            return None
        with reported_save(reporter, training.step, path):
            dcp.save(state, checkpoint_id=path)
        return None
    if rank == 0:
        reporter.save_started(training.step)
    future = dcp.async_save(state, checkpoint_id=path, process_group=group)
    if rank == 0:
        report_async_save(reporter, training.step, path, future)
    return future


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkpoints")
    parser.add_argument("--run", default="demo")
    parser.add_argument("--attempt", required=True)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--save-every", type=int, default=20)
    parser.add_argument("--asynchronous", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    main()
