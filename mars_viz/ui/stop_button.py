"""The button that stops a job, which does not keep it: Streamlit never forgets a widget that a tab has shown, nor what
its callback holds, and a job holds all that it made."""

from __future__ import annotations

from typing import Any
from weakref import ref

from streamlit.delta_generator import DeltaGenerator

from mars_viz.escapes import markdown
from mars_viz.ui.jobs.job import Job


def stop_button(place: DeltaGenerator, words: str, job: Job[Any], *, keeps: str = "", key: str | None = None) -> None:
    """Draw it in that place; `keeps` says what of the job is kept."""
    known = ref(job)

    def stop() -> None:
        found = known()
        if found is not None:
            found.cancel()

    place.button(
        markdown(words),
        key=key,
        on_click=stop,
        disabled=job.stopping,
        width="stretch",
        help=markdown(keeps) or None,
    )
