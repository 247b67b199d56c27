"""Which reader a place belongs to: ordered tables, the most specific format first. A folder that no reader claims may
still be a checkpoint of a format that this version does not know: it is listed as `unknown`, never left out."""

from __future__ import annotations

from collections.abc import Iterator

from muster_agent.formats import (
    accelerate,
    basicsr,
    bytecheckpoint,
    colossalai,
    dcp,
    dcp_hf,
    deepspeed,
    deepspeed_universal,
    easylm,
    fairseq2,
    flax,
    foreign,
    gguf,
    hf_trainer,
    keras,
    levanter,
    lightning,
    megatron_dist,
    megatron_legacy,
    megatron_wrapped,
    megatron_zarr,
    nanotron,
    nemo,
    nemo_archive,
    nemo_ranks,
    neuronx,
    nvrx_local,
    orbax,
    parts,
    rank_named,
    safetensors,
    safetensors_folder,
    safetensors_ranked,
    t5x,
    tensorflow,
    torch_save,
    torchsnapshot,
    torchtitan,
    torchtune,
)
from muster_agent.formats.draft import Draft
from muster_agent.formats.folder import Folder
from muster_agent.formats.foreign import UNKNOWN_FORMAT as UNKNOWN
from muster_agent.formats.hf_state import is_companion_name
from muster_agent.formats.names import is_temporary, step_of_file, step_of_name
from muster_agent.formats.reader import Family, FamilyFormat, FileFormat, FolderFormat

FOLDER_FORMATS: tuple[FolderFormat, ...] = (
    FolderFormat(orbax.FORMAT, orbax.claims, orbax.read, orbax.owns),
    FolderFormat(hf_trainer.FORMAT, hf_trainer.claims, hf_trainer.read, hf_trainer.owns),
    FolderFormat(accelerate.FORMAT, accelerate.claims, accelerate.read, accelerate.owns),
    FolderFormat(colossalai.FORMAT, colossalai.claims, colossalai.read),
    FolderFormat(t5x.FORMAT, t5x.claims, t5x.read, t5x.owns),
    FolderFormat(levanter.FORMAT, levanter.claims, levanter.read, levanter.owns),
    FolderFormat(fairseq2.FORMAT, fairseq2.claims, fairseq2.read),
    FolderFormat(deepspeed_universal.FORMAT, deepspeed_universal.claims, deepspeed_universal.read),
    FolderFormat(deepspeed.FORMAT, deepspeed.claims, deepspeed.read),
    FolderFormat(megatron_zarr.FORMAT, megatron_zarr.claims, megatron_zarr.read),
    FolderFormat(megatron_dist.FORMAT, megatron_dist.claims, megatron_dist.read),
    FolderFormat(megatron_legacy.FORMAT, megatron_legacy.claims, megatron_legacy.read),
    FolderFormat(megatron_wrapped.FORMAT, megatron_wrapped.claims, megatron_wrapped.read),
    FolderFormat(nemo.FORMAT, nemo.claims, nemo.read),
    FolderFormat(nanotron.FORMAT, nanotron.claims, nanotron.read),
    FolderFormat(neuronx.FORMAT, neuronx.claims, neuronx.read),
    FolderFormat(bytecheckpoint.FORMAT, bytecheckpoint.claims, bytecheckpoint.read),
    FolderFormat(torchsnapshot.FORMAT, torchsnapshot.claims, torchsnapshot.read, torchsnapshot.owns),
    FolderFormat(lightning.FORMAT, lightning.claims, lightning.read_folder),
    FolderFormat(rank_named.VERL, rank_named.claims_verl, rank_named.read_verl),
    FolderFormat(foreign.UNKNOWN_FORMAT, foreign.claims, foreign.read),
    FolderFormat(dcp.FORMAT, dcp.claims, dcp.read_dcp),
    FolderFormat(safetensors.FORMAT, safetensors_ranked.claims, safetensors_ranked.read_ranked),
    FolderFormat(dcp_hf.FORMAT, dcp_hf.claims, dcp_hf.read_dcp_hf),
    FolderFormat(safetensors.FORMAT, safetensors_folder.claims, safetensors_folder.read_folder),
    FolderFormat(torch_save.FORMAT, torch_save.claims, torch_save.read_folder),
)

FAMILY_FORMATS: tuple[FamilyFormat, ...] = (
    FamilyFormat(torchtune.FORMAT, torchtune.families, torchtune.read_family),
    FamilyFormat(basicsr.FORMAT, basicsr.families, basicsr.read_family),
    FamilyFormat(tensorflow.FORMAT, tensorflow.families, tensorflow.read_family),
    FamilyFormat(nemo_ranks.FORMAT, nemo_ranks.families, nemo_ranks.read),
    FamilyFormat(nvrx_local.FORMAT, nvrx_local.families, nvrx_local.read_family),
    FamilyFormat(rank_named.COMPOSER, rank_named.composer_families, rank_named.read_composer),
    FamilyFormat(rank_named.FAIRSEQ, rank_named.fairseq_families, rank_named.read_fairseq),
    FamilyFormat(torch_save.FORMAT, rank_named.other_families, rank_named.read_other),
    FamilyFormat(gguf.FORMAT, gguf.families, gguf.read_family),
)

FILE_FORMATS: tuple[FileFormat, ...] = (
    FileFormat(safetensors.FORMAT, safetensors_folder.claims_file, safetensors_folder.read_single),
    FileFormat(nemo_archive.FORMAT, nemo_archive.claims_file, nemo_archive.read_file),
    FileFormat(keras.FORMAT, keras.claims_file, keras.read_file),
    FileFormat(easylm.FORMAT, easylm.claims_file, easylm.read_file),
    FileFormat(flax.FORMAT, flax.claims_file, flax.read_file),
    FileFormat(gguf.FORMAT, gguf.claims_file, gguf.read_file),
    FileFormat(lightning.FORMAT, lightning.claims_file, lightning.read_file),
    FileFormat(torch_save.FORMAT, torch_save.claims_file, torch_save.read_file),
    FileFormat(foreign.UNKNOWN_FORMAT, foreign.claims_file, foreign.read_file),
)

