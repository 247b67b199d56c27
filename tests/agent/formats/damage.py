"""Real samples, and seeded damage to single files of them, for the tests of every format."""

from __future__ import annotations

import os
import random
import shutil
import time
from pathlib import Path

DATA = Path(__file__).resolve().parents[2] / "data"
DAY_SECONDS = 86_400
KINDS = ("truncate", "zero", "empty", "delete", "extend", "flip_head")


def copy_sample(name: str, to: Path, *, age_seconds: float = DAY_SECONDS) -> Path:
    """A writable copy of tests/data/`name` in `to`, under its own last name, with times so old that no save seems to
    run. Links stay links."""
    place = to / Path(name).name
    shutil.copytree(DATA / name, place, symlinks=True)
    age(place, age_seconds)
    return place


def age(place: Path, age_seconds: float = DAY_SECONDS) -> None:
    """Set the times of everything under `place` to `age_seconds` ago, in whole seconds and all equal."""
    when = int(time.time() - age_seconds)
    for folder, _, names in os.walk(place):
        for name in (*names, ""):
            os.utime(os.path.join(folder, name), (when, when), follow_symlinks=False)


def written(place: Path, files: dict[str, bytes]) -> Path:
    """`place` with these files in it, by their relative names, of old times."""
    for name, data in files.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_bytes(data)
    age(place)
    return place


def files_under(place: Path) -> list[str]:
    """Relative names of all regular files, sorted."""
    return sorted(str(path.relative_to(place)) for path in place.rglob("*") if path.is_file() and not path.is_symlink())


def damage(path: Path, kind: str, seed: int = 0) -> str:
    """Damage one file in place, its time of change kept, and say what was done.

    truncate: cut at a random place. zero: a random range in its second half becomes zeros (of the same length).
    empty: 0 bytes. delete: gone. extend: random bytes at the end. flip_head: one bit among the first 16 bytes.
    """
    chance = random.Random(f"{path.name}/{kind}/{seed}")
    seen = path.stat()
    data = bytearray(path.read_bytes())
    if kind == "delete":
        path.unlink()
        return f"{path.name} deleted"
    if kind == "truncate":
        at = chance.randrange(len(data)) if data else 0
        del data[at:]
        done = f"{path.name} cut at byte {at}"
    elif kind == "zero":
        begin = chance.randrange(len(data) // 2, len(data)) if data else 0
        data[begin:] = bytes(len(data) - begin)
        done = f"{path.name} zeroed from byte {begin}"
    elif kind == "empty":
        data.clear()
        done = f"{path.name} emptied"
    elif kind == "extend":
        data += chance.randbytes(1 + chance.randrange(64))
        done = f"{path.name} extended"
    elif kind == "flip_head":
        bit = chance.randrange(8 * min(16, len(data)))
        data[bit // 8] ^= 1 << bit % 8
        done = f"bit {bit} of {path.name} flipped"
    else:
        raise ValueError(kind)
    path.write_bytes(data)
    os.utime(path, ns=(seen.st_atime_ns, seen.st_mtime_ns))
    return done


def swap(first: Path, second: Path) -> None:
    """Exchange two files."""
    between = first.with_name(f"{first.name}.swapping")
    first.rename(between)
    second.rename(first)
    between.rename(second)
