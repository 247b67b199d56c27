"""The training loop of the demo: step, report, save; and the way back from a checkpoint."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from muster_agent.hooks import RunReporter

from deploy.demo import checkpointing
from deploy.demo.checkpointing import CheckpointReader, UnusableCheckpoint
from deploy.demo.data import DataLoader, DataSet, noisy_batch, rank_generators
from deploy.demo.model import SIZES, WORLD_SIZE, Model, rank_rows

MASK_64 = 2**64 - 1


@dataclass(frozen=True, kw_only=True)
class TrainingOptions:
    """`until_step` None trains until stopped; `save_every` 0 saves nothing; `resume_path` None starts at step 0."""

    run_path: Path
    seed: int
    size: str
    until_step: int | None
    save_every: int
    keep: int
    resume_path: Path | None
    min_step_seconds: float


class Trainer:
    """The whole state of a run: model, optimizer, random streams, data position and step."""

    def __init__(self, size: str, seed: int) -> None:
        self.size = size
        self.seed = seed
        self.step = 0
        self.model = Model(SIZES[size])
        self.data = DataSet(SIZES[size], seed)
        self.loader = DataLoader(seed)
        self.generators = rank_generators(seed)

    def train_step(self) -> float:
        """Compute the next step; gives its loss."""
        inputs, targets = noisy_batch(self.data, self.loader.next_indices(), self.generators)
        loss = self.model.train_step(inputs, targets)
        self.step += 1
        return loss

    def metadata(self) -> dict[str, str]:
        return {"seed": str(self.seed), "size": self.size}

    def rank_state(self, rank: int) -> dict[str, np.ndarray]:
        """Everything `rank` owns, as tensors; parameters and moments are views."""
        model = self.model
        state = {f"model.{name}": rank_rows(array, rank) for name, array in model.parameters.items()}
        state |= {f"optimizer.exp_avg.{name}": rank_rows(array, rank) for name, array in model.exp_avg.items()}
        state |= {f"optimizer.exp_avg_sq.{name}": rank_rows(array, rank) for name, array in model.exp_avg_sq.items()}
        state["optimizer.step"] = np.array([model.optimizer_step], np.int64)
        state["rng.state"] = pack_generator(self.generators[rank])
        state["dataloader.position"] = np.array([self.loader.epoch, self.loader.offset], np.int64)
        return state

    def load_rank_state(self, rank: int, saved: dict[str, np.ndarray]) -> None:
        """Put a rank's saved state in place. Raises UnusableCheckpoint unless it fits this model exactly."""
        own = self.rank_state(rank)
        wrong = sorted(own.keys() ^ saved.keys()) or sorted(n for n in own if own[n].shape != saved[n].shape)
        if wrong:
            raise UnusableCheckpoint(f"rank {rank}: {wrong[0]} does not fit this model. Resume with the size it had.")
        for name, array in own.items():
            array[:] = saved[name]
        self.model.optimizer_step = int(saved["optimizer.step"][0])
        unpack_generator(self.generators[rank], saved["rng.state"])
        if rank == 0:
            self.loader.restore(*(int(value) for value in saved["dataloader.position"]))


def train(options: TrainingOptions, reporter: RunReporter, log: Callable[[str], None]) -> None:
    """Train until `until_step`, or until SIGTERM or SIGINT asks for an end after the step at hand.

    Raises UnusableCheckpoint when there is nothing sound to resume from at `resume_path`, OSError when a save fails.
    """
    stop = _StopRequest()
    trainer = _start(options, reporter, log)
    first = True
    while not stop.requested and (options.until_step is None or trainer.step < options.until_step):
        began = time.monotonic()
        if first:
            with reporter.phase("first_step"):
                loss = trainer.train_step()
        else:
            loss = trainer.train_step()
        first = False
        reporter.step(trainer.step, loss=loss)
        log(f"step {trainer.step} loss {loss!r}")
        if options.save_every and trainer.step % options.save_every == 0:
            _save(trainer, options, reporter, log)
        stop.wait(began + options.min_step_seconds - time.monotonic())


def _start(options: TrainingOptions, reporter: RunReporter, log: Callable[[str], None]) -> Trainer:
    """The trainer at step 0, or with the whole state of the checkpoint. Each phase is timed where it happens."""
    if options.resume_path is None:
        with reporter.phase("allocate"):
            trainer = Trainer(options.size, options.seed)
            trainer.model.initialize(options.seed)
        return trainer
    with reporter.phase("allocate"):
        reader = CheckpointReader(options.resume_path, world_size=WORLD_SIZE)
        reader.allocate()
        trainer = Trainer(options.size, options.seed)
    with reporter.phase("read"):
        reader.read()
    with reporter.phase("verify"):
        reader.verify()
    with reporter.phase("materialize"):
        _materialize(trainer, reader)
    reporter.resumed_from(trainer.step, options.resume_path)
    log(f"resumed from step {trainer.step} at {options.resume_path}")
    return trainer


def _materialize(trainer: Trainer, reader: CheckpointReader) -> None:
    for rank, (tensors, metadata) in enumerate(reader.tensors()):
        saved_by = {name: metadata.get(name) for name in trainer.metadata()}
        if saved_by != trainer.metadata():
            raise UnusableCheckpoint(
                f"{reader.path}: saved with {saved_by}, this run has {trainer.metadata()}. Give the same seed and size."
            )
        trainer.load_rank_state(rank, tensors)
    trainer.step = reader.step


def _save(trainer: Trainer, options: TrainingOptions, reporter: RunReporter, log: Callable[[str], None]) -> None:
    reporter.save_started(trainer.step)
    ranks = [trainer.rank_state(rank) for rank in range(WORLD_SIZE)]
    path = checkpointing.save(options.run_path, trainer.step, ranks, trainer.metadata())
    reporter.save_finished(trainer.step, path)
    log(f"saved step {trainer.step} at {path}")
    checkpointing.prune(options.run_path, keep=options.keep, loaded=options.resume_path)


def pack_generator(generator: np.random.Generator) -> np.ndarray:
    """A PCG64 generator's whole state as six uint64: state, increment (low, high each), and its half-used word."""
    state = generator.bit_generator.state
    words = [part for key in ("state", "inc") for part in _halves(int(state["state"][key]))]
    packed: np.ndarray = np.array([*words, state["has_uint32"], state["uinteger"]], np.uint64)
    return packed


def unpack_generator(generator: np.random.Generator, packed: np.ndarray) -> None:
    """Put the state that `pack_generator` gave into `generator`."""
    words = [int(word) for word in packed]
    generator.bit_generator.state = {
        "bit_generator": "PCG64",
        "state": {"state": words[0] | words[1] << 64, "inc": words[2] | words[3] << 64},
        "has_uint32": words[4],
        "uinteger": words[5],
    }


def _halves(value: int) -> tuple[int, int]:
    return value & MASK_64, value >> 64


class _StopRequest:
    """SIGTERM and SIGINT ask for an end after the step at hand; a save that has begun is finished."""

    def __init__(self) -> None:
        self.requested = False
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._request)

    def wait(self, seconds: float) -> None:
        """Pace the steps; ends early when asked to stop."""
        deadline = time.monotonic() + seconds
        while not self.requested and (left := deadline - time.monotonic()) > 0:
            time.sleep(min(left, 0.05))

    def _request(self, _number: int, _frame: object) -> None:
        self.requested = True
