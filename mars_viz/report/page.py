"""Build and write the self-contained HTML report of a run, its citations, and tables as CSV and Parquet.

Text from models is sent compressed and inserted as text nodes; text in the HTML is escaped. A content security policy
allows only the embedded scripts, identified by their digests, and no network access. Figures are prerendered as Plotly
JSON, because a report cannot call Python: for the recorded dial value, each segment of the map, and steps of the dial.
Parts shared by several figures are stored once. BibTeX is for MARS, the papers in the `source` of a rule, and MARS Viz;
papers missing from papers.bib are cited by number only.
"""

from __future__ import annotations

import gzip
import io
import json
import math
import os
import re
from base64 import b64encode
from dataclasses import astuple, replace
from functools import cache
from hashlib import sha256
from html import escape
from importlib.resources import files
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import plotly.graph_objects as go
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from mars_viz import __version__, figures
from mars_viz.analysis.map_grid import map_grid
from mars_viz.analysis.metrics import origin_facts, positions, settings_facts
from mars_viz.components.explorer import ELEMENT
from mars_viz.components.explorer.payload import packed, run_payload
from mars_viz.components.mount import joined as joined_scripts
from mars_viz.documents import Facts
from mars_viz.errors import StorageError, disk_refusals
from mars_viz.escapes import Html, html
from mars_viz.exploration import checked_gamma, shown
from mars_viz.figures.along_the_dial import QUANTITIES, heat_map
from mars_viz.figures.style import DIAL_MARK
from mars_viz.rules import rule_named
from mars_viz.run import Run
from mars_viz.words import exactly
from mars_viz.writer import csv_of, write_file

if TYPE_CHECKING:
    import pandas as pd

MARS = "2601.15498"
PAPERS = {
    re.findall(r"eprint = \{(.+)\}", entry)[0]: entry
    for entry in (files(__package__) / "papers.bib").read_text("utf-8").strip().split("\n\n")
}
"""BibTeX entries by arXiv number."""


def bibtex(*rule_names: str) -> str:
    """Return BibTeX for MARS, each rule's sources and MARS Viz, without duplicates."""
    sources, entries = {MARS: ""}, []
    for source in (rule_named(name).source for name in rule_names):
        for paper in re.findall(r"(?<!\d)\d{4}\.\d{5}(?!\d)", source):
            sources.setdefault(paper, source)
    for paper, source in sources.items():
        if paper in PAPERS:
            entries.append(PAPERS[paper])
        else:  # free text is escaped, without braces and backslashes
            fields = {"eprint": paper, "archivePrefix": "arXiv", "year": f"20{paper[:2]}"}
            note = re.sub(r"([_&%#$])", r"\\\1", re.sub(r"[{}\\]", "", source))
            entries.append(_entry(f"arxiv{paper.replace('.', '')}", fields | {"note": note}))
    fields = {"title": "{MARS Viz}", "author": "{The MARS Viz authors}", "version": __version__}
    fields["note"] = "Speculative decoding, shown token by token"
    return "\n\n".join([*entries, _entry("marsviz", fields, kind="software")]) + "\n"


def _entry(key: str, fields: dict[str, str], kind: str = "misc") -> str:
    return f"@{kind}{{{key},\n" + "\n".join(f"  {name} = {{{text}}}," for name, text in fields.items()) + "\n}"


HEIGHT = 1250  # pixels of the notebook's iframe
MOST_STEPS = 50  # number of dial values to draw in addition to the segments, evenly subsampled
MARK = b'<meta name="generator" content="MARS Viz'  # marks a file as a report
PLOTLY = files(__package__) / "vendor" / "plotly-basic.min.js.gz"  # gzipped
RUN_VIEW = ("unpacking.js", "place.js", "pace.js", "figures.js", "run_view.js")
_DETAILS = ("Vocabulary", "Prompt", "Batching")  # facts that are not in a page's header


