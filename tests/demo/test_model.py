"""The demo model learns, by the arithmetic that it claims, and its state can be packed and unpacked."""

from __future__ import annotations

import math

import numpy as np

from deploy.demo.data import SAMPLES, DataLoader, DataSet, noisy_batch, rank_generators
from deploy.demo.model import SIZES, WORLD_SIZE, Model, parameter_shapes, rank_rows
from deploy.demo.training import pack_generator, unpack_generator


def loss_of(model: Model, inputs: np.ndarray, targets: np.ndarray) -> float:
    difference = model._forward(inputs)[-1].astype(np.float64) - targets
    return float(np.mean(difference * difference))


def test_the_demo_checkpoint_is_at_least_256_mib() -> None:
    parameters = sum(math.prod(shape) for shape in parameter_shapes(SIZES["demo"]).values())
    assert 3 * 4 * parameters >= 256 * 1024 * 1024


def test_every_parameter_divides_by_the_ranks() -> None:
    for size in SIZES.values():
        assert all(shape[0] % WORLD_SIZE == 0 for shape in parameter_shapes(size).values())


def test_the_gradients_are_those_of_finite_differences() -> None:
    model = Model(SIZES["tiny"])
    model.initialize(7)
    data = DataSet(SIZES["tiny"], 7)
    inputs, targets = data.inputs[:16], data.targets[:16]
    activations = model._forward(inputs)
    difference = activations[-1] - targets
    model._backward(activations, difference * (2.0 / difference.size))
    for name, gradient in model.gradients.items():
        position = np.unravel_index(int(np.argmax(np.abs(gradient))), gradient.shape)
        parameter = model.parameters[name]
        before = parameter[position]
        losses = []
        for change in (0.01, -0.01):
            parameter[position] = before + np.float32(change)
            losses.append(loss_of(model, inputs, targets))
        parameter[position] = before
        numeric = (losses[0] - losses[1]) / 0.02
        assert math.isclose(numeric, float(gradient[position]), rel_tol=0.02), name


def test_an_update_is_adams() -> None:
    model = Model(SIZES["tiny"])
    model.initialize(7)
    name = "layers.0.weight"
    start = model.parameters[name].astype(np.float64)
    exp_avg = exp_avg_sq = np.zeros_like(start)
    generator = np.random.default_rng(1)
    for step in (1, 2, 3):
        for gradient in model.gradients.values():
            gradient[:] = generator.standard_normal(gradient.shape)
        model._update()
        gradient64 = model.gradients[name].astype(np.float64)
        exp_avg = 0.9 * exp_avg + 0.1 * gradient64
        exp_avg_sq = 0.999 * exp_avg_sq + 0.001 * gradient64**2
        start -= 1e-4 * (exp_avg / (1 - 0.9**step)) / (np.sqrt(exp_avg_sq / (1 - 0.999**step)) + 1e-8)
    np.testing.assert_allclose(model.parameters[name], start, rtol=1e-5, atol=1e-7)


def test_the_model_learns() -> None:
    model = Model(SIZES["tiny"])
    model.initialize(7)
    data, loader, generators = DataSet(SIZES["tiny"], 7), DataLoader(7), rank_generators(7)
    losses = [model.train_step(*noisy_batch(data, loader.next_indices(), generators)) for _ in range(1500)]
    assert np.mean(losses[-50:]) < 0.5 * np.mean(losses[:50])


def test_ranks_own_every_row_exactly_once() -> None:
    array = np.arange(64 * 3).reshape(64, 3)
    assert np.array_equal(np.concatenate([rank_rows(array, rank) for rank in range(WORLD_SIZE)]), array)


def test_an_epoch_sees_every_sample_once_and_the_next_in_another_order() -> None:
    loader = DataLoader(7)
    batches = SAMPLES // 16
    first = np.concatenate([loader.next_indices().reshape(-1) for _ in range(batches)])
    second = np.concatenate([loader.next_indices().reshape(-1) for _ in range(batches)])
    assert np.array_equal(np.sort(first), np.arange(SAMPLES))
    assert np.array_equal(np.sort(second), np.arange(SAMPLES))
    assert not np.array_equal(first, second)
    assert loader.epoch == 1


def test_a_restored_loader_gives_the_batches_that_would_have_come() -> None:
    loader, restored = DataLoader(7), DataLoader(7)
    for _ in range(SAMPLES // 16 + 3):
        loader.next_indices()
    restored.restore(loader.epoch, loader.offset)
    assert np.array_equal(restored.next_indices(), loader.next_indices())


def test_a_generator_that_was_packed_midway_continues_where_it_was() -> None:
    generator = np.random.Generator(np.random.PCG64(5))
    generator.integers(0, 10, dtype=np.uint32)  # leaves half of a 64-bit word for the next call
    other = np.random.Generator(np.random.PCG64(6))
    unpack_generator(other, pack_generator(generator))
    assert (
        other.integers(0, 2**31, 5, dtype=np.uint32).tolist()
        == generator.integers(0, 2**31, 5, dtype=np.uint32).tolist()
    )
    assert np.array_equal(other.standard_normal(5), generator.standard_normal(5))
