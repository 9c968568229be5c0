"""The evidence pack: the evidence as Markdown, CSV and JSON in a folder, written completely or not at all, or a zip."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterable, Mapping
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from mars_viz.options import options_of
from mars_viz.run import Settings
from mars_viz.runfiles.folders import check_free, write_folder
from mars_viz.strict_formats import csv_of, json_of, plain
from mars_viz.sweep.evidence import evidence_of
from mars_viz.sweep.evidence_text import markdown
from mars_viz.sweep.result import SweepResult
from mars_viz.sweep.stretches import stretches_csv

_MODELS = ("target", "target_revision", "drafter", "drafter_revision", "dtype", "device")
_PROMPT = ("id", "category", "prompt_tokens", "off_is_strict", "target_right")
_SETTING = ("tokens", "rounds", "drafted", "kept", "rolled_back", "relaxed", "right")
_AGAINST = ("first_divergence", "edit_distance")


def grid_csv(rows: list[dict[str, Any]]) -> str:
    """Return a line per stretch of the dial, `dial_from` <= dial < `dial_to`, with figures and the ends of their
    intervals. Undefined values are empty."""
    names = [name for name in rows[0] if name not in ("dial", "from", "to", "shown")]
    lines = [[row["from"], row["to"], row["dial"], *_cells(row, names)] for row in rows]
    return csv_of(["dial_from", "dial_to", "dial", *_heads(names)], lines)


def tasks_csv(rows: list[dict[str, Any]]) -> str:
    """Return a line per task and one for all together, with figures at strict and at the setting and their intervals'
    ends."""
    names = list(dict.fromkeys(name for row in rows for name in row["chosen"]))
    sides = ("strict", "chosen")
    lines = [
        [row["task"], row["prompts"], row["graded"]]
        + [cell for name in names for side in sides for cell in _cells(row[side], [name])]
        for row in rows
    ]
    return csv_of(["task", "prompts", "graded", *_heads([f"{side}_{name}" for name in names for side in sides])], lines)


def setting_grid_csv(variants: Mapping[str, Any]) -> str:
    """Return a line per variant and common dial value, with the varied setting as the first column."""
    names = list(variants["titles"])
    lines = [[each["value"], row["dial"], *_cells(row, names)] for each in variants["rows"] for row in each["dials"]]
    return csv_of([variants["setting"]["key"], "dial", *_heads(names)], lines)


def _heads(names: Iterable[str]) -> list[str]:
    return [f"{name}{end}" for name in names for end in ("", "_low", "_high")]


def _cells(figures: Mapping[str, Any], names: Iterable[str]) -> list[Any]:
    """Return each figure's estimate and the ends of its interval; None for a figure that is missing."""
    return [(figures.get(name) or {}).get(key) for name in names for key in ("estimate", "low", "high")]


def engines_csv(rows: list[dict[str, Any]]) -> str:
    """Return a line per definition of acceptance, with length, rate and the ends of their intervals. Values that are
    not reported or not defined are empty."""
    whats = ("length", "rate")
    heads = [f"{what}{end}" for what in whats for end in ("", "_low", "_high", "_formula")]
    lines = []
    for row in rows:
        cells = [
            [row[what], *(row[f"{what}_within"][end] for end in ("low", "high")), row[f"{what}_formula"]]
            for what in whats
        ]
        lines.append([row["engine"], *cells[0], *cells[1], row["bonus"], row["pooling"]])
    return csv_of(["engine", *heads, "bonus", "pooling"], lines)