def report_html(
    run: Run,
    *,
    dial: float | None = None,
    gamma: int | None = None,
    overlay: str = "outcome",
    most_steps: int = MOST_STEPS,
) -> str:
    """Return the run as HTML that opens from disk without a network.

    It starts at `dial` with the texts of block length `gamma`; None is the run's own value. Figures are drawn for each
    segment of the map and for `most_steps` further dial values. Raises BadInput for a dial value out of range, and for
    a block length that the run's map does not contain.
    """
    gamma = checked_gamma(run, gamma)
    at = rule_named(run.settings.rule).checked_dial(run.settings.dial if dial is None else dial)
    position = {"dial": at, "overlay": overlay, "selected": None}
    name = {"stem": file_stem(run), "gamma": _length(run, gamma)}
    opening = text_of("opening.js")  # reports if the page cannot be shown
    code, plotly = f"{run_view_script()}\n{text_of('host.js')}", PLOTLY.read_bytes()
    digests = (sha256(script).digest() for script in (opening.encode(), code.encode(), gzip.decompress(plotly)))
    scripts = " ".join(f"'sha256-{b64encode(digest).decode()}'" for digest in digests)
    policy = (
        f"default-src 'none'; script-src {scripts}; style-src 'unsafe-inline'; "
        "img-src data: blob:; font-src data:; base-uri 'none'; form-action 'none'"
    )
    contents = {
        "run": sent({"position": position, "name": name, "payload": run_payload(run, gamma)}),
        "drawn": sent(prerendered_figures(run, gamma, most_steps)),
        "plotly": b64encode(plotly).decode(),
    }
    about: dict[str, Any] = {"title": heading(run), "run": described(run, gamma), "policy": policy}
    about |= {"opening": Html(opening), "code": Html(code), "style": Html(text_of("report.css"))}
    return rendered("report.html", contents=contents, **about)


def file_name(run: Run, dial: float | None = None, gamma: int | None = None) -> str:
    """Return a name for files of a run at a setting: letters, digits and hyphens.

    It contains the exact dial value, and the draft length unless it is the run's own. None is the run's own value.

    >>> file_name(run, 0.9853, 4)  # of 'A story, MARS at θ = 0.9, greedy'
    'a-story-mars-greedy-at-0-9853-gamma-4'
    """
    dial = rule_named(run.settings.rule).checked_dial(run.settings.dial if dial is None else dial)
    at = "" if dial is None else "-at-" + exactly(dial).replace("-", "minus-").replace(".", "-")
    return f"{file_stem(run)}{at}{_length(run, gamma)}"


def file_stem(run: Run) -> str:
    """Return a file name from the title without the recorded setting, or from the prompt."""
    dial = rule_named(run.settings.rule).dial
    title = re.sub(rf"\s(at )?{re.escape(dial.symbol)} = [\d.]*\d", "", run.title) if dial else run.title
    words = "".join(char if char.isascii() and char.isalnum() else " " for char in (title or run.prompt).lower())
    return "-".join(words.split()[:8])[:60] or "run"


def _length(run: Run, gamma: int | None) -> str:
    return "" if gamma in (None, run.settings.gamma) else f"-gamma-{gamma}"


@cache
def _templates() -> Environment:
    """Return the templates of reports and sites. Every value is escaped with `html`."""
    return Environment(
        loader=FileSystemLoader(str(files(__package__) / "templates")),
        autoescape=True,
        finalize=lambda value: value if hasattr(value, "__html__") else html(str(value)),
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )


def rendered(template: str, *, kind: str = "", **parts: Any) -> str:
    """Return the page of a template; text in `parts` is escaped. `kind` is appended to the version."""
    return _templates().get_template(template).render(parts, version=__version__, kind=kind)


def described(run: Run, gamma: int | None = None) -> dict[str, Any]:
    origin = {name: text for name, text in origin_facts(run).facts.items() if name not in _DETAILS}
    facts = Facts({**settings_facts(run, gamma).facts, **origin})
    return {"title": heading(run), "facts": facts, "citation": bibtex(run.settings.rule)}


