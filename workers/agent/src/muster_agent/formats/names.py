"""What names say: the step in a folder's name, leftovers, and names that must never be opened. Pure."""

from __future__ import annotations

import re

from muster_agent.manifest.model import FILE_MANIFEST_SUFFIX, VERDICT_NAME

_STEP_NAME = re.compile(
    r"(?:(?:global[-_]?step|step|iter|iteration|checkpoint|ckpt)[-_=]?)?(\d{1,18})", re.ASCII | re.IGNORECASE
)
_STEP_STEM = re.compile(r"(?:.*[-_.])?(?:global[-_]?step|step|iter|checkpoint|ckpt)[-_=]?(\d{1,18})", re.ASCII)
_GENERIC_FOLDERS = frozenset(
    {"checkpoint", "checkpoints", "ckpt", "ckpts", "weights", "snapshot", "snapshots", "output", "outputs"}
)
"""What every job calls the folder of its checkpoints, so that the name tells no run from another."""
_TEMPORARY = re.compile(r"\.tmp[A-Za-z0-9_-]*$|\.tmp\.|\.orbax-checkpoint-tmp|_tmp_[0-9a-f-]{8,}$|\.partial$|\.dirty\.")


def step_of_name(name: str) -> int | None:
    """The step that a checkpoint folder's name gives by full match: `step-100` is 100, `step-100.backup` is None."""
    match = _STEP_NAME.fullmatch(name)
    return int(match.group(1)) if match else None


def step_of_file(name: str) -> int | None:
    """The step in a single-file checkpoint's name, extension aside: `model-step-100.safetensors` is 100."""
    stem = name.rsplit(".", 1)[0]
    match = _STEP_NAME.fullmatch(stem) or _STEP_STEM.fullmatch(stem)
    return int(match.group(1)) if match else None


def run_of_path(path: str) -> str:
    """The run of the checkpoint at this absolute path: the name of the folder that holds its steps, or of the nearest
    one above that says more than `checkpoints` does. Where none says more, the folder's own name."""
    folders = [part for part in path.split("/")[:-1] if part]
    own = folders[-1] if folders else ""
    return next((name for name in reversed(folders) if name.lower() not in _GENERIC_FOLDERS), own)


def is_temporary(name: str) -> bool:
    """Whether some writer gives this name to what it has not finished."""
    return _TEMPORARY.search(name) is not None


_OWN_START = ".muster-"
"""FOLDER_MANIFEST_NAME begins with it too."""
_OWN_ENDINGS = (FILE_MANIFEST_SUFFIX, VERDICT_NAME)
_NOISE_STARTS = (".nfs", "._", _OWN_START)
_NOISE_NAMES = frozenset({".DS_Store", "lost+found", ".snapshot"})


def is_ours(name: str) -> bool:
    """Whether the file is Muster's own manifest or verdict, which is no part of a checkpoint."""
    return name.startswith(_OWN_START) or name.endswith(_OWN_ENDINGS)


def is_noise(name: str) -> bool:
    """Files that file systems and tools leave and that are never part of a checkpoint (`.nfs*` silly renames)."""
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


def beside(path: str, suffix: str) -> str:
    """Where what belongs to a checkpoint of one file, or of files among others, lies: beside it, by its own name."""
    together = family_folder(path)
    return path + suffix if together is None else f"{together.rstrip('/')}/{path.rpartition('/')[2]}{suffix}"
