"""Hugging Face's Trainer, resuming by itself and reporting to Muster; the model is a small GPT-2 with random weights.

python deploy/examples/train_transformers.py CHECKPOINTS --run demo --attempt demo-1 --steps 30
"""

from __future__ import annotations

import argparse

import torch
from muster_agent.hooks import RunReporter
from muster_agent.hooks.resuming import resume_point
from muster_agent.hooks.transformers import TrainerReports
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments


class Muster(TrainerReports, TrainerCallback):
    """Muster's reports as a callback of the Trainer's."""


class Words(torch.utils.data.Dataset):
    """Random words, the same ones every time."""

    def __len__(self) -> int:
        return 256

    def __getitem__(self, number: int) -> dict[str, torch.Tensor]:
        words = torch.randint(0, 64, (16,), generator=torch.Generator().manual_seed(number))
        return {"input_ids": words, "labels": words}


def main() -> None:
    arguments = parse_arguments()
    reporter = RunReporter(run=arguments.run, attempt=arguments.attempt, rank=0)
    with reporter.phase("resolve"):
        point = resume_point(arguments.checkpoints)
    trainer = Trainer(
        model=GPT2LMHeadModel(GPT2Config(vocab_size=64, n_positions=16, n_embd=16, n_layer=2, n_head=2)),
        args=TrainingArguments(
            output_dir=arguments.checkpoints,
            max_steps=arguments.steps,
            save_steps=arguments.save_every,
            logging_steps=5,
            per_device_train_batch_size=4,
            report_to=[],
            use_cpu=True,
            disable_tqdm=True,
        ),
        train_dataset=Words(),
        callbacks=[Muster(reporter)],
    )
    trainer.train(resume_from_checkpoint=point.path)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkpoints")
    parser.add_argument("--run", default="demo")
    parser.add_argument("--attempt", required=True)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--save-every", type=int, default=10)
    return parser.parse_args()


if __name__ == "__main__":
    main()