FORMATS: frozenset[str] = frozenset(
    one.name for table in (FOLDER_FORMATS, FAMILY_FORMATS, FILE_FORMATS) for one in table
) - {foreign.UNKNOWN_FORMAT} | {torchtitan.FORMAT}
"""What a reader may call a checkpoint; a DCP turns out to be one of TorchTitan when it is read."""


def claim(folder: Folder) -> FolderFormat | None:
    """The format of a folder that shows by what is in it that it is one checkpoint, or made of several; None where it
    does not."""
    return _claim_one(folder) or (_PARTS if _PARTS.claims(folder) else None)


def is_numbered_run(folder: Folder) -> bool:
    """Whether the folder's name is a number alone, as of a job or a date, and steps lie in it that are no part of one
    checkpoint: the number is no step then, whatever else lies there, such as the final model."""
    name = folder.path.rstrip("/").rpartition("/")[2]
    if not (name.isascii() and name.isdecimal()):
        return False
    claimed = claim(folder)
    steps = {one for one in folder.folders if step_of_name(one) is not None and not one.isdecimal()}
    if steps - set(claimed.owns(folder) if claimed else ()):
        return True
    named = set(_steps_below(folder, _MAX_RUN_DEPTH)) - {int(name)} if claimed is None else set()
    return len(named) > 1 or (bool(named) and len(name) >= _JOB_DIGITS and name[0] != "0")


def may_be_a_run(folder: Folder) -> bool:
    """Whether a folder whose name is a number alone has nothing but folders, in none of which a reader sees a part of
    a step: what lies deeper may be checkpoints of a job of that number."""
    name = folder.path.rstrip("/").rpartition("/")[2]
    is_number = name.isascii() and name.isdecimal() and name[0] != "0"
    if not is_number or folder.files or not folder.folders:
        return False
    return format_of_checkpoint(folder).name == UNKNOWN or _holds_one_folder_of_many(folder)


def _holds_one_folder_of_many(folder: Folder) -> bool:
    """Whether all lies in one sub-folder, as files of torch.save of which no reader says that they are one state."""
    if len(folder.folders) > 1 or claim(folder) is not None:
        return False
    inside = folder.sub(folder.folders[0])
    return len(torch_save.torch_names(inside)) > 1 and claim(inside) is None


_MAX_RUN_DEPTH = 3
_MAX_LOOKED_INTO = 64
_JOB_DIGITS = 5
"""Numbers as long as those of jobs, and dates."""


def _steps_below(folder: Folder, depth: int) -> Iterator[int]:
    """The steps that files of state, and folders, name by a word (`iter_1000.pth`), here and deeper."""
    files = (step_of_file(one) for one in folder.files if one.lower().endswith(_STATE_ENDINGS))
    folders = (step_of_name(one) for one in folder.folders if not one.isdecimal())
    yield from (step for step in (*files, *folders) if step is not None)
    for one in folder.folders[:_MAX_LOOKED_INTO] if depth else ():
        if one not in folder.links:
            yield from _steps_below(folder.sub(one), depth - 1)


_STATE_ENDINGS = (".pt", ".pth", ".ckpt", ".safetensors", ".tar", ".bin")


def _claim_one(folder: Folder) -> FolderFormat | None:
    return next((one for one in FOLDER_FORMATS if one.claims(folder)), None)


_PARTS = FolderFormat(
    parts.FORMAT,
    lambda folder: bool(parts.part_names(folder, _claim_one)),
    lambda folder, with_tensors: parts.read(folder, with_tensors, _claim_one),
    lambda folder: folder.folders,
)


def format_of_checkpoint(folder: Folder) -> FolderFormat:
    """The format of a folder that is known to be a checkpoint (by its name, or because it was asked for)."""
    claimed = claim(folder)
    if claimed is not None:
        return claimed
    if safetensors_folder.holds_weights(folder):
        return FolderFormat(safetensors.FORMAT, safetensors_folder.claims, safetensors_folder.read_folder)
    if torch_save.may_read(folder):
        return FolderFormat(torch_save.FORMAT, torch_save.claims, torch_save.read_folder)
    return FolderFormat(foreign.UNKNOWN_FORMAT, foreign.claims, foreign.read)


def claim_file(folder: Folder, name: str) -> FileFormat | None:
    """The format of a file that may be a checkpoint by itself, in a folder that is none."""
    if is_temporary(name) or is_companion_name(name):
        return None
    return next((one for one in FILE_FORMATS if one.claims(folder, name)), None)


def read_file(folder: Folder, name: str, with_tensors: bool) -> Draft:
    """The draft of a checkpoint that is the single file `name` of `folder`, whatever it holds."""
    claimed = next((one for one in FILE_FORMATS if one.claims(folder, name)), None)
    return (claimed.read if claimed else foreign.read_file)(folder, name, with_tensors)


def families_of(folder: Folder) -> list[tuple[FamilyFormat, Family]]:
    """The checkpoints that share this folder, each file and sub-folder in one of them only."""
    found: list[tuple[FamilyFormat, Family]] = []
    files: set[str] = set()
    folders: set[str] = set()
    for family_format in FAMILY_FORMATS:
        for family in family_format.families(folder):
            if files.isdisjoint(family.files) and folders.isdisjoint(family.folders):
                found.append((family_format, family))
        files.update(*(family.files for _, family in found))
        folders.update(*(family.folders for _, family in found))
    return found
