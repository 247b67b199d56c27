"""What names say: the step in a folder's name, leftovers, and names that must never be opened. Pure."""

from __future__ import annotations

import re
from functools import lru_cache

from muster_agent.manifest.model import FILE_MANIFEST_SUFFIX, VERDICT_NAME

_NUMBER = r"(\d{1,18})"
_STEP_NAME = re.compile(
    rf"(?:(?:global[-_]?step|step|iter|iteration|checkpoint|ckpt|epoch)[-_=]?)?{_NUMBER}", re.ASCII | re.IGNORECASE
)
_METRIC = r"-[A-Za-z_][^/=]*=-?(?:\d[\d.]*(?:e[-+]?\d+)?|nan|inf)"
_KEYED_STEP = re.compile(rf"(?:[^/]*[-_])?step={_NUMBER}(?:{_METRIC}|-last|-v\d+)*(?:\.ckpt)?", re.ASCII)
"""Lightning's `epoch=0-step=6-loss=1.5.ckpt` and NeMo's `llama--val_loss=2.1-epoch=0-step=100-last`."""
_STEP_STEM = re.compile(rf"(?:.*[-_.])?(?:global[-_]?step|step|iter|checkpoint|ckpt)[-_=]?{_NUMBER}", re.ASCII)
_EPOCH_AND_UPDATE = re.compile(rf"checkpoint_?\d+_{_NUMBER}(?:[-_.].*)?", re.ASCII)
"""fairseq counts epochs and updates; the updates are the steps."""
_EPOCH_AND_BATCH = re.compile(rf"(?:.*[-_])?ep\d+-ba{_NUMBER}(?:-rank(?:\d+|\{{\w+\}}))?", re.ASCII)
"""Composer: `ep0-ba10-rank3.pt`; batches are the steps."""
_OWN_WAYS = re.compile(rf"ep\d{{1,9}}-ba{_NUMBER}|step_{_NUMBER}_ckp|epoch_\d{{1,9}}_step_{_NUMBER}", re.ASCII)
"""Folders of Composer (`ep0-ba10`), of fms-fsdp, and of NeMo AutoModel (`epoch_0_step_20`)."""
_EPOCH_NAME = re.compile(r"epoch[-_=]?\d+", re.ASCII | re.IGNORECASE)
_SAVE_NAME = re.compile(r"checkpoint_0\d{5}", re.ASCII)
_GENERIC_FOLDERS = frozenset(
    {
        *("checkpoint", "checkpoints", "ckpt", "ckpts", "weights", "snapshot", "snapshots", "output", "outputs"),
        "non_persistent",
    }
)
"""What every job calls the folder of its checkpoints, so that the name tells no run from another."""
_RSYNC = re.compile(r"^\..+\.(?=[a-z]*[A-Z0-9])[A-Za-z0-9]{6}$", re.DOTALL)
"""What rsync calls a file until it is whole: `.model.safetensors.aBc123`."""
_TEMPORARY = re.compile(
    rf"{_RSYNC.pattern}|\.(?:part|crdownload|aria2)$|"
    r"\.tmp[A-Za-z0-9_-]*$|\.tmp\.|\.orbax-checkpoint-tmp|_tmp_[0-9a-f-]{8,}$|\.partial$|\.incomplete$|\.dirty\."
    r"|^tmp-checkpoint-\d+$|^tmp_step_\d+$|^\._dlrover_ckpt_stage$"
)
_TEMPORARY_ENDING = re.compile(r"(?:\.orbax-checkpoint-tmp|\.tmp|_tmp_|\.partial).*$", re.DOTALL)


def step_of_name(name: str) -> int | None:
    """The step that a checkpoint folder's name gives by full match: `step-100` is 100, `step-100.backup` is None. A
    number with more than 18 digits is none, nor is one in other digits than 0 to 9."""
    match = _STEP_NAME.fullmatch(name) or _KEYED_STEP.fullmatch(name) or _OWN_WAYS.fullmatch(name)
    return int(match[match.lastindex or 1]) if match else None


def step_of_file(name: str) -> int | None:
    """The step in a single-file checkpoint's name, extension aside: `model-step-100.safetensors` is 100."""
    keyed = _KEYED_STEP.fullmatch(name)
    stem = stem_of(name)
    whole = (_STEP_NAME, _KEYED_STEP, _EPOCH_AND_UPDATE, _EPOCH_AND_BATCH, _STEP_STEM)
    match = keyed or next((found for one in whole if (found := one.fullmatch(stem))), None)
    return int(match.group(1)) if match else None


def counts_epochs_or_saves(name: str) -> bool:
    """Whether the number in the name counts epochs, or saves as Ray Train's `checkpoint_000003` does, so that the state
    inside may rightly say another step."""
    return _EPOCH_NAME.fullmatch(stem_of(name)) is not None or _SAVE_NAME.fullmatch(name) is not None


def stem_of(name: str) -> str:
    """A file's name without its ending, of which `.pth.tar` is one."""
    whole = _DOUBLE_ENDING.fullmatch(name)
    return whole.group(1) if whole else name.rsplit(".", 1)[0]


_DOUBLE_ENDING = re.compile(r"(.+)\.(?:pth|pt|ckpt)\.(?:tar|zip|model)", re.ASCII | re.IGNORECASE | re.DOTALL)
_LIKE_A_CHECKPOINT = re.compile(
    r"(?:checkpoint|ckpt|chkpt|last|latest|best|model|snapshot|weights|streaming_(?:train_state|params)).*|.*[-_.](?:step|iter)[-_=]?\d*",
    re.ASCII | re.DOTALL,
)


