"""A node's facts as people read them. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

LABELS = {
    "roots": "May read",
    "copy_roots": "May copy to and remove from",
    "file_systems": "File systems",
    "gpu_count": "GPUs",
    "cpu_count": "CPUs",
    "memory_bytes": "Memory",
    "kernel": "Kernel",
    "machine": "Architecture",
    "python": "Python",
    "slots": "Tasks at once",
    "allows_disrupt": "Lets drills end processes",
}
GIB = 1 << 30


def readable(facts: Mapping[str, Any]) -> list[tuple[str, tuple[str, ...]]]:
    """(label, lines) for each fact, those with a name of their own here first; others keep theirs in plain words."""
    order = [name for name in LABELS if name in facts] + [name for name in facts if name not in LABELS]
    return [(_label(name), _lines(name, facts[name])) for name in order]


def _label(name: str) -> str:
    plain = name.removesuffix("_bytes").replace("_", " ")
    return LABELS.get(name) or plain[:1].upper() + plain[1:]


def _lines(name: str, value: Any) -> tuple[str, ...]:
    if isinstance(value, Mapping):
        return tuple(f"{key}: {_word(name, one)}" for key, one in value.items()) or ("none",)
    if isinstance(value, Sequence) and not isinstance(value, str):
        return tuple(_word(name, one) for one in value) or ("none",)
    return (_word(name, value),)


def _word(name: str, value: Any) -> str:
    if value is None or value == "":
        return "not told"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int) and name.endswith("_bytes"):
        return f"{value / GIB:.1f} GiB"
    return f"{value:,}" if isinstance(value, int) else str(value)
