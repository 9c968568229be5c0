"""That a link to any page goes through app.py, also when it is the first thing that a fresh server is asked for."""

from __future__ import annotations

import streamlit as st
from streamlit.runtime.pages_manager import PagesManager


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
