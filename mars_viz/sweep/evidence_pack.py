"""The evidence pack: the same evidence as Markdown, CSV and JSON, in a folder, written whole or not at all, or a zip.

Knows folders and formats; the evidence is gathered and put into words beside it.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

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
    """A line a stretch of the dial, from `dial_from` to before `dial_to`; each figure with the ends of its interval,
    empty where it is not defined."""
    names = [name for name in rows[0] if name not in ("dial", "from", "to", "shown")]
    heads = ["dial_from", "dial_to", *_grid_heads(names)]
    return csv_of(heads, [[row["from"], row["to"], *_grid_line(row, names)] for row in rows])


def tasks_csv(rows: list[dict[str, Any]]) -> str:
    """A line a task and one for all together; each figure at strict and at the setting, with its interval's ends."""
    names = list(dict.fromkeys(name for row in rows for name in row["chosen"]))
    columns = [(side, name) for name in names for side in ("strict", "chosen")]
    heads = [f"{side}_{name}{end}" for side, name in columns for end in ("", "_low", "_high")]
    lines = [
        [row["task"], row["prompts"], row["graded"]]
        + [(row[side].get(name) or {}).get(key) for side, name in columns for key in ("estimate", "low", "high")]
        for row in rows
    ]
    return csv_of(["task", "prompts", "graded", *heads], lines)


def setting_grid_csv(variants: Mapping[str, Any]) -> str:
    """The same of several sweeps, at the dial values that all of them hold: a line for each of them and dial value,
    with the setting in which they differ as the first column."""
    names = list(variants["titles"])
    lines = [[each["value"], *_grid_line(row, names)] for each in variants["rows"] for row in each["dials"]]
    return csv_of([variants["setting"]["key"], *_grid_heads(names)], lines)


def _grid_heads(names: list[str]) -> list[str]:
    return ["dial", *(f"{name}{end}" for name in names for end in ("", "_low", "_high"))]


def _grid_line(row: dict[str, Any], names: list[str]) -> list[Any]:
    return [row["dial"], *(row[name][key] for name in names for key in ("estimate", "low", "high"))]


def engines_csv(rows: list[dict[str, Any]]) -> str:
    """A line a definition of acceptance; its length and rate with the ends of their intervals, empty where it reports
    none or they are not defined."""
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
    """Of the whole evidence: a line each for the target alone, strict and the chosen setting, with what they were
    measured on; every figure with the ends of its interval, empty where it is not measured or not defined."""
    models, rule, data, timing = (found[name] for name in ("models", "rule", "data_set", "wall_clock"))
    versions = "; ".join(f"{name} {version}" for name, version in sorted(models["versions"].items()))
    where = {
        **{name: models[name] for name in (*_MODELS, "temperature", "top_p", "top_k", "seed", "max_new_tokens")},
        "versions": versions,
        "data_set": data["name"],
        "n": data["n"],
        "graded": data["graded"],
    }
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
    heads = [*rows[0][0], *(f"{name}{end}" for name in names for end in ("", "_low", "_high"))]
    lines = [
        [
            *about.values(),
            *((figures.get(name) or {}).get(key) for name in names for key in ("estimate", "low", "high")),
        ]
        for about, figures in rows
    ]
    return csv_of(heads, lines)


def prompts_csv(result: SweepResult, dial: float) -> str:
    """A line a prompt: its counts at the strict end and at the setting, side by side."""
    heads: list[str] = list(_PROMPT)
    columns = [result.prompts[name].tolist() for name in _PROMPT]
    for label, at in (("strict", result.plan.strict), ("chosen", dial)):
        rows = result.rows(np.array([at]))[:, 0]
        for name in _SETTING + (_AGAINST if label == "chosen" else ()):
            heads.append(f"{label}_{name}")
            columns.append(result.lines[name][rows].tolist())
    return csv_of(heads, list(zip(*columns, strict=True)))


def evidence_files(result: SweepResult, *, dial: float, references: str = "", **options: Any) -> dict[str, bytes]:
    """The evidence for `dial`, a file each: evidence.md, evidence.json, summary.csv (a line each for the target alone,
    strict and the setting), grid.csv (a line a stretch of the dial), stretches.csv (every stretch, sums alone),
    engines.csv (a line a definition of acceptance) and prompts.csv (a line a prompt); with several tasks tasks.csv as
    well, with `beside` setting_grid.csv (a line a variant and dial value), and with `references`, BibTeX of what is
    cited, references.bib.

    Takes the options of `evidence_of`, and raises what it does.
    """
    found = plain(evidence_of(result, dial, **options)) | {"references": ["references.bib"] if references else []}
    files = {
        "evidence.md": markdown(found),
        "evidence.json": json_of(found, indent=1, escaped=False) + "\n",
        "summary.csv": summary_csv(found),
        "grid.csv": grid_csv(found["grid"]),
        "stretches.csv": stretches_csv(result),
        "engines.csv": engines_csv(found["engines"]),
        "prompts.csv": prompts_csv(result, dial),
    }
    if found["setting_grid"] is not None:
        files["setting_grid.csv"] = setting_grid_csv(found["setting_grid"])
    if found["by_task"]:
        files["tasks.csv"] = tasks_csv(found["by_task"])
    if references:
        files["references.bib"] = references
    return {name: text.encode() for name, text in files.items()}


def write_evidence(folder: str | PathLike[str], result: SweepResult, *, dial: float, **options: Any) -> Path:
    """Write the files to a new folder and return its path.

    Takes the options of `evidence_files`. Raises BadInput as it does, where something of that name exists, and where
    the disk refuses.
    """
    path = Path(folder)
    check_free(path)
    write_folder(evidence_files(result, dial=dial, **options), path)
    return path


def evidence_zip(result: SweepResult, *, dial: float, **options: Any) -> bytes:
    """The same as a zip that holds one folder: the same bytes for the same evidence."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in evidence_files(result, dial=dial, **options).items():
            archive.writestr(zipfile.ZipInfo(f"evidence/{name}"), data, zipfile.ZIP_DEFLATED)
    return buffer.getvalue()
