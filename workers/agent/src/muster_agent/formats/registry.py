"""Which reader a place belongs to: ordered tables, the most specific format first. A folder that no reader claims may
still be a checkpoint of a format that this version does not know: it is listed as `unknown`, never left out."""

from __future__ import annotations

from muster_agent.formats import (
    accelerate,
    bytecheckpoint,
    colossalai,
    dcp,
    dcp_hf,
    deepspeed,
    deepspeed_universal,
    fairseq2,
    foreign,
    gguf,
    hf_trainer,
    lightning,
    megatron_dist,
    megatron_legacy,
    megatron_wrapped,
    megatron_zarr,
    nemo,
    nemo_archive,
    nemo_ranks,
    nvrx_local,
    orbax,
    parts,
    rank_named,
    safetensors,
    safetensors_folder,
    safetensors_ranked,
    t5x,
    torch_save,
    torchsnapshot,
    torchtitan,
    torchtune,
)
from muster_agent.formats.draft import Draft
from muster_agent.formats.folder import Folder
from muster_agent.formats.hf_state import is_companion_name
from muster_agent.formats.names import is_temporary, step_of_name
from muster_agent.formats.reader import Family, FamilyFormat, FileFormat, FolderFormat

FOLDER_FORMATS: tuple[FolderFormat, ...] = (
    FolderFormat(orbax.FORMAT, orbax.claims, orbax.read, orbax.owns),
    FolderFormat(hf_trainer.FORMAT, hf_trainer.claims, hf_trainer.read, hf_trainer.owns),
    FolderFormat(accelerate.FORMAT, accelerate.claims, accelerate.read, accelerate.owns),
    FolderFormat(colossalai.FORMAT, colossalai.claims, colossalai.read),
    FolderFormat(t5x.FORMAT, t5x.claims, t5x.read, t5x.owns),
    FolderFormat(fairseq2.FORMAT, fairseq2.claims, fairseq2.read),
    FolderFormat(deepspeed_universal.FORMAT, deepspeed_universal.claims, deepspeed_universal.read),
    FolderFormat(deepspeed.FORMAT, deepspeed.claims, deepspeed.read),
    FolderFormat(megatron_zarr.FORMAT, megatron_zarr.claims, megatron_zarr.read),
    FolderFormat(megatron_dist.FORMAT, megatron_dist.claims, megatron_dist.read),
    FolderFormat(megatron_legacy.FORMAT, megatron_legacy.claims, megatron_legacy.read),
    FolderFormat(megatron_wrapped.FORMAT, megatron_wrapped.claims, megatron_wrapped.read),
    FolderFormat(nemo.FORMAT, nemo.claims, nemo.read),
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
    steps = {one for one in folder.folders if step_of_name(one) is not None and not one.isdecimal()}
    claimed = claim(folder) if steps else None
    return bool(steps - set(claimed.owns(folder) if claimed else ()))


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
