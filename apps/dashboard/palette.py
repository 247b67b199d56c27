"""The one place where phases get their colours and hatches. Pages use the CSS made from here, charts its variables.

`python -m apps.dashboard.palette > static/css/phases.css` writes the style sheet; a test holds the two together.
"""

from __future__ import annotations

import sys
from typing import NamedTuple

from apps.core.phases import PHASES, Phase


class Ink(NamedTuple):
    """One phase's colour on light and on dark cards (each at least 3:1), and its hatch: "", "/", "\\\\" or "x"."""

    light: str
    dark: str
    hatch: str


# Found by search: any two differ by dE2000 >= 10 for normal, protan, deutan and tritan eyes, in both themes.
PHASE_INKS: dict[Phase, Ink] = {
    Phase.DETECT: Ink("#5b6c98", "#7086b2", ""),
    Phase.RESCHEDULE: Ink("#135177", "#65a8ff", "/"),
    Phase.LAUNCH: Ink("#3f9dbd", "#42dbff", ""),
    Phase.RESOLVE: Ink("#4130cb", "#96abbd", ""),
    Phase.STAGE: Ink("#21837e", "#2a9b91", "\\"),
    Phase.ALLOCATE: Ink("#835b3c", "#ee9d3b", ""),
    Phase.READ: Ink("#699e4a", "#89d085", ""),
    Phase.VERIFY: Ink("#7d7500", "#ece549", "/"),
    Phase.MATERIALIZE: Ink("#d7366d", "#fe3b64", ""),
    Phase.TO_DEVICE: Ink("#7e2348", "#be627f", "\\"),
    Phase.FIRST_STEP: Ink("#a24cdc", "#8a6cf3", ""),
}
CARD = {"light": "#ffffff", "dark": "#161e27"}
_ANGLES = {"/": "135deg", "\\": "45deg", "x": "90deg"}


def variable(phase: Phase) -> str:
    """The CSS variable of a phase, as charts name their colours: `var(--phase-read)`."""
    return f"var(--phase-{css_name(phase)})"


def css_name(phase: Phase) -> str:
    return phase.value.replace("_", "-")


def stylesheet() -> str:
    """`static/css/phases.css`."""
    light = "\n".join(f"  --phase-{css_name(phase)}: {ink.light};" for phase, ink in PHASE_INKS.items())
    dark = "\n".join(f"  --phase-{css_name(phase)}: {ink.dark};" for phase, ink in PHASE_INKS.items())
    automatic = "\n".join("  " + line for line in dark.splitlines())
    return (
        "/* Made by `python -m apps.dashboard.palette`; edit apps/dashboard/palette.py instead. */\n\n"
        f":root {{\n{light}\n}}\n\n"
        f':root[data-theme="dark"] {{\n{dark}\n}}\n\n'
        "@media (prefers-color-scheme: dark) {\n"
        f'  :root:not([data-theme="light"], [data-theme="dark"]) {{\n{automatic}\n  }}\n}}\n\n'
        + "\n".join(_rule(phase) for phase in PHASES)
        + "\n"
    )


def _rule(phase: Phase) -> str:
    hatch = PHASE_INKS[phase].hatch
    image = ""
    if hatch:
        stripes = "transparent 0 4px, var(--hatch) 4px 6px"
        image = f" background-image: repeating-linear-gradient({_ANGLES[hatch]}, {stripes});"
    return f".ph-{css_name(phase)} {{ background-color: {variable(phase)};{image} }}"


if __name__ == "__main__":
    sys.stdout.write(stylesheet())
