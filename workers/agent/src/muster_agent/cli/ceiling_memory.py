"""The ceilings that `muster ceiling` measured on this node, kept for `muster reload` to hold its rate against."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

import msgspec

from muster_agent.protocol.results import CacheState, CeilingReport, ReloadReport

_KEPT = 100


class KnownCeiling(msgspec.Struct, frozen=True, kw_only=True):
    """One measurement; `device` is the file system's number, None for a bucket."""

    path: str
    device: int | None
    bytes_per_second: float
    method: str
    measured_at: str


class Efficiency(msgspec.Struct, frozen=True, kw_only=True):
    """What a reload reached of a ceiling; `ratio` None where `why_not` says why."""

    ceiling: KnownCeiling | None
    ratio: float | None
    why_not: str = ""


def remember(report: CeilingReport) -> None:
    """Keep a measurement. What cannot be kept is left: the report itself was printed."""
    if report.bytes_per_second is None:
        return
    fresh = KnownCeiling(
        path=report.path,
        device=_device_of(report.path),
        bytes_per_second=report.bytes_per_second,
        method=report.method,
        measured_at=report.measured_at,
    )
    others = [one for one in known() if one.path != fresh.path]
    with contextlib.suppress(OSError):
        _write([fresh, *others][:_KEPT])


def known() -> list[KnownCeiling]:
    """Newest first; nothing where there is no file, or one that cannot be read."""
    with contextlib.suppress(OSError, msgspec.DecodeError):
        return msgspec.json.decode(_file().read_bytes(), type=list[KnownCeiling])
    return []


def efficiency_of(report: ReloadReport, path: str) -> Efficiency:
    """The reload's rate over the ceiling of its file system: that of the place nearest to it, else the newest."""
    device, place = _device_of(path), path if "://" in path else os.path.abspath(path)
    here = [one for one in known() if one.device == device and (device is not None or _common(one.path, place))]
    ceiling = max(here, key=lambda one: _common(one.path, place), default=None)
    if ceiling is None:
        return Efficiency(ceiling=None, ratio=None, why_not="its ceiling was not measured: `muster ceiling PATH`")
    if report.cache_state in (CacheState.WARM, CacheState.MIXED):
        return Efficiency(ceiling=ceiling, ratio=None, why_not="bytes came from memory")
    return Efficiency(ceiling=ceiling, ratio=report.bytes_per_second / ceiling.bytes_per_second)


def _common(one: str, other: str) -> int:
    """How many parts two places have in common from their beginning."""
    return len(os.path.commonprefix([one.split("/"), other.split("/")]))


def _device_of(path: str) -> int | None:
    with contextlib.suppress(OSError):
        return None if "://" in path else os.stat(path).st_dev
    return None


def _file() -> Path:
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base) / "muster" / "ceilings.json"


def _write(ceilings: list[KnownCeiling]) -> None:
    file = _file()
    file.parent.mkdir(parents=True, exist_ok=True)
    handle, fresh = tempfile.mkstemp(dir=file.parent)
    with open(handle, "wb") as out:
        out.write(msgspec.json.encode(ceilings))
    os.replace(fresh, file)