def is_like_a_checkpoint(name: str) -> bool:
    """Whether a file without a known ending is named as checkpoints are: `checkpoint_1000`, `best`, `run_step`."""
    return _LIKE_A_CHECKPOINT.fullmatch(name.lower()) is not None


def step_of_unfinished(name: str) -> int | None:
    """The step that a temporary name is for: `20.orbax-checkpoint-tmp-17` is 20, `tmp-checkpoint-30` is 30."""
    if not is_temporary(name):
        return None
    return step_of_name(_TEMPORARY_ENDING.sub("", name).removeprefix("tmp-").removeprefix("tmp_"))


def run_of_path(path: str) -> str:
    """The run of the checkpoint at this absolute path: the name of the folder that holds its steps, or of the nearest
    one above that says more than `checkpoints` does. Where none says more, the folder's own name."""
    folders = [part for part in folder_of(path).removeprefix("s3:/").split("/") if part]
    own = folders[-1] if folders else ""
    return next((name for name in reversed(folders) if name.lower() not in _GENERIC_FOLDERS), own)


@lru_cache(maxsize=1 << 14)
def is_temporary(name: str) -> bool:
    """Whether some writer gives this name to what it has not finished."""
    return _TEMPORARY.search(name) is not None


DLROVER_STAGE = "._dlrover_ckpt_stage"
"""Where DLRover keeps a save until it is persisted."""
_OWN_START = ".muster-"
"""FOLDER_MANIFEST_NAME begins with it too."""
_OWN_ENDINGS = (FILE_MANIFEST_SUFFIX, VERDICT_NAME)
_NOISE_STARTS = (".nfs", "._", _OWN_START)
_NOISE_NAMES = frozenset({".DS_Store", "lost+found", ".snapshot"})


_SET_ASIDE = re.compile(
    r".*[-_.~](?:backup|bak|old|orig|copy|bad|broken|corrupt(?:ed)?|damaged|deleted|trash)\d*", re.DOTALL
)


_COPIED = re.compile(
    r"copy of .*|.* \(\d{1,4}\)(?:\.[a-z]+)?|.* (?:- )?copy(?: \d{1,4})?(?:\.[a-z]+)?"
    r"|.*\(.*conflicted copy.*\).*|.*\.sync-conflict-.*",
    re.DOTALL,
)
"""As desktops, browsers and file synchronisers name a second copy: `Copy of step-5`, `step-5 (1)`, `step-5 - Copy`,
`step-5 copy 2`, `model (conflicted copy 2024-01-01).safetensors`."""


def is_set_aside(name: str) -> bool:
    """Whether somebody named it so that it is not taken for a step: `step-100.backup`, `checkpoint-5_old`."""
    return _SET_ASIDE.fullmatch(name.lower()) is not None or _COPIED.fullmatch(name.lower()) is not None


def names_a_step(name: str) -> bool:
    """Whether the name, of a folder or a file, gives a step."""
    return step_of_name(name) is not None or ("." in name and not is_set_aside(name) and step_of_file(name) is not None)


_WORD_FOR_LAST = re.compile(r"(?:^|[-_.])(?:latest|last|current)(?:[-_.]|$)", re.ASCII | re.IGNORECASE)


def is_word_for_last(name: str) -> bool:
    """Whether the name says "the latest" instead of a step: `last.ckpt`, `latest-rank0.pt`, `step_latest`."""
    return _WORD_FOR_LAST.search(name) is not None and step_of_name(name) is None


def is_ours(name: str) -> bool:
    """Whether the file is Muster's own manifest or verdict, which is no part of a checkpoint."""
    return name.startswith(_OWN_START) or name.endswith(_OWN_ENDINGS)


def is_noise(name: str) -> bool:
    """Files that file systems and tools leave and that are never part of a checkpoint (`.nfs*` silly renames)."""
    if name == DLROVER_STAGE or (name.startswith("._") and _RSYNC.search(name)):
        return False
    return name.startswith(_NOISE_STARTS) or name.endswith(_OWN_ENDINGS) or name in _NOISE_NAMES


def is_text(name: str) -> bool:
    """Whether a file name is valid text. Others cannot be sent, shown or recorded as they are."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def unsafe_reason(name: object) -> str | None:
    """Why a relative path that metadata gives must not be opened; None when it is safe to join."""
    if not isinstance(name, str) or not name:
        return "is not a name"
    if len(name) > 1024:
        return "is longer than 1024 characters"
    if "\0" in name or "\\" in name or not is_text(name):
        return "holds a character that no shard name has"
    if name.startswith("/") or (len(name) > 1 and name[1] == ":"):
        return "is an absolute path"
    if any(part in ("", ".", "..") for part in name.split("/")):
        return "leads out of the checkpoint's folder"
    return None


def family_folder(path: str) -> str | None:
    """The folder that the family at this path lies in; None for the path of an ordinary file or folder."""
    if "{" not in path:
        return None
    parts = path.split("/")
    first = next((index for index, part in enumerate(parts) if "{" in part and "}" in part), None)
    return None if first is None else "/".join(parts[:first]) or "/"


def folder_of(path: str) -> str:
    """The folder that the checkpoint at this path lies in, with others of its run."""
    return family_folder(path) or path.rpartition("/")[0] or "/"


def beside(path: str, suffix: str) -> str:
    """Where what belongs to a checkpoint of one file, or of files among others, lies: beside it, by its own name."""
    together = family_folder(path)
    return path + suffix if together is None else f"{together.rstrip('/')}/{path.rpartition('/')[2]}{suffix}"
