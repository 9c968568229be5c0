"""The outcomes' colours by arithmetic: legible in both themes, and told apart by every kind of colour vision.

Two outcomes are told apart by a distance of 6 in CIELAB (ΔE*ab; about 2.3 is just noticeable) of their grounds or inks,
under each kind of dichromacy; since that is little, no two outcomes share their glyph and their line.
"""

from __future__ import annotations

import re
from importlib.resources import files
from itertools import combinations

import numpy as np
import pytest

from mars_viz.figures import DARK, LIGHT
from mars_viz.figures.style import ink_on

APART = 6.0  # ΔE*ab between two outcomes of the text, by ground or by ink
MARKS_APART = 12.0  # ΔE*ab between two marks of a figure, which have no glyph
LEGIBLE = 4.5  # WCAG 2 AA, text
VISIBLE = 3.0  # WCAG 2 AA, graphical objects
OUTCOMES = ("matched", "relaxed", "rejected", "discarded", "corrected", "bonus")
PAGES = {"light": "#FFFFFF", "dark": "#12161C"}

DICHROMATS = {
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}
"""On linear RGB, severity 1: Machado, Oliveira, Fernandes, 'A physiologically-based model for simulation of color
vision deficiency', IEEE TVCG 15 (2009)."""
VISIONS = {"no deficiency": np.eye(3).tolist(), **DICHROMATS}

FOLDER = files("mars_viz.components.explorer")
CSS = (FOLDER / "explorer.css").read_text("utf-8")


def linear(colour: str) -> np.ndarray:
    """float64 [3]; linear RGB of '#rrggbb'."""
    channels = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)


