"""Malformed headers, indexes, states and archives of DeepSpeed and Hugging Face layouts: findings, never an exception.

`make fuzz` runs the same tests with many more examples (MUSTER_FUZZ_EXAMPLES).
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from muster_agent.formats.base import ShardMap, Status
from muster_agent.formats.detect import read_checkpoint

from tests.agent.formats.fuzz import examples

DATA = Path(__file__).parents[2] / "data"
BOUND_MS = 10_000
MODEL = (DATA / "deepspeed/zero1-bf16/global_step4/mp_rank_00_model_states.pt").read_bytes()
OPTIM = (DATA / "deepspeed/zero1-bf16/global_step4/bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt").read_bytes()
TRAINER = DATA / "huggingface/trainer-single/checkpoint-9"
ARGUMENTS = (TRAINER / "training_args.bin").read_bytes()
STATE = (TRAINER / "trainer_state.json").read_bytes()


def judged(name: str, files: dict[str, bytes]) -> ShardMap:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / name
        folder.mkdir()
        for file, data in files.items():
            (folder / file).write_bytes(data)
        found = read_checkpoint(folder, grace_seconds=0)
    assert found.status in (Status.COMPLETE, Status.UNKNOWN) or found.findings
    assert not any("reader failed" in one.detail for one in found.findings)
    return found


sizes = st.one_of(
    st.integers(-2, 40), st.integers(2**31 - 2, 2**31 + 2), st.integers(2**63 - 2, 2**64 + 2), st.floats(), st.none()
)
entries = st.one_of(
    st.fixed_dictionaries(
        {
            "dtype": st.one_of(st.sampled_from(["F32", "BF16", "F4", "I64", "F8_E4M3", "BOOL", "X9"]), st.integers()),
            "shape": st.one_of(st.lists(sizes, max_size=4), st.text(max_size=3)),
            "data_offsets": st.one_of(st.tuples(sizes, sizes), st.lists(sizes, max_size=3)),
        }
    ),
    st.dictionaries(st.text(max_size=12), st.one_of(st.integers(), st.text(max_size=4)), max_size=3),
    st.none(),
)
headers = st.dictionaries(st.one_of(st.text(max_size=8), st.just("__metadata__")), entries, max_size=5)


@settings(max_examples=examples(500), deadline=BOUND_MS, suppress_health_check=list(HealthCheck))
@given(headers, st.binary(max_size=80), st.integers(-9, 9), st.sampled_from([b"", b" ", b"\\0", b"{"]))
def test_malformed_safetensors_headers(header: dict[str, object], data: bytes, off: int, before: bytes) -> None:
    text = before + json.dumps(header, allow_nan=True).encode()
    length = max(0, len(text) + off) if off % 2 else len(text)
    judged("step-1", {"model.safetensors": length.to_bytes(8, "little") + text + data})


changes = st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(0, 255)), max_size=6)
cuts = st.one_of(st.none(), st.integers(0, 1 << 16))


def changed(data: bytes, spots: list[tuple[int, int]], cut: int | None) -> bytes:
    damaged = bytearray(data)
    for place, byte in spots:
        damaged[place % len(damaged)] = byte
    return bytes(damaged if cut is None else damaged[: cut % len(damaged)])


@settings(max_examples=examples(300), deadline=BOUND_MS, suppress_health_check=list(HealthCheck))
@given(changes, cuts, changes, cuts)
def test_malformed_deepspeed_archives(
    model: list[tuple[int, int]], model_cut: int | None, optim: list[tuple[int, int]], optim_cut: int | None
) -> None:
    files = {
        "mp_rank_00_model_states.pt": changed(MODEL, model, model_cut),
        "bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt": changed(OPTIM, optim, optim_cut),
    }
    judged("global_step4", files)


values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=12)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=6), inner, max_size=3)),
    max_leaves=8,
)
states = st.fixed_dictionaries(
    {}, optional={"global_step": values, "best_model_checkpoint": values, "log_history": values}
)
maps = st.dictionaries(st.text(max_size=6), st.one_of(st.text(max_size=12), values), max_size=4)


@settings(max_examples=examples(300), deadline=BOUND_MS, suppress_health_check=list(HealthCheck))
@given(st.one_of(states.map(lambda one: json.dumps(one).encode()), st.binary(max_size=60)), maps, changes, cuts)
def test_malformed_trainer_states_indexes_and_arguments(
    state: bytes, weight_map: dict[str, object], spots: list[tuple[int, int]], cut: int | None
) -> None:
    document = json.dumps({"weight_map": weight_map}).encode()
    files = {"trainer_state.json": state, "training_args.bin": changed(ARGUMENTS, spots, cut)}
    judged("checkpoint-9", {**files, "model.safetensors.index.json": document})
    judged("checkpoint-9", {**files, "pytorch_model.bin.index.json": document})


@settings(max_examples=examples(300), deadline=BOUND_MS, suppress_health_check=list(HealthCheck))
@given(changes, cuts)
def test_malformed_real_trainer_states(spots: list[tuple[int, int]], cut: int | None) -> None:
    judged(
        "checkpoint-9", {"trainer_state.json": changed(STATE, spots, cut), "scheduler.pt": b"", "optimizer.pt": MODEL}
    )
