"""The framework's own note of its latest checkpoint: a small text file, or a link named `last` or `latest`.

What a note says is a name or a number beside it, never a path to follow.
"""

from __future__ import annotations

import os
import re

from muster_agent.decide.frameworks import BINDING_NAMES, BRIDGE_TRACKER, MEGATRON_TRACKER
from muster_agent.decide.model import Pointer
from muster_agent.formats import torch_archive
from muster_agent.formats.base import Finding
from muster_agent.formats.codes import finding
from muster_agent.formats.folder import Folder, escapes
from muster_agent.formats.names import is_word_for_last, step_of_file, step_of_name

_TEXT_NAMES = frozenset(
    {"latest_checkpointed_iteration.txt", "dlrover_latest.txt", "latest", "latest_universal", "last"}
    | {"latest_step.txt", "latest.txt", "latest_checkpoint.txt", "last_checkpoint"}
)
_OF_A_RANK = re.compile(r"last_checkpoint\.rank_\d{1,6}", re.ASCII)
"""Each rank's own, of DINOv2 and others that build on fvcore."""
_TENSORFLOW = "checkpoint"
"""TensorFlow's: a text that also lists the checkpoints kept."""
_TENSORFLOW_LATEST = re.compile(rb'^model_checkpoint_path: "([^"\n]*)"', re.MULTILINE)
_MAX_STATE_BYTES = 1024 * 1024
_TEXT_LINK_ENDING = ".symlink"
"""Composer's way to say where a link would lead, on storage that has none: `latest-rank0.pt.symlink`."""
_MAX_TEXT_BYTES = 4096
_MAX_NAME_CHARACTERS = 255
RELEASE = "release"

Told = tuple[Pointer | None, Finding | None]


def is_pointer(folder: Folder, name: str) -> bool:
    """Whether `name` is a note or a link that says which checkpoint is latest. A copy called `last.ckpt` is none."""
    if name in folder.links:
        return is_word_for_last(name) or name in _TEXT_NAMES or name.endswith(_TEXT_LINK_ENDING)
    if name in folder.folders:
        return False
    is_text = name in _TEXT_NAMES or _OF_A_RANK.fullmatch(name) is not None or name.endswith(_TEXT_LINK_ENDING)
    return (
        is_text
        or name == BRIDGE_TRACKER
        or (name == _TENSORFLOW and any(one.endswith(".index") for one in folder.files))
    )


def is_other_name(folder: Folder, name: str) -> bool:
    """Whether the file `name` is a pointer, or a link to another file of the same folder, such as `best.ckpt`."""
    if is_pointer(folder, name):
        return True
    if name not in folder.links:
        return False
    beside, _, target = os.path.realpath(os.path.join(folder.path, name)).rpartition("/")
    return beside == os.path.realpath(folder.path) and target != name and target in folder.files


def read_pointer(folder: Folder, name: str) -> Told:
    """What the pointer says, and a finding where it cannot be followed."""
    path = os.path.join(folder.path, name)
    if name in folder.links and not (name in folder.files and name in _TEXT_NAMES):
        return _read_link(folder, name, path)
    if name == BRIDGE_TRACKER:
        return _read_train_state(folder, name, path)
    try:
        raw = folder.read(name, _MAX_STATE_BYTES if name == _TENSORFLOW else _MAX_TEXT_BYTES + 1)
    except OSError as error:
        detail = f"{name} could not be read: {error.strerror}"
        return _unreadable(path, detail, cure="Give this user read access to it.")
    return _read_text(folder, name, raw)


def _unreadable(path: str, detail: str, *, cure: str | None = None) -> Told:
    pointer = Pointer(path=path, step=None, binding=os.path.basename(path) in BINDING_NAMES, problem=detail)
    return pointer, finding("pointer_unreadable", path=path, detail=detail, cure=cure)


def _read_text(folder: Folder, name: str, raw: bytes) -> Told:
    path = os.path.join(folder.path, name)
    if name == _TENSORFLOW:
        named = _TENSORFLOW_LATEST.search(raw)
        raw = named[1] if named else b""
    if len(raw) > _MAX_TEXT_BYTES:
        return _unreadable(path, f"{name} is too long to be the note of a step")
    try:
        text = raw.decode("utf-8").strip()
    except UnicodeDecodeError:
        return _unreadable(path, f"{name} is not plain text")
    if not text:
        return _unreadable(path, f"{name} is empty")
    if len(text) > _MAX_NAME_CHARACTERS * 4 or not text.isprintable():
        return _unreadable(path, f"{name} says {text[:80]!r}, which is no step")
    return _named(folder, name, text)


