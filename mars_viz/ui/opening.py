"""What the server does before its first tab: it gets ready what the first page needs, while a browser is on its way.

Knows Streamlit's server and the pages' parts. From the server's start until a browser has loaded Streamlit's own
scripts and asks for a page, a second or two go by in which the server has little to do.
"""

from __future__ import annotations

import webbrowser
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import cache
from threading import Event, Thread

import streamlit as st
from streamlit.starlette import App

from mars_viz.errors import BadInput
from mars_viz.ui import navigation

EVERYWHERE = ("0.0.0.0", "::")
"""Addresses to serve at that are none to go to."""


@asynccontextmanager
async def warmed_up(_: App) -> AsyncIterator[None]:
    """For `st.App`, around the server's life."""
    navigation.know_app()
    _warm_up().start()
    if not st.get_option("server.headless"):  # Streamlit opens a browser for a script, but not for an App
        webbrowser.open(address())
    yield


def address() -> str:
    """Where the app is to be found on this machine."""
    host, path = st.get_option("server.address"), st.get_option("server.baseUrlPath").strip("/")
    scheme = "https" if st.get_option("server.sslCertFile") else "http"
    host = "localhost" if not host or host in EVERYWHERE else f"[{host}]" if ":" in host else host
    return f"{scheme}://{host}:{st.get_option('server.port')}/{path}"


def wait_for_imports() -> None:
    """Return once the warm-up has imported what it will: modules imported by two threads crosswise may be seen half."""
    if _warm_up.cache_info().currsize:
        _warm_up().imported.wait()


class WarmUp(Thread):
    """Imports what the pages need, then reads the run that Explore opens by itself and gets it ready to be sent."""

    def __init__(self) -> None:
        super().__init__(name="warm-up", daemon=True)
        self.imported = Event()

    def run(self) -> None:
        """Nothing that is wrong here is told here: the page meets it again, and says it."""
        try:
            import pandas  # noqa: F401  Streamlit wants it as soon as it is given a table

            from mars_viz.components.explorer.element import get_ready
            from mars_viz.ui import library, live, share  # noqa: F401  and with them nearly all that pages need
            from mars_viz.ui.links import View
            from mars_viz.ui.session import Session
        finally:
            self.imported.set()
        with suppress(BadInput):
            shelf = library.shelf(Session())
            get_ready(shelf.opened(shelf.landed(View())[0].run))


@cache
def _warm_up() -> WarmUp:
    return WarmUp()
