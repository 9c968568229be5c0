"""Navigation between pages: writes links, handles Back and theme changes, and forgets a page that was left."""

from __future__ import annotations

from collections.abc import Mapping

import streamlit as st
from streamlit.runtime.scriptrunner import get_script_run_ctx

from mars_viz.components.mount import Element, mount
from mars_viz.ui import models_form
from mars_viz.ui.session import current_session

PAGE = Element("mars_viz_page", ("page",))


def keep_to_the_browser() -> None:
    """Make the browser's Back button go to the previous page, and rerun the script when the theme changes.

    All links that a page writes count as one step of the browser's history. When the theme changes, Streamlit only
    adapts its own colours and not those of figures.
    """
    drawn = st.context.theme.type
    mount(PAGE, [drawn] if drawn else None, key="every-page", answers=("changed",))


def write_link(parameters: Mapping[str, str]) -> None:
    """Write the shown state and the tab's models to the address. It is only written if it differs, because each write
    is sent to the browser."""
    session = current_session()
    all_parameters = {**models_form.models_written(session.models, session.begun), **parameters}
    if st.query_params.to_dict() != all_parameters:
        st.query_params.from_dict(all_parameters)


def forget_last_page() -> None:
    """Remove the fragments of the tab's last page if this run is of another one. app.py calls this first.

    A polling fragment may request a rerun while the other page is being drawn, because the browser stops polling only
    after it hears of the new page. Streamlit 1.67 then runs the fragment and reports a run of the old page, and the
    browser removes the new page. Streamlit does not run unknown fragments.
    """
    context, session = get_script_run_ctx(suppress_warning=True), current_session()
    if context is not None and context.page_script_hash != session.page:
        session.page = context.page_script_hash
        context.fragment_storage.clear()
