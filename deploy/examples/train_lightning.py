"""Lightning, resuming by itself and reporting to Muster.

python deploy/examples/train_lightning.py CHECKPOINTS --run demo --attempt demo-1 --steps 60
"""

from __future__ import annotations

import argparse
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from muster_agent.hooks import RunReporter
from muster_agent.hooks.lightning import LightningReports
from muster_agent.hooks.resuming import resume_point


class Muster(LightningReports, Callback):
    """Muster's reports as a callback of Lightning's."""


class Model(LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.Linear(64, 1))

    def training_step(self, batch: Any, _number: int) -> torch.Tensor:
        inputs = batch[0]
        return torch.nn.functional.mse_loss(self.layers(inputs), inputs.sum(dim=1, keepdim=True))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


def main() -> None:
    arguments = parse_arguments()
    reporter = RunReporter(run=arguments.run, attempt=arguments.attempt, rank=0)
    with reporter.phase("resolve"):
        point = resume_point(arguments.checkpoints)
    trainer = Trainer(
        max_steps=arguments.steps,
        accelerator="cpu",
        devices=1,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[
            Muster(reporter),
            ModelCheckpoint(dirpath=arguments.checkpoints, every_n_train_steps=arguments.save_every, save_top_k=-1),
        ],
    )
    data = torch.utils.data.TensorDataset(torch.randn(4096, 32))
    trainer.fit(Model(), torch.utils.data.DataLoader(data, batch_size=16), ckpt_path=point.path)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkpoints")
    parser.add_argument("--run", default="demo")
    parser.add_argument("--attempt", required=True)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--save-every", type=int, default=20)
    return parser.parse_args()


if __name__ == "__main__":
    main()
