"""The closed table of finding codes: how bad each one is, what it means, and the action that cures it.

Every `Finding` is made by `finding()`, so a code that is not in the table cannot reach a user. docs/findings.md is this
table for readers, and a test holds the two together.
"""

from __future__ import annotations

from typing import NamedTuple

from muster_agent.formats.base import Finding, Severity

_DAMAGE, _WARNING, _NOTE = Severity.DAMAGE, Severity.WARNING, Severity.NOTE


class Code(NamedTuple):
    severity: Severity
    meaning: str
    cure: str


_OLDER = "resume from an older complete step (`muster resume-point` names it)"

CODES: dict[str, Code] = {
    # -- bytes of single shards --------------------------------------------------------------------------------------
    "shard_missing": Code(
        _DAMAGE,
        "A file that the checkpoint's metadata promises is not there.",
        f"Copy the file back from another placement, or {_OLDER}.",
    ),
    "shard_empty": Code(
        _DAMAGE,
        "A file that must hold data has 0 bytes.",
        f"Copy the file back from another placement, or {_OLDER}; check that the file system is not full.",
    ),
    "shard_truncated": Code(
        _DAMAGE,
        "A file is shorter than its own header or the metadata says.",
        f"Copy the file back from another placement, or {_OLDER}; check for a full disk at the time of saving.",
    ),
    "shard_oversized": Code(
        _DAMAGE,
        "A file is longer than its own header or the metadata says.",
        f"Find out what wrote to the file after the save; copy it back from another placement, or {_OLDER}.",
    ),
    "shard_orphaned": Code(
        _WARNING,
        "A file looks like a shard, but the metadata does not use it: usually left by a save with another world size.",
        "Loading ignores it; remove it once the checkpoint is verified, and save each step into a folder of its own.",
    ),
    "digest_mismatch": Code(
        _DAMAGE,
        "Bytes differ from a digest that was recorded when the checkpoint was saved or sealed.",
        f"Copy the shard from a placement that verifies, or {_OLDER}; then look at the storage for errors.",
    ),
    "changed_since_sealing": Code(
        _WARNING,
        "A file's time of change differs from the one sealed, so the seal no longer speaks for these bytes.",
        "Run `muster verify`: if every byte is equal, only the time changed; if the save was repeated, seal it again.",
    ),
    "sparse_hole": Code(
        _WARNING,
        "A range of the file was never written and reads as zeros; after a power loss that is lost data.",
        f"Where it was sealed, run `muster verify`; else compare the file with another placement, or {_OLDER}.",
    ),
    # -- metadata ----------------------------------------------------------------------------------------------------
    "metadata_missing": Code(
        _DAMAGE,
        "The file that says what belongs to the checkpoint is not there, so nothing proves that it is whole.",
        f"Do not resume from it: {_OLDER}; remove this folder when no save is running.",
    ),
    "metadata_unreadable": Code(
        _DAMAGE,
        "The metadata, an index or a file header is there but cannot be understood.",
        f"Copy the file back from another placement, or {_OLDER}.",
    ),
    "metadata_unsafe": Code(
        _DAMAGE,
        "The metadata asks for code that no checkpoint needs; it was not run.",
        "Do not load this checkpoint with any tool that unpickles; find out who wrote it and restore it.",
    ),
    "custom_globals": Code(
        _NOTE,
        "A file holds objects of classes that are not PyTorch's, so loading it needs, and trusts, somebody's code.",
        "Nothing need be done where you know the training script; else load it only with `weights_only=True`.",
    ),
    "path_unsafe": Code(
        _DAMAGE,
        "A name leads out of the checkpoint's folder, or cannot be a file name; it was not opened.",
        "Do not load this checkpoint; find out who wrote the name, and restore the metadata from another placement.",
    ),
    "ranges_overlap": Code(
        _DAMAGE,
        "Two tensors claim the same bytes of a file.",
        f"The file or its metadata is damaged: copy both back from another placement, or {_OLDER}.",
    ),
    "ranges_gap": Code(
        _DAMAGE,
        "Part of a tensor, or of a file, is described by nothing.",
        f"A rank's part is missing: copy its files back from another placement, or {_OLDER}.",
    ),
    "size_total_mismatch": Code(
        _WARNING,
        "The total size recorded in the index differs from the sum of the tensors.",
        "Loading ignores the total; save again with a current writer, or correct `total_size` in the index.",
    ),
    "world_size_mismatch": Code(
        _DAMAGE,
        "The files belong to saves with different numbers of ranks.",
        f"Keep the files of one save only (the metadata names them), or {_OLDER}.",
    ),
    "step_mismatch": Code(
        _WARNING,
        "The folder's name and the state inside it name different steps.",
        "Training would continue at the step inside; rename the folder to match, or find out who copied it.",
    ),
    # -- the framework's own pointer ---------------------------------------------------------------------------------
    "pointer_missing": Code(
        _WARNING,
        "The framework's file that names the latest checkpoint is not there.",
        "Write it again with the step that `muster resume-point` names, or pass that step to the launcher.",
    ),
    "pointer_stale": Code(
        _WARNING,
        "The framework's pointer names an older step than the newest complete one.",
        "Check whether the newer save finished on all ranks; if it did, set the pointer to it.",
    ),
    "pointer_dangling": Code(
        _DAMAGE,
        "The framework's pointer names a checkpoint that is not there.",
        "Set the pointer to the step that `muster resume-point` names before the next restart.",
    ),
    "pointer_unreadable": Code(
        _DAMAGE,
        "The framework's pointer is empty or does not name a step.",
        "Write it again with the step that `muster resume-point` names; some launchers exit quietly on an empty one.",
    ),
    # -- saves that did not end --------------------------------------------------------------------------------------
    "uncommitted": Code(
        _WARNING,
        "Every byte seems to be there, but the save never wrote its commit marker.",
        "Do not resume from it without checking that all ranks finished; resume from an older complete step.",
    ),
    "in_progress": Code(
        _NOTE,
        "A save seems to be running: the newest change is younger than the grace period.",
        "Look again after the grace period; if it is still not complete, the save was abandoned.",
    ),
    "temporary_left": Code(
        _WARNING,
        "A temporary file or folder of a save that did not end lies here.",
        "Remove it when no save is running; it takes space and is never loaded.",
    ),
    "multipart_incomplete": Code(
        _WARNING,
        "An upload to object storage was begun and never finished.",
        "Abort the upload, or set a life-cycle rule that does: its parts are stored and paid for.",
    ),
    # -- what the checkpoint holds -----------------------------------------------------------------------------------
    "optimizer_missing": Code(
        _WARNING,
        "There is no optimizer state: good for evaluation, not a point to resume training from.",
        "Save the optimizer state too, or resume from a step that has it.",
    ),
    "rng_missing": Code(
        _WARNING,
        "There is no random-number state: training resumes, but not bit for bit.",
        "Save the state of every random generator with the checkpoint.",
    ),
    "dataloader_missing": Code(
        _WARNING,
        "There is no data-loader state: after resuming, samples may repeat or be skipped.",
        "Save the position of the data loader with the checkpoint.",
    ),
    "state_shrank": Code(
        _WARNING,
        "The checkpoint holds fewer tensors or bytes than the steps around it.",
        "Compare it with the step before; if nothing was removed on purpose, resume from that one.",
    ),
    "duplicate_step": Code(
        _WARNING,
        "Two checkpoints of one run claim the same step.",
        "Find out which one training should continue from, and move the other out of the run's folder.",
    ),
    "second_lineage": Code(
        _WARNING,
        "Under one run's name lie checkpoints of two different histories of training.",
        "Keep each training's checkpoints in a folder with a name of its own; then scan again.",
    ),
    "stale_save": Code(
        _DAMAGE,
        "Two steps hold bit-identical trained state: the save wrote old values.",
        "Resume from the older of the two, and check what the training job hands to its save call.",
    ),
    # -- could not look ----------------------------------------------------------------------------------------------
    "link_broken": Code(
        _DAMAGE,
        "A symbolic link leads nowhere, or in a circle.",
        "Mount the storage that it points to, or replace the link with the file.",
    ),
    "link_escapes_root": Code(
        _WARNING,
        "A symbolic link leads out of the folder that was to be inspected; it was not followed.",
        "Inspect the place it points to instead, or copy the data into this folder.",
    ),
    "permission_denied": Code(
        _WARNING,
        "This user may not read the file or folder, so nothing is known about it.",
        "Run as a user who may read it, or give this one read access (safetensors 0.8 writes files with mode 0600).",
    ),
    "listing_failed": Code(
        _WARNING,
        "The storage did not answer, so nothing is known about what lies here.",
        "Check the mount and its server, then run again; nothing is taken for gone.",
    ),
    "archived": Code(
        _NOTE,
        "The data lies in an archive class and must be restored before it can be read.",
        "Ask the object store to restore it, and allow hours; or choose a copy on another tier.",
    ),
    "format_unknown": Code(
        _NOTE,
        "No reader of this version understands the format, so nothing is known about the bytes.",
        "Nothing need be done: it is listed and left alone. A newer version may read it.",
    ),
    # -- the shape of the shards -------------------------------------------------------------------------------------
    "monolithic": Code(
        _WARNING,
        "All state is in one file, so a restart reads it through one stream.",
        "Save one shard per rank, so that every rank reads its own part at the same time.",
    ),
    "rank_skew": Code(
        _WARNING,
        "One rank has much more to read than the others, and a restart is as slow as its slowest rank.",
        "Balance the shards over the ranks.",
    ),
    "shared_shard": Code(
        _WARNING,
        "Several ranks read from one file, and contend for it.",
        "Save one shard per rank.",
    ),
    "stripe_narrow": Code(
        _WARNING,
        "A large file lies on few storage targets, which limits how fast it can be read.",
        "Set a wider stripe on the run's folder before the next save.",
    ),
    "target_full": Code(
        _WARNING,
        "A storage target has less room than one file of the last save put onto one, so the next save may fail there.",
        "Move files off that target (`lfs_migrate`), or set a stripe or pool that leaves it out, before the next save.",
    ),
}


def finding(
    code: str,
    *,
    path: str,
    detail: str,
    severity: Severity | None = None,
    cure: str | None = None,
    begin_byte: int | None = None,
    end_byte: int | None = None,
    tensor: str | None = None,
) -> Finding:
    """One finding of a code in the table; `severity` and `cure` only where the case says more than the code.

    Raises KeyError for a code that is not in the table.
    """
    entry = CODES[code]
    return Finding(
        code=code,
        severity=severity or entry.severity,
        path=path,
        detail=detail,
        cure=cure or entry.cure,
        begin_byte=begin_byte,
        end_byte=end_byte,
        tensor=tensor,
    )