def _named(folder: Folder, name: str, text: str) -> Told:
    """The last part of the text counts: paths in it were another host's, or another time's."""
    path = os.path.join(folder.path, name)
    binding = name in BINDING_NAMES
    target = os.path.basename(text.rstrip("/"))
    if binding and target.isascii() and target.isdigit() and len(target) <= _MAX_DIGITS:
        return Pointer(path=path, step=int(target), binding=True), None
    if binding and text == RELEASE:
        return Pointer(path=path, step=None, target=RELEASE), None
    step = step_of_name(target)
    step = step_of_file(target) if step is None and "." in target else step
    is_there = target in folder.folders or target in folder.files or f"{target}.index" in folder.files
    if step is None and not is_there:
        return _unreadable(path, f"{name} says {text[:80]!r}, which is no step")
    if name == MEGATRON_TRACKER:
        problem = f"{name} says {text[:80]!r}, which is no number: Megatron reads one here, and stops without it"
        pointer = Pointer(path=path, step=step, binding=True, target=target, problem=problem)
        return pointer, finding("pointer_unreadable", path=path, detail=problem)
    if name == _TENSORFLOW and is_there:
        step = None  # the number in the name may count saves
    by_number = not is_there and target.isdigit()
    return Pointer(path=path, step=step, binding=binding, target=None if by_number else target), None


_MAX_DIGITS = 18
_INTEGER_BYTES = {"int32": 4, "int64": 8}


def _read_train_state(folder: Folder, name: str, path: str) -> Told:
    """Megatron-Bridge keeps the counters of training in a torch file, most of them as tensors of no dimension."""
    loaded = torch_archive.load(folder, name)
    step = torch_archive.scalar(loaded.value, "step", "iteration")
    if step is None:
        step = _step_tensor(folder, name, loaded)
    if step is None:
        said = loaded.findings[0].detail if loaded.findings else "it holds no step"
        return _unreadable(path, f"{name} names no step: {said}")
    return Pointer(path=path, step=step, binding=True), None


def _step_tensor(folder: Folder, name: str, loaded: torch_archive.Loaded) -> int | None:
    held = next((one for one in torch_archive.tensor_ranges(loaded, name) if one.name == "step"), None)
    if held is None or held.shape != () or held.length_bytes != _INTEGER_BYTES.get(held.dtype):
        return None
    try:
        with folder.open(name) as opened:
            number = int.from_bytes(opened.pread(held.length_bytes, held.offset_bytes), "little", signed=True)
    except OSError:
        return None
    return number if number >= 0 else None


def _read_link(folder: Folder, name: str, path: str) -> Told:
    said = os.readlink(path)
    target = os.path.basename(said.rstrip("/"))
    pointer = Pointer(path=path, step=_step_of(target), target=target)
    if escapes(path, folder.root):
        found = finding("link_escapes_root", path=path, detail=f"the link leads to {os.path.realpath(path)}")
        return _with_problem(pointer, f"it leads out of this folder, to {os.path.realpath(path)}"), found
    if not os.path.exists(path):
        problem = _why_dangling(folder, name, path, said, target)
        return _with_problem(pointer, problem), finding("pointer_dangling", path=path, detail=problem)
    real = os.path.realpath(path)
    beside = os.path.dirname(real) == os.path.realpath(folder.path)
    last = os.path.basename(real)
    if not beside:
        return Pointer(path=path, step=None), None
    return Pointer(path=path, step=_step_of(last), target=last), None


def _why_dangling(folder: Folder, name: str, path: str, said: str, target: str) -> str:
    try:
        os.stat(path)
    except OSError as error:
        if not isinstance(error, FileNotFoundError):
            return f"the link leads in a circle: {name} -> {said}"
    problem = f"the link points to {said!r}, which is not there"
    if target != name and (target in folder.files or target in folder.folders):
        problem += f"; {target} lies beside the link and may be what was meant"
    return problem


def _with_problem(pointer: Pointer, problem: str) -> Pointer:
    return Pointer(path=pointer.path, step=pointer.step, target=pointer.target, problem=problem)


def _step_of(name: str) -> int | None:
    step = step_of_name(name)
    return step_of_file(name) if step is None else step
