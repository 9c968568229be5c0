"""Opens uploads on Explore, and shows an engine's file: counts under each engine's definition, the text by rounds, and
an upper bound on the rejections that MARS could have accepted.

Everything shown is from the file; missing information is marked as unknown.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import streamlit as st
from streamlit.runtime.uploaded_file_manager import UploadedFile

from mars_viz.analysis.engine_file import EngineFile, RejectionBound, ServedRounds, decoded, read_file
from mars_viz.analysis.engines import acceptance_table
from mars_viz.errors import BadInput, contained
from mars_viz.escapes import Html, html, joined
from mars_viz.figures.engines import bound_curve, ratios_along_the_text
from mars_viz.imports import import_run
from mars_viz.runfiles import read_zip
from mars_viz.sweep import document
from mars_viz.ui import theme
from mars_viz.ui.documents import draw as draw_blocks
from mars_viz.ui.session import Session
from mars_viz.words import counted, number

KEY = "engine-file"  # session key of the opened file
LONGEST = 4_000  # maximum number of tokens shown


def add_upload(session: Session, upload: UploadedFile) -> bool:
    """Open the zip of a run, an engine's file, or the runs in a log of complete rounds. Errors become a notice. Returns
    False if it is the last upload read."""
    if upload.file_id == session.uploaded:
        return False
    session.uploaded = upload.file_id
    session.notices.clear()
    engine_file, data = None, upload.getvalue()
    try:
        with contained("The file"), tempfile.TemporaryDirectory() as folder:
            if upload.name.endswith(".zip"):
                runs = [read_zip(data, Path(folder) / "run")]
            else:
                engine_file = read_file(decoded(data))
                runs = [import_run(each)[0] for each in engine_file.texts]
    except BadInput as error:
        session.notices.append(str(error))
    else:
        for run in runs:
            session.open(session.keep(run, "upload"))
        st.session_state[KEY] = None if runs else (upload.file_id, engine_file)
    return True


def opened() -> tuple[str, EngineFile] | None:
    """Return this tab's opened file, if any, after the id of its upload."""
    opened_file: tuple[str, EngineFile] | None = st.session_state.get(KEY)
    return opened_file


def close() -> None:
    st.session_state[KEY] = None


def draw(upload_id: str, engine_file: EngineFile) -> None:
    words, button = st.columns([6, 1], vertical_alignment="center")
    with words:
        theme.note(engine_file.summary)
    button.button("Close", key="close-engine-file", on_click=close, width="stretch", help="Back to the runs")
    if engine_file.served:
        _rounds(upload_id, engine_file.served)
    else:
        theme.small(f"No rounds, so no margins. {engine_file.unread}")
    draw_counts(engine_file)


def _rounds(upload_id: str, served: Sequence[ServedRounds]) -> None:
    names = [f"{place}. {each.name}" for place, each in enumerate(served, 1)]
    chosen = served[0]
    if len(served) > 1:
        key = f"request-{upload_id}"
        chosen = served[st.selectbox("Request", range(len(served)), key=key, format_func=names.__getitem__)]
    model, rejected = f"{chosen.model} wrote" if chosen.model else "It wrote", int(chosen.corrected.sum())
    theme.small(
        f"{model} {counted(len(chosen.texts), 'token')} in {counted(chosen.counts.steps, 'round')}, "
        f"τ = {number(chosen.tau)}; {counted(rejected, 'round')} ended with a rejection."
    )
    theme.show(_text(chosen))
    bound = RejectionBound.of(served)
    left, right = st.columns(2)
    colours = theme.figure_theme()
    with left:
        theme.chart(ratios_along_the_text(chosen, colours), "ratios-along-the-text")
    with right:
        theme.chart(bound_curve(bound, colours), "bound")
    theme.small(bound.sentence + (" Over all requests." if len(served) > 1 else ""))


def _text(served: ServedRounds) -> Html:
    """Return the text with alternate rounds shaded, and tokens that replace a rejected one underlined."""
    cells = []
    for place, text in enumerate(served.texts[:LONGEST]):
        kind, mark = ("kept", "") if served.drafted[place] else ("bonus", "+")
        if served.corrected[place]:
            kind, mark = "corrected", "↺"
        ground = " odd" if int(served.round_index[place]) % 2 else ""
        cells.append(Html(f'<span class="{html(kind + ground)}">{html(mark + (text or "(empty)"))}</span>'))
    more = len(served.texts) - LONGEST
    rest = [Html(f"<p>… and {html(number(more))} tokens more.</p>")] if more > 0 else []
    key = (
        "Every other round has a background. ↺ was written in place of a rejected token, + after a whole block or by "
        "the prefill."
    )
    text = Html(f'<p class="mv-served" dir="auto">{joined(cells)}</p>')
    return joined([Html(f'<p class="mv-small">{html(key)}</p>'), text, *rest])


def draw_counts(engine_file: EngineFile) -> None:
    """Draw the table of acceptance under each engine's definition, and acceptance by position if it is known."""
    rows = acceptance_table([counts for _, counts in engine_file.requests])
    theme.section("Acceptance under every engine's definition")
    theme.small("Measured. Cells stay empty for figures that the engine does not report.")
    by_engine, by_place = document.by_definition(rows), document.by_position(rows)
    draw_blocks([replace(by_engine, key="engine-file-acceptance")])
    if by_place.rows:
        draw_blocks([replace(by_place, key="engine-file-positions")])
