"""EasyLM's streamed files, `streaming_train_state_1000` and `streaming_params_1000`: one msgpack pair after the other,
the path of an array and flax's bytes of it. The arrays themselves are stepped over, not read.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from muster_agent.formats.base import Role
from muster_agent.formats.codes import finding
from muster_agent.formats.draft import Draft, lone_file, role_of
from muster_agent.formats.flax import Array, Skimmer, is_counter, range_of
from muster_agent.formats.folder import Folder, trouble
from muster_agent.formats.msgpack_bounded import MAX_VALUES, MsgpackRefused
from muster_agent.formats.tree import Opened

FORMAT = "easylm"
_NAME = re.compile(r"streaming_(?:train_state|params)(?:_(\d{1,18}))?", re.ASCII)
_STEP_PATHS = ("step", "train_state/step")


def claims_file(folder: Folder, name: str) -> bool:
    return _NAME.fullmatch(name) is not None and name in folder.files


def read_file(folder: Folder, name: str, with_tensors: bool) -> Draft:
    """Whole is a file whose last pair ends exactly at its end, each pair the path of an array and that array."""
    draft = lone_file(FORMAT, name, folder.files[name])
    if draft.findings:
        return draft
    try:
        with folder.open(name) as opened:
            arrays = dict(_arrays(opened))
            draft.step = _step(opened, arrays)
    except MsgpackRefused as error:
        code = "shard_truncated" if error.ends_early else "metadata_unreadable"
        detail = f"{name} is no row of paths and arrays: {error.reason}"
        draft.findings.append(finding(code, path=name, detail=detail))
        return draft
    except OSError as error:
        code = trouble(error, os.path.join(folder.path, name)).code
        draft.findings.append(finding(code, path=name, detail=f"{name} could not be read: {error.strerror}"))
        return draft
    match = _NAME.fullmatch(name)
    draft.step = int(match[1]) if draft.step is None and match and match[1] else draft.step
    draft.roles = {role_of(path) for path in arrays} - {Role.OTHER}
    if with_tensors:
        draft.tensors.extend(range_of(path, array, name) for path, array in arrays.items())
    return draft


def _arrays(opened: Opened) -> Iterator[tuple[str, Array]]:
    """Each array by its path. Raises MsgpackRefused and OSError."""
    outer = Skimmer(opened)
    for _ in range(MAX_VALUES):
        if outer.at == outer.end:
            return
        match outer.run():
            case [[*keys], range() as place] if keys and all(isinstance(key, str) for key in keys):
                yield "/".join(keys), _array_at(opened, place)
            case _:
                raise MsgpackRefused(f"the pair that ends at byte {outer.at} is none of a path and bytes")
    raise MsgpackRefused("it has more arrays than Muster reads")


def _array_at(opened: Opened, place: range) -> Array:
    inner = Skimmer(opened)
    inner.at, inner.end = place.start, place.stop
    value = inner.run()
    if not isinstance(value, Array) or inner.at != inner.end:
        raise MsgpackRefused(f"the bytes at {place.start} are no array of flax")
    return value


def _step(opened: Opened, arrays: dict[str, Array]) -> int | None:
    array = next((arrays[path] for path in _STEP_PATHS if path in arrays), None)
    if array is None or not is_counter(array):
        return None
    step = int.from_bytes(opened.pread(array.length, array.offset), "little")
    return step if step < 1 << 63 else None
