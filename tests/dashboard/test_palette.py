"""Phase colours are told apart by every eye, in both themes, and the style sheet says the same as the code."""

from __future__ import annotations

import math
import re
from itertools import combinations
from pathlib import Path

import pytest

from apps.core.phases import PHASES
from apps.dashboard.palette import CARD, PHASE_INKS, stylesheet

ROOT = Path(__file__).parents[2]
Triple = tuple[float, float, float]

# Machado, Oliveira and Fernandes 2009, severity 1.0, on linear RGB.
EYES: dict[str, tuple[Triple, Triple, Triple]] = {
    "normal": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protan": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "deutan": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
    "tritan": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.303900)),
}
TO_XYZ = ((0.4124564, 0.3575761, 0.1804375), (0.2126729, 0.7151522, 0.0721750), (0.0193339, 0.1191920, 0.9503041))
WHITE = (0.95047, 1.0, 1.08883)


def linear(colour: str) -> Triple:
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    r, g, b = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
    return r, g, b


def times(matrix: tuple[Triple, ...], vector: Triple) -> Triple:
    a, b, c = (sum(m * v for m, v in zip(row, vector, strict=True)) for row in matrix)
    return a, b, c


def lab(rgb: Triple) -> Triple:
    x, y, z = (
        value ** (1 / 3) if value > 216 / 24389 else (24389 / 27 * value + 16) / 116
        for value in (max(0.0, v) / w for v, w in zip(times(TO_XYZ, rgb), WHITE, strict=True))
    )
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


def seen(colour: str, eye: str) -> Triple:
    r, g, b = (min(1.0, max(0.0, value)) for value in times(EYES[eye], linear(colour)))
    return lab((r, g, b))


def difference(one: Triple, other: Triple) -> float:
    """CIEDE2000."""
    (l1, a1, b1), (l2, a2, b2) = one, other
    mean_c = (math.hypot(a1, b1) + math.hypot(a2, b2)) / 2
    g = 0.5 * (1 - math.sqrt(mean_c**7 / (mean_c**7 + 25**7)))
    a1, a2 = a1 * (1 + g), a2 * (1 + g)
    c1, c2 = math.hypot(a1, b1), math.hypot(a2, b2)
    h1, h2 = math.degrees(math.atan2(b1, a1)) % 360, math.degrees(math.atan2(b2, a2)) % 360
    dh = 0.0 if c1 * c2 == 0 else (h2 - h1 + 180) % 360 - 180
    big_dh = 2 * math.sqrt(c1 * c2) * math.sin(math.radians(dh / 2))
    mean_l, mean_c = (l1 + l2) / 2, (c1 + c2) / 2
    mean_h = h1 + h2 if c1 * c2 == 0 else ((h1 + h2) / 2 if abs(h1 - h2) <= 180 else ((h1 + h2 + 360) / 2) % 360)
    t = (
        1
        - 0.17 * _cos(mean_h - 30)
        + 0.24 * _cos(2 * mean_h)
        + 0.32 * _cos(3 * mean_h + 6)
        - 0.2 * _cos(4 * mean_h - 63)
    )
    sl = 1 + 0.015 * (mean_l - 50) ** 2 / math.sqrt(20 + (mean_l - 50) ** 2)
    sc, sh = 1 + 0.045 * mean_c, 1 + 0.015 * mean_c * t
    turn = math.sin(math.radians(60 * math.exp(-(((mean_h - 275) / 25) ** 2))))
    rt = -2 * math.sqrt(mean_c**7 / (mean_c**7 + 25**7)) * turn
    dl, dc, dhs = (l2 - l1) / sl, (c2 - c1) / sc, big_dh / sh
    return math.sqrt(dl**2 + dc**2 + dhs**2 + rt * dc * dhs)


def _cos(degrees: float) -> float:
    return math.cos(math.radians(degrees))


def contrast(one: str, other: str) -> float:
    """WCAG 2."""
    bright, dark = sorted((times(TO_XYZ, linear(one))[1], times(TO_XYZ, linear(other))[1]), reverse=True)
    return (bright + 0.05) / (dark + 0.05)


def tokens(theme: str) -> dict[str, str]:
    """The colour tokens of the design system's sheet in one theme."""
    text = (ROOT / "static/css/muster.css").read_text()
    blocks = {"light": r":root \{(.*?)\}", "dark": r':root\[data-theme="dark"\] \{(.*?)\}'}
    found = re.search(blocks[theme], text, re.S)
    assert found is not None
    return dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6});", found.group(1)))


