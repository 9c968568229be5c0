"""The ways from page to page: that every page goes through app.py, the link of what it shows, what the browser's Back
leads to, that a change of theme draws it again, and how a script opens another page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NoReturn

import streamlit as st
from streamlit.runtime.pages_manager import PagesManager

from mars_viz.components.mount import Element, mount
from mars_viz.ui import models_link
from mars_viz.ui.session import current_session

PAGE = Element("mars_viz_page", ("page",))


def through_app() -> None:
    """Run app.py, and this page from there, if the page runs by itself.

    Until app.py has called st.navigation for the first time, Streamlit takes the files in pages/ for scripts of their
    own, and a link to one skips app.py: no wide layout, no navigation. Every page calls this first.
    """
    if PagesManager.uses_pages_directory:
        know_app()
        st.rerun()


def know_app() -> None:
    """Have Streamlit run app.py for every link, from now on."""
    PagesManager.uses_pages_directory = False


def keep_to_the_browser() -> None:
    """Have Back lead to the page before: all that a page writes into its link is one step of the browser's history. And
    run the script again where the page's theme is not, or is no longer, the one it was drawn for, by the menu or by the
    system's clock: Streamlit changes its own colours alone, and figures keep theirs."""
    drawn = st.context.theme.type
    mount(PAGE, [drawn] if drawn else None, key="every-page", answers=("changed",))


def write_link(parameters: Mapping[str, str]) -> None:
    """Let the address say what is shown, and the tab's models. One that says it is left alone: the browser is told of
    each one written."""
    session = current_session()
    every = {**models_link.written(session.models, session.begun), **parameters}
    if st.query_params.to_dict() != every:
        st.query_params.from_dict(every)


def leave_for(page: str) -> NoReturn:
    """Open another page, such as "pages/explore.py", from a page on which something looks at a job every now and then.

    Such a fragment may ask for its next look while the other page is being drawn, for the browser stops asking only
    once it hears of that page. Streamlit (1.67) then runs the fragment after it, and tells the browser of a run of the
    page that was left, at which the browser takes down the page it shows. A fragment that is not known any more is not
    run, so the left page's are forgotten here and not, as Streamlit does it, after the other page is drawn.
    """
    from streamlit.runtime.scriptrunner import get_script_run_ctx

    context = get_script_run_ctx(suppress_warning=True)
    if context is not None:
        context.fragment_storage.clear()
    st.switch_page(page)