def lab(rgb: np.ndarray) -> np.ndarray:
    """float64 [3]; CIELAB of linear RGB, D65."""
    to_xyz = [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
    t = np.array(to_xyz) @ rgb / [0.95047, 1.0, 1.08883]
    f = np.where(t > 216 / 24389, np.cbrt(t), (24389 / 27 * t + 16) / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def distance(one: str, other: str, vision: str) -> float:
    """ΔE*ab as that vision has it."""
    seen = [lab(np.clip(np.array(VISIONS[vision]) @ linear(colour), 0, 1)) for colour in (one, other)]
    return float(np.linalg.norm(seen[0] - seen[1]))


def contrast(one: str, other: str) -> float:
    low, high = sorted(float(linear(colour) @ [0.2126, 0.7152, 0.0722]) for colour in (one, other))
    return (high + 0.05) / (low + 0.05)


def mixed(colour: str, percent: int, ground: str) -> str:
    """CSS's color-mix in sRGB."""
    parts = [
        round((int(colour[i : i + 2], 16) * percent + int(ground[i : i + 2], 16) * (100 - percent)) / 100)
        for i in (1, 3, 5)
    ]
    return "#" + "".join(f"{part:02x}" for part in parts)


def palette(theme: str) -> dict[str, str]:
    """The custom properties of a theme that are plain colours, by name."""
    selector = ".explorer {" if theme == "light" else '.explorer[data-theme="dark"] {'
    block = CSS.split(selector, 1)[1].split("}", 1)[0]
    return {name: value.lower() for name, value in re.findall(r"--([\w-]+): (#[0-9a-fA-F]{6});", block)}


def ink(theme: str, outcome: str) -> str:
    return palette(theme)[{"matched": "ink", "discarded": "quiet"}.get(outcome, outcome)]


def ground(theme: str, outcome: str) -> str:
    return palette(theme).get(f"{outcome}-ground", PAGES[theme])


def percents(rule: str) -> list[int]:
    """The shares of the color-mix calls in one line of the style sheet."""
    line = next(line for line in CSS.splitlines() if line.startswith(rule))
    return [int(share) for share in re.findall(r"\) (\d+)%", line)]


@pytest.mark.parametrize("theme", PAGES)
def test_text_is_legible_on_every_ground_of_the_explorer(theme: str) -> None:
    page, text = PAGES[theme], ink(theme, "matched")
    for outcome in OUTCOMES:
        assert contrast(ink(theme, outcome), ground(theme, outcome)) >= LEGIBLE
    assert contrast(mixed(text, *percents(".faded .t {"), page), page) >= LEGIBLE
    assert percents(".faded .discarded") == []
    for outcome in ("relaxed", "rejected", "corrected", "bonus"):
        of_ink, of_ground = percents(f".faded .{outcome} ")
        faded = mixed(ink(theme, outcome), of_ink, page), mixed(ground(theme, outcome), of_ground, page)
        assert contrast(*faded) >= LEGIBLE, outcome
    script = (FOLDER / "colours.js").read_text("utf-8")
    share = int(re.search(r"\}\) (\d+)%,var\(--ground\)", script)[1])
    for shade in re.findall(r'"(#[0-9a-f]{6})"', script):
        light = float(linear(shade) @ [0.2126, 0.7152, 0.0722]) > 0.18
        assert contrast("#111111" if light else "#ffffff", shade) >= LEGIBLE
        assert contrast(text, mixed(shade, share, page)) >= LEGIBLE


@pytest.mark.parametrize("theme", PAGES)
def test_outcomes_and_marks_differ_for_every_kind_of_colour_vision(theme: str) -> None:
    css = (files("mars_viz.components.compare") / "compare.css").read_text("utf-8")
    block = css.split(".compare {" if theme == "light" else '.compare[data-theme="dark"] {', 1)[1].split("}", 1)[0]
    own = dict(re.findall(r"--([\w-]+): (#[0-9a-fA-F]{6});", block))
    assert contrast(own["apart-ink"], own["apart-ground"]) >= LEGIBLE
    assert contrast(own["bar-other"], PAGES[theme]) >= VISIBLE
    for outcome in OUTCOMES:
        assert distance(own["apart-ground"], ground(theme, outcome), "no deficiency") >= APART, outcome
    for outcome in ("matched", "relaxed", "corrected", "bonus"):
        assert distance(own["bar-other"], own[f"bar-{outcome}"], "no deficiency") >= MARKS_APART, outcome
    colours = LIGHT if theme == "light" else DARK
    for vision in VISIONS:
        assert distance(own["bar-other"], own["bar-matched"], vision) >= MARKS_APART
        for one, other in combinations(OUTCOMES, 2):
            by_ground = distance(ground(theme, one), ground(theme, other), vision)
            by_ink = distance(ink(theme, one), ink(theme, other), vision)
            assert max(by_ground, by_ink) >= APART, (one, other, vision)
        for one, other in combinations(("quiet", "relaxed", "rejected", "discarded", "dial"), 2):
            assert distance(getattr(colours, one), getattr(colours, other), vision) >= MARKS_APART, (one, other, vision)
    for name, least in (("ink", LEGIBLE), ("muted", LEGIBLE), ("relaxed", VISIBLE), ("rejected", VISIBLE)):
        assert contrast(getattr(colours, name), PAGES[theme]) >= least
    assert contrast(colours.dial, PAGES[theme]) >= VISIBLE
    greys = [f"#{level:02x}{level:02x}{level:02x}" for level in range(256)]
    assert all(contrast(ink_on(colour), colour) >= LEGIBLE for colour in (colours.relaxed, colours.dial, *greys))


def test_colour_is_never_the_only_cue() -> None:
    cues = []
    for outcome in OUTCOMES:
        rule = next((line for line in CSS.splitlines() if line.startswith(f".{outcome} {{")), "")
        glyph = re.search(r'--glyph: "(.)"', rule)
        line = re.search(r"text-decoration: ([\w -]+)", rule)
        cues.append((glyph and glyph[1], line and line[1]))
    assert len(set(cues)) == len(OUTCOMES), cues
