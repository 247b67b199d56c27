"""A multi-layer perceptron with Adam, its parameters and optimizer state sharded by rows over the ranks.

All arrays are float32 and are updated in place; a rank's shard is a view of its rows, so saving copies nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

WORLD_SIZE = 4
LEARNING_RATE = 1e-4
BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8
BLOCK_ELEMENTS = 32 * 1024
"""Adam works in blocks that fit the CPU's second-level cache, so each array crosses the memory bus once a step."""


@dataclass(frozen=True)
class ModelSize:
    """Widths of the layers, input first; every width after the input divides by WORLD_SIZE."""

    name: str
    widths: tuple[int, ...]


SIZES = {
    size.name: size
    for size in (
        ModelSize("tiny", (32, 64, 64, 16)),
        # 22.7 million parameters; with both Adam moments 260 MiB in float32.
        ModelSize("demo", (768, 2048, 2048, 2048, 2048, 2048, 2048, 64)),
    )
}


def parameter_shapes(size: ModelSize) -> dict[str, tuple[int, ...]]:
    """Name -> shape of every parameter: weights (out, in), biases (out,)."""
    shapes: dict[str, tuple[int, ...]] = {}
    for layer, (fan_in, fan_out) in enumerate(zip(size.widths, size.widths[1:], strict=False)):
        shapes[f"layers.{layer}.weight"] = (fan_out, fan_in)
        shapes[f"layers.{layer}.bias"] = (fan_out,)
    return shapes


def rank_rows(array: np.ndarray, rank: int) -> np.ndarray:
    """The rows of a parameter (or of its optimizer state) that `rank` owns, as a contiguous view."""
    rows = array.shape[0] // WORLD_SIZE
    return array[rank * rows : (rank + 1) * rows]


def _touched(shape: tuple[int, ...]) -> np.ndarray:
    """Zeros in memory that is really there: np.zeros leaves the page faults to whoever writes first."""
    array: np.ndarray = np.empty(shape, np.float32)
    array.fill(0)
    return array


class Model:
    """Parameters, gradients and both Adam moments, by parameter name; all zero until `initialize` or a load."""

    def __init__(self, size: ModelSize) -> None:
        self.size = size
        shapes = parameter_shapes(size)
        self.parameters: dict[str, np.ndarray] = {name: _touched(shape) for name, shape in shapes.items()}
        self.gradients: dict[str, np.ndarray] = {name: _touched(shape) for name, shape in shapes.items()}
        self.exp_avg: dict[str, np.ndarray] = {name: _touched(shape) for name, shape in shapes.items()}
        self.exp_avg_sq: dict[str, np.ndarray] = {name: _touched(shape) for name, shape in shapes.items()}
        self.optimizer_step = 0
        self._scratch: np.ndarray = np.empty(BLOCK_ELEMENTS, np.float32)

    def initialize(self, seed: int) -> None:
        """Fresh parameters for step 0."""
        generator = np.random.default_rng([seed, 0])
        for array in self.parameters.values():
            if array.ndim == 1:
                array[:] = 0
            else:
                array[:] = generator.standard_normal(array.shape, dtype=np.float32)
                array *= 1.0 / math.sqrt(array.shape[1])

    def train_step(self, inputs: np.ndarray, targets: np.ndarray) -> float:
        """One forward pass, backward pass and update. inputs: (batch, in); targets: (batch, out). Gives the loss."""
        activations = self._forward(inputs)
        difference = activations[-1] - targets
        loss = float(np.mean(difference * difference))
        self._backward(activations, difference * (2.0 / difference.size))
        self._update()
        return loss

    def _forward(self, inputs: np.ndarray) -> list[np.ndarray]:
        """The input and every layer's output; all layers but the last end in tanh."""
        activations = [inputs]
        layers = len(self.size.widths) - 1
        for layer in range(layers):
            output = activations[-1] @ self.parameters[f"layers.{layer}.weight"].T
            output += self.parameters[f"layers.{layer}.bias"]
            activations.append(output if layer == layers - 1 else np.tanh(output))
        return activations

    def _backward(self, activations: list[np.ndarray], gradient: np.ndarray) -> None:
        """Fill `gradients`, from the gradient of the loss by the last layer's output."""
        for layer in reversed(range(len(activations) - 1)):
            before = activations[layer]
            np.matmul(gradient.T, before, out=self.gradients[f"layers.{layer}.weight"])
            np.sum(gradient, axis=0, out=self.gradients[f"layers.{layer}.bias"])
            if layer:
                gradient = (gradient @ self.parameters[f"layers.{layer}.weight"]) * (1.0 - before * before)

    def _update(self) -> None:
        self.optimizer_step += 1
        for name, parameter in self.parameters.items():
            arrays = (parameter, self.gradients[name], self.exp_avg[name], self.exp_avg_sq[name])
            flat = [array.reshape(-1) for array in arrays]
            for begin in range(0, parameter.size, BLOCK_ELEMENTS):
                self._update_block(*(array[begin : begin + BLOCK_ELEMENTS] for array in flat))

    def _update_block(
        self, parameter: np.ndarray, gradient: np.ndarray, exp_avg: np.ndarray, exp_avg_sq: np.ndarray
    ) -> None:
        """Adam with bias correction, in place."""
        scratch = self._scratch[: parameter.size]
        np.multiply(gradient, 1.0 - BETA1, out=scratch)
        exp_avg *= BETA1
        exp_avg += scratch
        np.multiply(gradient, gradient, out=scratch)
        scratch *= 1.0 - BETA2
        exp_avg_sq *= BETA2
        exp_avg_sq += scratch
        np.sqrt(exp_avg_sq, out=scratch)
        scratch *= 1.0 / math.sqrt(1.0 - BETA2**self.optimizer_step)
        scratch += EPSILON
        np.divide(exp_avg, scratch, out=scratch)
        scratch *= LEARNING_RATE / (1.0 - BETA1**self.optimizer_step)
        parameter -= scratch
