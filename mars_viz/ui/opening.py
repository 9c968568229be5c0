"""What the server does before a tab: it gets ready what the tab will need, while a browser is on its way.

Knows Streamlit's server and the pages' parts. From the server's start until a browser asks for a page, and from there
until it has loaded Streamlit's own scripts and asks for what is on the page, seconds go by in which the server has
little to do.
"""

from __future__ import annotations

import webbrowser
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import cache
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING
from urllib.parse import parse_qs

import streamlit as st
from streamlit.starlette import App

from mars_viz.errors import BadInput
from mars_viz.ui import navigation

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

EVERYWHERE = ("0.0.0.0", "::")
"""Addresses to serve at that are none to go to."""
SHOW_RUNS = ("explore", "")
"""The pages to which a link to a run leads; the bare address is one of them."""


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
    """Imports what the pages need, then gets the run ready that Explore opens by itself."""

    def __init__(self) -> None:
        super().__init__(name="warm-up", daemon=True)
        self.imported = Event()

    def run(self) -> None:
        """An import that fails lets go of the tab, which meets it again."""
        try:
            import pandas  # noqa: F401  Streamlit wants it as soon as it is given a table
            import pyarrow

            pyarrow.set_memory_pool(pyarrow.system_memory_pool())  # Arrow's own takes twice as long to read a long run
            from mars_viz.ui import library, links, live, share  # noqa: F401  and with them nearly all that pages need
        finally:
            self.imported.set()
        get_ready("")


class ReadAhead:
    """Around the app, as Starlette's middleware: where a browser asks for the page of a link, it reads the link's run
    and gets it ready to be sent. One at a time: a run whose turn it is not is read when its tab asks for it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app, self._turn = app, Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on what was asked, and look at it."""
        run = asked_for(scope)
        if run and self._turn.acquire(blocking=False):
            Thread(target=self._read, args=(run,), name="read-ahead", daemon=True).start()
        await self._app(scope, receive, send)

    def _read(self, run: str) -> None:
        try:
            wait_for_imports()
            get_ready(run)
        finally:
            self._turn.release()


def asked_for(scope: Scope) -> str:
    """The run that the link of a page leads to; empty where a request is for anything else."""
    if scope["type"] != "http" or scope["path"].rpartition("/")[2] not in SHOW_RUNS:
        return ""
    return parse_qs(scope["query_string"].decode("latin-1")).get("run", [""])[0]


def get_ready(run_id: str) -> None:
    """Read that run, empty for the one that Explore opens by itself, and make what is sent of it.

    What is wrong with it is not told here: the page meets it again, and says it.
    """
    from mars_viz.components.explorer import element
    from mars_viz.ui import library
    from mars_viz.ui.links import View
    from mars_viz.ui.session import Session

    with suppress(BadInput):
        shelf = library.shelf(Session())
        element.get_ready(shelf.opened(run_id or shelf.landed(View())[0].run))


@cache
def _warm_up() -> WarmUp:
    return WarmUp()