def phase_tokens(theme: str) -> dict[str, str]:
    """The colours of the phases as the style sheet that pages load has them, in the phases' order."""
    text = (ROOT / "static/css/phases.css").read_text()
    blocks = {"light": r":root \{(.*?)\}", "dark": r':root\[data-theme="dark"\] \{(.*?)\}'}
    found = re.search(blocks[theme], text, re.S)
    assert found is not None
    return dict(re.findall(r"--phase-([a-z-]+): (#[0-9a-f]{6});", found.group(1)))


def test_the_difference_formula_gives_the_published_values() -> None:
    # Sharma, Wu and Dalal 2005, pairs 1, 7 and 25.
    assert difference((50, 2.6772, -79.7751), (50, 0, -82.7485)) == pytest.approx(2.0425, abs=1e-4)
    assert difference((50, 0, 0), (50, -1, 2)) == pytest.approx(2.3669, abs=1e-4)
    assert difference((60.2574, -34.0099, 36.2677), (60.4626, -34.1751, 39.4387)) == pytest.approx(1.2644, abs=1e-4)


def test_every_phase_has_a_colour_in_the_fixed_order() -> None:
    assert list(PHASE_INKS) == list(PHASES)


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("eye", EYES)
def test_any_two_phases_differ_for_every_eye(theme: str, eye: str) -> None:
    colours = {phase: seen(colour, eye) for phase, colour in phase_tokens(theme).items()}
    assert len(colours) == len(PHASES)
    close = {
        f"{a} {b}": round(difference(colours[a], colours[b]), 2)
        for a, b in combinations(colours, 2)
        if difference(colours[a], colours[b]) < 10
    }
    assert close == {}


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_phase_stands_out_from_its_card(theme: str) -> None:
    assert min(contrast(getattr(ink, theme), CARD[theme]) for ink in PHASE_INKS.values()) >= 3


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_and_chips_reach_the_contrast_of_aa(theme: str) -> None:
    token = tokens(theme)
    assert token["card"] == CARD[theme]
    pairs = [(ink, paper) for ink in ("ink", "mute", "accent") for paper in ("bg", "card", "raised")]
    pairs += [(tone, f"{tone}-bg") for tone in ("ok", "warn", "bad", "info", "none")]
    pairs += [("accent-ink", "accent"), ("warn", "card"), ("bad", "card"), ("mute", "none-bg")]
    low = {pair: round(contrast(token[pair[0]], token[pair[1]]), 2) for pair in pairs}
    assert {pair: value for pair, value in low.items() if value < 4.5} == {}
    assert contrast(token["edge"], token["card"]) >= 3


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("eye", ["normal", "protan", "deutan", "tritan"])
def test_the_tones_of_chips_differ_for_every_eye(theme: str, eye: str) -> None:
    token = tokens(theme)
    colours = {tone: seen(token[tone], eye) for tone in ("ok", "warn", "bad", "info", "none")}
    close = {f"{a} {b}": difference(colours[a], colours[b]) for a, b in combinations(colours, 2)}
    assert {pair: round(value, 1) for pair, value in close.items() if value < 10} == {}


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("eye", EYES)
@pytest.mark.parametrize(
    "together", [("accent", "warn", "ok", "bad"), ("accent", "mute"), ("heat-slow", "heat-middle", "heat-fast")]
)
def test_lines_and_cells_of_one_chart_differ_for_every_eye(together: tuple[str, ...], eye: str, theme: str) -> None:
    colours = {name: seen(tokens(theme)[name], eye) for name in together}
    close = {f"{a} {b}": difference(colours[a], colours[b]) for a, b in combinations(colours, 2)}
    assert {pair: round(value, 1) for pair, value in close.items() if value < 10} == {}


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_numbers_in_the_cells_of_a_heat_map_can_be_read(theme: str) -> None:
    token = tokens(theme)
    cells = ("heat-slow", "heat-middle", "heat-fast")
    assert min(contrast(token["ink"], token[name]) for name in cells) >= 4.5


def test_the_style_sheet_is_the_one_made_from_the_palette() -> None:
    assert (ROOT / "static/css/phases.css").read_text() == stylesheet()


def test_the_automatic_dark_theme_is_the_dark_theme() -> None:
    text = (ROOT / "static/css/muster.css").read_text()
    automatic = re.search(r":root:not\(\[data-theme=\"light\"\], \[data-theme=\"dark\"\]\) \{(.*?)\}", text, re.S)
    assert automatic is not None
    assert dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6});", automatic.group(1))) == tokens("dark")