def summary_csv(found: Mapping[str, Any]) -> str:
    """Return a line each for the target alone, strict and the chosen setting, with models and data set. Every figure
    has the ends of its interval; unmeasured or undefined values are empty."""
    models, rule, data, timing = (found[name] for name in ("models", "rule", "data_set", "wall_clock"))
    where = {name: models[name] for name in (*_MODELS, *options_of(Settings)) if name != "gamma"}
    where["versions"] = "; ".join(f"{name} {version}" for name, version in sorted(models["versions"].items()))
    where |= {"data_set": data["name"], "n": data["n"], "graded": data["graded"]}
    rows = []
    for name, at in (("target", None), *((way, found["settings"][way]) for way in ("strict", "chosen"))):
        row = {"setting": name, "rule": rule["name"] if at is not None else "", "dial": at, "gamma": rule["gamma"]}
        row["tree"] = rule["tree"]
        figures = {each["figure"]: each["settings"][name] for each in found["figures"]} if at is not None else {}
        if at is None and found["accuracy"] is not None:
            figures["accuracy"] = found["accuracy"]["target"]["wilson"]
        if timing is not None:
            figures["tokens_per_second"] = timing["tokens_per_second"][name]
            if name == "chosen":
                figures |= {what: timing[what] for what in ("measured_over_target", "measured_over_strict")}
        rows.append((row | where, figures))
    names = list(dict.fromkeys([*rows[0][1], *rows[-1][1]]))  # of the target alone first
    return csv_of(
        [*rows[0][0], *_heads(names)], [[*about.values(), *_cells(figures, names)] for about, figures in rows]
    )


def prompts_csv(result: SweepResult, dial: float) -> str:
    """Return a line per prompt with its counts at the strict end and at the setting."""
    heads: list[str] = list(_PROMPT)
    columns = [result.prompts[name].tolist() for name in _PROMPT]
    for label, at in (("strict", result.plan.strict), ("chosen", dial)):
        rows = result.rows(np.array([at]))[:, 0]
        for name in _SETTING + (_AGAINST if label == "chosen" else ()):
            heads.append(f"{label}_{name}")
            columns.append(result.lines[name][rows].tolist())
    return csv_of(heads, list(zip(*columns, strict=True)))


def evidence_files(result: SweepResult, *, dial: float, references: str = "", **options: Any) -> dict[str, bytes]:
    """Return the files of the evidence for `dial` by name.

    evidence.md, evidence.json, summary.csv (the target alone, strict and the setting), grid.csv (a line per stretch of
    the table), stretches.csv (every stretch, sums only), engines.csv (a line per definition of acceptance) and
    prompts.csv (a line per prompt). With several tasks also tasks.csv, with `beside` setting_grid.csv (a line per
    variant and dial value), and with `references`, BibTeX, references.bib. Takes the options of `evidence_of` and
    raises its errors.
    """
    evidence = plain(evidence_of(result, dial, **options)) | {"references": ["references.bib"] if references else []}
    files = {
        "evidence.md": markdown(evidence),
        "evidence.json": json_of(evidence, indent=1, escaped=False) + "\n",
        "summary.csv": summary_csv(evidence),
        "grid.csv": grid_csv(evidence["grid"]),
        "stretches.csv": stretches_csv(result),
        "engines.csv": engines_csv(evidence["engines"]),
        "prompts.csv": prompts_csv(result, dial),
    }
    if evidence["setting_grid"] is not None:
        files["setting_grid.csv"] = setting_grid_csv(evidence["setting_grid"])
    if evidence["by_task"]:
        files["tasks.csv"] = tasks_csv(evidence["by_task"])
    if references:
        files["references.bib"] = references
    return {name: text.encode() for name, text in files.items()}


def write_evidence(folder: str | PathLike[str], result: SweepResult, *, dial: float, **options: Any) -> Path:
    """Write the files to a new folder and return its path. Takes the options of `evidence_files`. Raises its errors,
    and BadInput if the path exists or the disk refuses."""
    path = Path(folder)
    check_free(path)
    write_folder(evidence_files(result, dial=dial, **options), path)
    return path


def evidence_zip(result: SweepResult, *, dial: float, **options: Any) -> bytes:
    """Return the files as a zip with one folder; equal evidence gives equal bytes."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in evidence_files(result, dial=dial, **options).items():
            archive.writestr(zipfile.ZipInfo(f"evidence/{name}"), data, zipfile.ZIP_DEFLATED)
    return buffer.getvalue()
