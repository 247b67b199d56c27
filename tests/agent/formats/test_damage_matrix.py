"""Every real sample, damaged in every way, one file at a time: a scan names the file, or a reason is written down why
it cannot, and then the manifest does. A share of the cases runs always, chosen by a seed; all of them with ALL=1."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from muster_agent.formats.checkpoint import absolute_path
from muster_agent.formats.names import step_of_name

from tests.agent.formats.damage import DATA, age, copy_sample
from tests.agent.formats.damage_matrix import Case, Look, Sample, chosen

PAGE = (Path(__file__).parents[3] / "docs" / "formats.md").read_text(encoding="utf-8")
NOT_SAMPLES = frozenset({"hostile", "slurm", "torch_pickle", "README.md"})
SEEDS = (0, 1)
FEW = 7
"""Of a sample, where not all are tried: one of each kind."""


def places() -> list[str]:
    """The folders of one run each, below tests/data."""
    found = []
    for format_folder in sorted(one for one in DATA.iterdir() if one.name not in NOT_SAMPLES):
        below = sorted(one for one in format_folder.iterdir() if one.is_dir())
        loose = any(one.is_file() and one.suffix != ".md" for one in format_folder.iterdir())
        if loose or any(step_of_name(one.name) is not None for one in below):
            found.append(format_folder.name)
        else:
            found.extend(f"{format_folder.name}/{one.name}" for one in below)
    return found


class Reason(NamedTuple):
    """Why no scan can name the damage; `text` stands in docs/formats.md."""

    text: str
    holds: Callable[[Case, str, Path], bool]
    """Given the case, the checkpoint's format, and the file as it was."""


_EMPTY = "empty `.distcp`"


def _has_no_sums(path: Path) -> bool:
    """Whether nothing in the file is a sum of its values: it is no zip."""
    return path.read_bytes()[:2] != b"PK"


def _is_of_equal_layout(case: Case, path: Path) -> bool:
    other = path.parent / os.path.relpath(case.other, os.path.dirname(case.file))
    return path.stat().st_size == other.stat().st_size


MARKERS = frozenset({"trainer_state.json", ".metadata", "metadata.json", "common.pt", "commit_success.txt", "latest"})
REASONS = (
    Reason(
        "where the format has no check sum of values",
        lambda case, word, path: case.kind == "zero" and (word == "bytecheckpoint" or _has_no_sums(path)),
    ),
    Reason(
        "two files of equal layout were exchanged",
        lambda case, _, path: case.kind == "swap" and _is_of_equal_layout(case, path),
    ),
    Reason(
        "names of the ranks' files mean nothing to a restart",
        lambda case, format_word, _: case.kind == "swap" and format_word == "dcp_hf",
    ),
    Reason(
        "chunks of one zarr array",
        lambda case, _, path: case.kind == "swap" and path.name.replace(".", "").isdecimal(),
    ),
    Reason(
        "states of ranks that do not name themselves",
        lambda case, format_word, _: case.kind == "swap" and format_word in ("nvrx_local", "bytecheckpoint"),
    ),
    Reason(
        "a file of state that an earlier step left",
        lambda case, _, path: case.kind == "stale" and path.name not in MARKERS,
    ),
    Reason(
        "Bytes behind the end of an OCDBT data file",
        lambda case, format_word, path: case.kind == "extend" and path.parent.name == "d",
    ),
    Reason(
        "Files that a script may leave out",
        lambda case, _, path: case.kind == "delete" and path.name in ("generation_config.json", "scheduler.bin"),
    ),
    Reason(
        _EMPTY,
        lambda case, _, path: case.kind == "delete" and path.suffix == ".distcp" and not path.stat().st_size,
    ),
    Reason(
        "a mark of Orbax that nothing beside it tells of",
        lambda case, format_word, path: (
            case.kind == "delete"
            and format_word == "orbax"
            and path.name in ("commit_success.txt", "_CHECKPOINT_METADATA")
        ),
    ),
)


def reason_for(sample: Sample, case: Case) -> Reason | None:
    shard_map = sample.whole[case.checkpoint]
    path = Path(absolute_path(shard_map, case.file))
    return next((one for one in REASONS if one.holds(case, shard_map.format, path)), None)


def unexplained(sample: Sample, cases: list[Case], seed: int) -> list[str]:
    """Cases that a scan does not name without a reason, and those that not even the manifest tells."""
    wrong = []
    for case in cases:
        seen = sample.look(case, seed)
        if seen is None or seen.named is Look.SCAN:
            continue
        if seen.named is Look.NONE or reason_for(sample, case) is None:
            where = os.path.relpath(case.checkpoint, sample.place)
            what = f"{case.kind} {where} {case.file} {os.path.basename(case.other)}"
            wrong.append(f"{what}: named by {seen.named.name}, noticed {seen.is_noticed}")
    return wrong


def sample_of(name: str, to: Path) -> Sample:
    place = copy_sample(name, to)
    age(place)
    return Sample(place)


@pytest.mark.parametrize("name", places())
def test_damage_to_a_file_chosen_by_chance_is_named_or_has_a_reason(name: str, tmp_path: Path) -> None:
    sample = sample_of(name, tmp_path)
    assert unexplained(sample, chosen(list(sample.cases()), FEW, seed=len(name)), seed=0) == []


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", places())
def test_damage_to_any_file_is_named_or_has_a_reason(name: str, seed: int, tmp_path: Path) -> None:
    sample = sample_of(name, tmp_path)
    assert unexplained(sample, list(sample.cases()), seed) == []


@pytest.mark.parametrize("reason", [one.text for one in REASONS])
def test_what_no_scan_can_know_is_written_down(reason: str) -> None:
    assert " ".join(reason.split()) in " ".join(PAGE.split())


def test_no_sample_is_left_out_of_the_matrix(tmp_path: Path) -> None:
    """Samples of every format that there are real files of are tried."""
    formats = {one.format for name in places() for one in sample_of(name, tmp_path / name).whole.values()}
    assert {"dcp", "deepspeed", "megatron_dist", "orbax", "hf_trainer", "safetensors", "keras", "gguf"} <= formats
    assert len(formats) >= 20
