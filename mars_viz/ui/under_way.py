"""Work that goes on behind a page: how far it is, and a way to stop it. Knows sessions and jobs' progress."""

from __future__ import annotations

import streamlit as st

from mars_viz.escapes import markdown
from mars_viz.ui import faults, tab_jobs, theme
from mars_viz.ui.session import Session
from mars_viz.ui.stop_button import stop_button


def decoding(session: Session) -> None:
    """A decode under way: how far it is, a way to stop it, and the text so far."""
    faults.fragment(_decoding, run_every=tab_jobs.pace())(session)


def _decoding(session: Session) -> None:
    job = session.job
    if job is None or job.progress.state.readable:
        st.rerun()
    progress, limit = job.progress, job.settings.max_new_tokens
    words = tab_jobs.what_goes_on(progress, limit, tab_jobs.shared_worker().ahead(job), job.stopping)
    bar, button = st.columns([6, 1], vertical_alignment="center")
    bar.progress(min(1.0, progress.tokens / limit), markdown(words))
    stop_button(button, "Cancel", job, keeps="Keeps what was decoded")
    theme.live_text(job.prompt, progress.text)
