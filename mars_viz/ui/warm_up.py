"""Prepares the server before a tab needs it: imports libraries at the start, and reads a link's run while the browser
loads Streamlit's scripts."""

from __future__ import annotations

import sys
import webbrowser
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from functools import cache
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING
from urllib.parse import parse_qs

import streamlit as st
from streamlit.starlette import App

from mars_viz import permissions
from mars_viz.errors import BadInput, contained
from mars_viz.permissions import class_limits
from mars_viz.ui import navigation, visitors
from mars_viz.ui.classroom import door
from mars_viz.ui.classroom.server_class import server_class
from mars_viz.words import counted

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

    from mars_viz.ui.links import View

EVERYWHERE = ("0.0.0.0", "::")  # listening addresses that are not addresses to open
EXPLORE = "explore"  # path of the page that shows runs, as does the bare address


@asynccontextmanager
async def warmed_up(_: App) -> AsyncIterator[None]:
    """Lifespan of `st.App`: start the warm-up and print the server's settings."""
    navigation.know_app()
    _warm_up().start()
    try:
        message = permissions.about_paths(visitors.address())
    except BadInput as error:
        message = str(error)
    if message:
        print(message, file=sys.stderr, flush=True)
    _print_classroom()
    if not st.get_option("server.headless"):  # Streamlit does not open a browser for an App
        webbrowser.open(address())
    yield


def _print_classroom() -> None:
    classroom = server_class()
    if classroom is None:
        return
    try:
        class_limits()
    except BadInput as error:
        print(error, file=sys.stderr)
    jobs, tokens = counted(classroom.limits.jobs, "job"), classroom.limits.tokens
    words = f"Classroom: a student's browser has {jobs} at once, {tokens} new tokens each. Anyone who opens this link"
    link = door.link(address(), classroom)
    print(f"{words} becomes a teacher, so keep it to yourself:\n{link}", file=sys.stderr, flush=True)


def address() -> str:
    """Return the app's address on this machine."""
    host, path = st.get_option("server.address"), st.get_option("server.baseUrlPath").strip("/")
    scheme = "https" if st.get_option("server.sslCertFile") else "http"
    host = "localhost" if not host or host in EVERYWHERE else f"[{host}]" if ":" in host else host
    return f"{scheme}://{host}:{st.get_option('server.port')}/{path}"


def wait_for_imports() -> None:
    """Wait until the warm-up has finished its imports. Two threads that import modules in different orders may see
    incomplete modules."""
    if _warm_up.cache_info().currsize:
        _warm_up().imported.wait()


class WarmUp(Thread):
    """Imports the pages' libraries, then prepares the default run of Explore."""

    def __init__(self) -> None:
        super().__init__(name="warm-up", daemon=True)
        self.imported = Event()

    def run(self) -> None:
        """Import and prepare. If an import fails, tabs no longer wait and get the same error."""
        try:
            import pandas  # noqa: F401  Streamlit needs it for the first table
            import pyarrow

            pyarrow.set_memory_pool(pyarrow.system_memory_pool())  # Arrow's own pool is half as fast for long runs
            from mars_viz.ui import explore, gallery, live, runs  # noqa: F401  they import most of the other modules
        finally:
            self.imported.set()
        from mars_viz.ui.links import View

        get_ready(View())


class ReadAhead:
    """Starlette middleware that reads a link's run when a browser requests the page. It reads one run at a time; other
    runs are read by their tab."""

    def __init__(self, app: ASGIApp) -> None:
        self._app, self._turn = app, Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, and begin reading its run."""
        link = asked_for(scope)
        if "run" in link and self._turn.acquire(blocking=False):
            try:
                Thread(target=self._read, args=(link,), name="read-ahead", daemon=True).start()
            except RuntimeError:  # no thread is available, and this one is optional
                self._turn.release()
        await self._app(scope, receive, send)

    def _read(self, link: Mapping[str, str]) -> None:
        try:
            wait_for_imports()
            from mars_viz.ui.links import View, from_parameters

            get_ready(from_parameters(View, link).view)
        finally:
            self._turn.release()


def asked_for(scope: Scope) -> dict[str, str]:
    """Return the query parameters if the request is for a page that shows runs, otherwise an empty dict."""
    if scope["type"] != "http" or scope["method"] != "GET":
        return {}
    base = str(st.get_option("server.baseUrlPath") or "").strip("/")
    if scope["path"].strip("/") not in (base, f"{base}/{EXPLORE}".strip("/")):
        return {}
    return {name: values[0] for name, values in parse_qs(scope["query_string"].decode("latin-1")).items()}


def get_ready(view: View) -> None:
    """Read the run that Explore opens for this view, and prepare its data. Errors are ignored, because the page reports
    them."""
    from mars_viz.components.explorer import element
    from mars_viz.ui import library, links
    from mars_viz.ui.session import Session

    with suppress(BadInput), contained("The run of a link"):
        catalog = library.shelf(Session())
        view, _ = catalog.landed(view)
        run = catalog.opened(view.run)
        view = links.fitted(view, run).view
        element.cached_payload(run, view.gamma, view.cuts)


@cache
def _warm_up() -> WarmUp:
    return WarmUp()