def framed(run: Run) -> str:
    """Return the report as a sandboxed iframe for notebooks, with figures for the map's segments only."""
    source = escape(report_html(run, most_steps=0), quote=True)
    return (
        f'<iframe srcdoc="{source}" sandbox="allow-scripts allow-downloads" title="MARS Viz" '
        f'style="width: 100%; height: {HEIGHT}px; border: 0"></iframe>'
    )


def heading(run: Run) -> str:
    """Return the run's name in at most 200 characters; not escaped."""
    return " ".join((run.title or run.prompt or "A run").split())[:200]


@cache
def run_view_script() -> str:
    """Return the explorer's script and style, and the surrounding page's scripts, in one scope."""
    style = f"const explorerStyle = {json.dumps(ELEMENT.style)};"
    return "\n".join([style, ELEMENT.script, joined_scripts(["marks"]), *map(text_of, RUN_VIEW)])


def text_of(name: str) -> str:
    return (files(__package__) / name).read_text("utf-8")


def sent(value: Any) -> str:
    """Return the value as base64: one line of JSON followed by the bytes of its arrays, gzipped."""
    parts = packed(value)
    head = json.dumps(parts.head, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return b64encode(gzip.compress(head.encode() + b"\n" + parts.data.tobytes(), 9, mtime=0)).decode()


def check_place(path: str | PathLike[str], *, force: bool = False) -> Path:
    """Return the path for a report, which may replace an earlier report, and other files only with `force`.

    Raises BadInput if it cannot be written there.
    """
    path = Path(path)
    with disk_refusals(path, "looked at", "Choose another place."):
        if path.is_dir():
            raise StorageError(f"{path} is a folder. Name a file in it, such as {path / 'report.html'}.")
        if not path.parent.is_dir():
            raise StorageError(f"The folder {path.parent} does not exist. Make it first, or choose another place.")
        is_report = False
        if path.is_file() and not force:
            with path.open("rb") as file:
                is_report = MARK in file.read(400)  # near the start
        if (path.exists() or path.is_symlink()) and not force and not is_report:
            raise StorageError(f"{path} exists and is not a report. Choose another name, or replace it with --force.")
    if not os.access(path.parent, os.W_OK):
        raise StorageError(f"Nothing can be written to {path.parent}. Choose another place.")
    return path


def write_report(html: str, path: str | PathLike[str], *, force: bool = False) -> Path:
    """Write the report atomically. Raises BadInput as `check_place` does, and on disk errors."""
    path = check_place(path, force=force)
    with disk_refusals(path, remedy="Choose another place, or make room."):
        write_file(path, html.encode())
    return path


def csv_table(frame: pd.DataFrame) -> bytes:
    """Return UTF-8 CSV with a header; see `writer` for text that could be a formula."""
    columns = (frame.iloc[:, place] for place in range(frame.shape[1]))
    cells = ([None if missing else cell for cell, missing in zip(c.to_numpy(), c.isna(), strict=True)] for c in columns)
    return csv_of(frame.columns, zip(*cells, strict=True)).encode("utf-8")


def parquet_table(frame: pd.DataFrame) -> bytes:
    """Return Parquet with the columns' types; mixed columns become text."""
    import pandas as pd  # slow import, rarely needed

    plain = frame.copy()
    for place, name in enumerate(plain.columns):
        column = plain.iloc[:, place]
        if column.dtype == object and column.map(type).nunique() > 1:
            plain[name] = [None if pd.isna(value) else str(value) for value in column]
    buffer = io.BytesIO()
    plain.to_parquet(buffer, index=False)
    return buffer.getvalue()


def settings_drawn(run: Run, gamma: int, most: int = MOST_STEPS) -> list[tuple[float | None, float, float]]:
    """Return the dial values to draw, ascending: the recorded one, starts of segments, and up to `most` steps; None for
    a rule without a dial. With each the range that its figures represent: its segment, from the lower end to the start
    of the next one, or -inf and inf outside the map."""
    dial, dial_map = rule_named(run.settings.rule).dial, run.dial_map
    if dial is None:
        return [(None, -np.inf, np.inf)]
    segments = dial_map.segments_for(gamma) if dial_map is not None and gamma in dial_map.span.gammas else ()
    count = round((dial.high - dial.low) / dial.step)
    stride = max(1, -(-count // most)) if most else count + 1
    steps = (round(dial.low + step * dial.step, 10) for step in range(0, count + 1, stride))
    values = sorted({dial.checked(run.settings.dial), *steps, *(segment.low for segment in segments)})
    ends = [*(segment.high for segment in segments[:-1]), *(math.nextafter(s.high, math.inf) for s in segments[-1:])]
    known = [(s.low, end) for s, end in zip(segments, ends, strict=True) if s.complete]
    outside = (-np.inf, np.inf)
    return [(value, *next((each for each in known if each[0] <= value < each[1]), outside)) for value in values]


def prerendered_figures(run: Run, gamma: int, most: int = MOST_STEPS) -> dict[str, Any]:
    """Return all figures as JSON, in the colours of the light theme."""
    shared, lines = _SharedParts(), []
    segment, at = -np.inf, positions(run)  # start of the previous setting's segment, and its positions
    for dial, low, high in settings_drawn(run, gamma, most):
        same = np.isfinite(low) and low == segment
        segment, at = low, replace(at, dial=dial) if same else positions(*shown(run, dial, gamma))
        drawn = [shared.put(make(at, figures.LIGHT)) for make in figures.ALONG_THE_DIAL]
        lines.append([dial, *(end if np.isfinite(end) else None for end in (low, high)), at.words, *drawn])
    maps: list[dict[str, Any]] = []  # heat maps of each quantity, in which the page moves marks named `DIAL_MARK`
    if run.dial_map is not None:
        grid = map_grid(run.dial_map)
        for quantity in QUANTITIES:
            figure = heat_map(grid, run, quantity, figures.LIGHT, dial=run.settings.dial, gamma=gamma)
            maps.append({"label": quantity.label, "spec": shared.put(figure)})
    return {
        "names": [make.__name__ for make in figures.ALONG_THE_DIAL],
        "settings": lines,
        "maps": maps,
        "dialMark": DIAL_MARK,
        **shared.to_json(),
    }


def figure_alone(figure: go.Figure) -> dict[str, Any]:
    """Return a figure without a dial as JSON, in the colours of the light theme."""
    shared = _SharedParts()
    shared.put(figure)
    return shared.to_json()


class _SharedParts:
    """Distinct figures and traces as Plotly JSON, and their common template."""

    def __init__(self) -> None:
        self.specs: list[dict[str, Any]] = []
        self.traces: list[dict[str, Any]] = []
        self.template: Any = {}
        self._index_by_key: dict[str, int] = {}

    def put(self, figure: go.Figure) -> int:
        """Return the index of this figure, whose `data` are indices of traces."""
        layout = figure.layout.to_plotly_json()
        self.template = layout.pop("template", self.template)
        kinds = {"scattergl": "scatter"}  # Plotly's basic bundle draws without WebGL
        traces = (trace.to_plotly_json() | {"type": kinds.get(trace.type, trace.type)} for trace in figure.data)
        data = [self._index(trace, self.traces) for trace in traces]
        return self._index({"data": data, "layout": layout}, self.specs)

    def to_json(self) -> dict[str, Any]:
        """Return all parts, with a map from light to dark colours."""
        colours = dict(zip(astuple(figures.LIGHT), astuple(figures.DARK), strict=True))
        return {"specs": self.specs, "traces": self.traces, "template": self.template, "colours": colours}

    def _index(self, value: dict[str, Any], kept: list[dict[str, Any]]) -> int:
        key = json.dumps(value, default=_listed)
        if key not in self._index_by_key:
            self._index_by_key[key] = len(kept)
            kept.append(json.loads(key))
        return self._index_by_key[key]


def _listed(array: np.ndarray) -> list[Any]:
    """Convert an array to JSON with six significant digits; NaN becomes null."""
    if array.ndim > 1:
        return [_listed(line) for line in array]
    if array.dtype.kind != "f":
        return array.tolist()
    return [float(f"{number:.6g}") if math.isfinite(number) else None for number in array.tolist()]
