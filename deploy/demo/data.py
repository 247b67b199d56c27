"""A deterministic synthetic data set and the loader state that a resumed run needs to see the same batches."""

from __future__ import annotations

import numpy as np

from deploy.demo.model import WORLD_SIZE, ModelSize

SAMPLES = 4096
SAMPLES_PER_RANK = 4
NOISE = 0.05


class DataSet:
    """Inputs (SAMPLES, in) and targets (SAMPLES, out): a fixed random teacher; the same seed gives the same data."""

    def __init__(self, size: ModelSize, seed: int) -> None:
        generator = np.random.default_rng([seed, 1])
        fan_in, fan_out = size.widths[0], size.widths[-1]
        self.inputs = generator.standard_normal((SAMPLES, fan_in), dtype=np.float32)
        teacher = generator.standard_normal((fan_in, fan_out), dtype=np.float32)
        self.targets = np.tanh(self.inputs @ teacher * np.float32(fan_in**-0.5))


class DataLoader:
    """Walks the data in a new order every epoch; its whole state is (epoch, offset)."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self.epoch = 0
        self.offset = 0
        self._order = self._shuffled()

    def restore(self, epoch: int, offset: int) -> None:
        """Continue at `offset` samples into `epoch`."""
        self.epoch, self.offset = epoch, offset
        self._order = self._shuffled()

    def next_indices(self, rank_count: int = WORLD_SIZE) -> np.ndarray:
        """Sample indices of the next global batch, (rank_count, SAMPLES_PER_RANK)."""
        batch = rank_count * SAMPLES_PER_RANK
        if self.offset + batch > SAMPLES:
            self.restore(self.epoch + 1, 0)
        indices: np.ndarray = self._order[self.offset : self.offset + batch].reshape(rank_count, SAMPLES_PER_RANK)
        self.offset += batch
        return indices

    def _shuffled(self) -> np.ndarray:
        order: np.ndarray = np.random.default_rng([self._seed, 2, self.epoch]).permutation(SAMPLES)
        return order


def rank_generators(seed: int) -> list[np.random.Generator]:
    """One random stream per rank, for the noise on its inputs."""
    return [np.random.Generator(np.random.PCG64([seed, 3, rank])) for rank in range(WORLD_SIZE)]


def noisy_batch(
    data: DataSet, indices: np.ndarray, generators: list[np.random.Generator]
) -> tuple[np.ndarray, np.ndarray]:
    """The global batch: every rank's samples, with noise from that rank's stream; (batch, in) and (batch, out)."""
    inputs = [
        data.inputs[rows] + NOISE * generator.standard_normal((len(rows), data.inputs.shape[1]), dtype=np.float32)
        for rows, generator in zip(indices, generators, strict=True)
    ]
    return np.concatenate(inputs), data.targets[indices.reshape(-1)]
