from __future__ import annotations

import pytest
from muster_agent.formats.names import (
    counts_epochs_or_saves,
    is_set_aside,
    is_temporary,
    is_word_for_last,
    run_of_path,
    step_of_file,
    step_of_name,
    step_of_unfinished,
    unsafe_reason,
)


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("step-100", 100),
        ("step_100", 100),
        ("global_step7", 7),
        ("iter_0000300", 300),
        ("checkpoint-9", 9),
        ("100", 100),
        ("step-0", 0),
        ("step-100.backup", None),
        ("mystep-100", None),
        ("step-", None),
        ("step-" + "9" * 40, None),
        ("step-١٢", None),
        ("rank-3", None),
        ("epoch422", 422),
        ("global_step_12", 12),
        ("ckpt_00000007", 7),
        ("step-" + "9" * 18, 10**18 - 1),
        ("step-" + "9" * 19, None),
        ("step-12\n", None),
        ("epoch=0-step=6-train_loss=2428.96.ckpt", 6),
        ("epoch=0-step=6-v1.ckpt", 6),
        ("llama--val_loss=-2.10-epoch=1-step=100-consumed_samples=800.0-last", 100),
        ("llama--val_loss=2.10-step=100-consumed_samples=1.5e-05", 100),
        ("llama--step=100-last-unfinished", None),
        ("llama--step=100.ckpt.backup", None),
        ("llama--step=", None),
    ],
)
def test_a_folders_step_is_a_full_match(name: str, step: int | None) -> None:
    assert step_of_name(name) == step


@pytest.mark.parametrize(
    ("name", "step"),
    [("model-step-100.safetensors", 100), ("step_5.pt", 5), ("7.safetensors", 7), ("model.pt", None)]
    + [("ep0-ba10-rank3.pt", 10), ("ep0-ba10-rank{rank}.pt", 10), ("checkpoint_3_4500.pt", 4500)]
    + [("checkpoint_2_100-model_part-0-shard3.pt", 100), ("model_world_size_8_rank_0.pt", None), ("last.ckpt", None)],
)
def test_a_files_step_is_in_its_stem(name: str, step: int | None) -> None:
    assert step_of_file(name) == step


@pytest.mark.parametrize(
    "name",
    ["a.tmp", ".tmpAb3dE9", "5.orbax-checkpoint-tmp", "iter_1_local.dirty.pt", "x.partial"]
    + [".model.safetensors.aBc123", ".__1_0.distcp.x9Yz0Q", "w.bin.part", "w.bin.crdownload", "w.bin.aria2"]
    + ["w.bin.incomplete"],
)
def test_names_of_unfinished_things_are_known(name: str) -> None:
    assert is_temporary(name)


@pytest.mark.parametrize("name", ["model.safetensors", "step-5", "tmp-notes", ".metadata", ".state.pickle", "a.part1"])
def test_other_names_are_not_taken_for_unfinished(name: str) -> None:
    assert not is_temporary(name)


@pytest.mark.parametrize(
    "name", ["/a", "..", "a/../b", "./a", "a//b", "a\\b", "a\0", "", "C:a", None, 3, "x" * 2000, "\udcff"]
)
def test_names_that_must_not_be_joined(name: object) -> None:
    assert unsafe_reason(name) is not None


@pytest.mark.parametrize("name", ["a", "sub/a.safetensors", "模.safetensors", "..a"])
def test_names_that_may_be_joined(name: str) -> None:
    assert unsafe_reason(name) is None


@pytest.mark.parametrize(
    ("path", "run"),
    [
        ("/data/llama/step-100", "llama"),
        ("/data/checkpoints/demo-mlp/step-100", "demo-mlp"),
        ("/data/exp7/checkpoints/step-100", "exp7"),
        ("/data/exp7/outputs/Checkpoints/step-100", "exp7"),
        ("/data/exp7/weights/model-step-100.safetensors", "exp7"),
        ("/checkpoints/step-100", "checkpoints"),
        ("/outputs/ckpt/step-100", "ckpt"),
        ("/step-100", ""),
        ("/data/jobA/{rank}/iter_0000020_{rank}_local.pt", "jobA"),
        ("/data/exp7/checkpoints/ep0-ba10-rank{rank}.pt", "exp7"),
    ],
)
def test_a_run_is_named_by_the_nearest_folder_that_says_more_than_checkpoints(path: str, run: str) -> None:
    assert run_of_path(path) == run


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("20.orbax-checkpoint-tmp", 20),
        ("0.orbax-checkpoint-tmp-1703334121930256", 0),
        ("ckpt_00000007.orbax-checkpoint-tmp", 7),
        ("tmp-checkpoint-30", 30),
        ("checkpoint_1000.tmp-17", 1000),
        ("step-40", None),
        ("notes.tmp", None),
    ],
)
def test_a_temporary_name_says_which_step_it_is_for(name: str, step: int | None) -> None:
    assert step_of_unfinished(name) == step


@pytest.mark.parametrize("name", ["epoch3", "epoch_12.pt", "Epoch-1"])
def test_epochs_are_told_from_steps(name: str) -> None:
    assert (
        counts_epochs_or_saves(name)
        and not counts_epochs_or_saves("step-3")
        and not counts_epochs_or_saves("epoch=1-step=3.ckpt")
    )


@pytest.mark.parametrize("name", ["step-100.backup", "checkpoint-5_old", "step-5.bak2", "step-7-corrupt"])
def test_what_was_set_aside_says_so_in_its_name(name: str) -> None:
    assert is_set_aside(name) and step_of_name(name) is None


@pytest.mark.parametrize(
    "name",
    ["Copy of checkpoint-100", "checkpoint-100 (1)", "checkpoint-100 - Copy", "checkpoint-100 copy 2", "step_5 (2).pt"],
)
def test_second_copies_as_desktops_name_them_are_set_aside(name: str) -> None:
    assert is_set_aside(name) and step_of_name(name) is None


@pytest.mark.parametrize(
    "name", ["step-100", "my run 100", "step-5-copying", "gold", "checkpoint-5", "threshold", "robot-copycat"]
)
def test_ordinary_names_are_not_taken_for_set_aside(name: str) -> None:
    assert not is_set_aside(name)


@pytest.mark.parametrize("name", ["last.ckpt", "last-v1.ckpt", "latest-rank0.pt", "step_latest", "model_last.pt"])
def test_words_for_the_latest_are_whole_words(name: str) -> None:
    assert is_word_for_last(name)
    assert not any(map(is_word_for_last, ("blast.ckpt", "lastly", "step-5", "llama--step=5-last")))
