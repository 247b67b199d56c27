"""A comparison of loaders for people."""

from __future__ import annotations

from muster_agent.cli.compare import INSTALL, Comparison, Row
from muster_agent.cli.output import human_memory, printable

_TITLES = {"muster": "muster, verified", "muster_resident": "muster, verified and kept"}
_VERIFIED = {True: "yes", False: "DAMAGED", None: "no"}
_HEAD = ("loader", "seconds", "GB/s", "CPU s/GB", "extra memory", "left resident", "verified", "cached before")
_WIDTHS = (28, 9, 8, 10, 14, 15, 10, 0)
UNPICKLES = (
    "torch and dcp unpickle. torch.load is held to weights_only=True; DCP's reader holds its .metadata to nothing, so "
    "compare only checkpoints that you would load anyway."
)


def render(comparison: Comparison) -> str:
    """A table, what did not run and why, and what the figures mean."""
    lines = [f"{comparison.path}, each loader once in a process of its own, cold", ""]
    lines.append(_line(_HEAD))
    lines += [_line(_cells(row)) for row in comparison.rows if row.outcome == "ran"]
    lines += [_not_run(row, comparison.python) for row in comparison.rows if row.outcome != "ran"]
    notes = [f"  {row.loader}: {row.version}{'; ' + row.detail if row.detail else ''}" for row in _theirs(comparison)]
    if notes:
        lines += ["", f"with {comparison.python}:", *notes]
    if any(row.loader in ("torch", "torch_mmap", "dcp") for row in comparison.rows):
        lines += ["", UNPICKLES]
    lines += [
        "",
        "Seconds are from the path to every byte in memory; importing a library is not counted, its own first use of",
        "memory is. `muster, verified` reads each block over the last and keeps none. One run each: repeat before you",
        "conclude, and mind that a lazy mapping costs nothing until it is touched.",
    ]
    return printable("\n".join(lines))


def _theirs(comparison: Comparison) -> list[Row]:
    return [row for row in comparison.rows if row.outcome == "ran" and row.loader not in _TITLES]


def _cells(row: Row) -> tuple[str, ...]:
    rate, cost = row.bytes_per_second, row.cpu_seconds_per_gigabyte
    return (
        _TITLES.get(row.loader, row.loader),
        "-" if row.seconds is None else f"{row.seconds:.3f}",
        "-" if rate is None else f"{rate / 1e9:.2f}",
        "-" if cost is None else f"{cost:.3f}",
        "-" if row.peak_rss_bytes is None else human_memory(row.peak_rss_bytes),
        "-" if row.resident_bytes is None else human_memory(row.resident_bytes),
        _VERIFIED[row.verified],
        "unknown" if row.cached_ratio_before is None else f"{row.cached_ratio_before:.1%}",
    )


def _line(cells: tuple[str, ...]) -> str:
    return "".join(f"{cell:<{width}}" for cell, width in zip(cells, _WIDTHS, strict=True)).rstrip()


def _not_run(row: Row, python: str) -> str:
    name = _TITLES.get(row.loader, row.loader)
    if row.outcome == "missing":
        return f"{name:<28}not installed: {python} -m pip install {INSTALL[row.loader]}   ({row.detail})"
    if row.outcome == "unfit":
        return f"{name:<28}does not read this: {row.detail}"
    return f"{name:<28}{row.outcome.replace('_', ' ')}: {row.detail}"
