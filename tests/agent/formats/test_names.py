from __future__ import annotations

import pytest
from muster_agent.formats.names import is_temporary, run_of_path, step_of_file, step_of_name, unsafe_reason


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
    ],
)
def test_a_folders_step_is_a_full_match(name: str, step: int | None) -> None:
    assert step_of_name(name) == step


@pytest.mark.parametrize(
    ("name", "step"), [("model-step-100.safetensors", 100), ("step_5.pt", 5), ("7.safetensors", 7), ("model.pt", None)]
)
def test_a_files_step_is_in_its_stem(name: str, step: int | None) -> None:
    assert step_of_file(name) == step


@pytest.mark.parametrize(
    "name", ["a.tmp", ".tmpAb3dE9", "5.orbax-checkpoint-tmp", "iter_1_local.dirty.pt", "x.partial"]
)
def test_names_of_unfinished_things_are_known(name: str) -> None:
    assert is_temporary(name)


@pytest.mark.parametrize("name", ["model.safetensors", "step-5", "tmp-notes", ".metadata"])
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
    ],
)
def test_a_run_is_named_by_the_nearest_folder_that_says_more_than_checkpoints(path: str, run: str) -> None:
    assert run_of_path(path) == run
