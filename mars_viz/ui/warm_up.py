"""What the server does before a tab: it gets ready what the tab will need, while a browser is on its way.

Knows Streamlit's server and the pages' parts. From the server's start until a browser asks for a page, and from there
until it has loaded Streamlit's own scripts and asks for what is on the page, seconds go by in which the server has
little to do.
"""

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
from mars_viz.classroom import class_limits
from mars_viz.errors import BadInput, contained
from mars_viz.ui import navigation, visitors
from mars_viz.ui.classroom import door
from mars_viz.ui.classroom.server_class import server_class
from mars_viz.words import counted

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

    from mars_viz.ui.links import View

EVERYWHERE = ("0.0.0.0", "::")
"""Addresses to serve at that are none to go to."""
EXPLORE = "explore"
"""The page to which a link to a run leads; so does the bare address."""


@asynccontextmanager
async def warmed_up(_: App) -> AsyncIterator[None]:
    """For `st.App`, around the server's life."""
    navigation.know_app()
    _warm_up().start()
    _say_who()
    _say_class()
    if not st.get_option("server.headless"):  # Streamlit opens a browser for a script, but not for an App
        webbrowser.open(address())
    yield


def _say_who() -> None:
    """In the server's terminal, who may name folders of this machine, where that is not what one expects."""
    try:
        said = permissions.about_paths(visitors.address())
    except BadInput as error:
        said = str(error)
    if said:
        print(said, file=sys.stderr, flush=True)


def _say_class() -> None:
    """In the server's terminal, the teacher's link of a classroom, and what is wrong with its settings."""
    its = server_class()
    if its is None:
        return
    try:
        class_limits()
    except BadInput as error:
        print(error, file=sys.stderr)
    limits = its.limits
    print(
        f"Classroom: a student's browser has {counted(limits.jobs, 'job')} at once, {limits.tokens} new tokens each. "
        f"This link makes a teacher of whoever opens it, so keep it to yourself:\n{door.link(address(), its)}",
        file=sys.stderr,
        flush=True,
    )


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
            from mars_viz.ui import library, links, share, tab_jobs  # noqa: F401  and with them nearly all that pages need
        finally:
            self.imported.set()
        from mars_viz.ui.links import View

        get_ready(View())


class ReadAhead:
    """Around the app, as Starlette's middleware: where a browser asks for the page of a link, it reads the link's run
    and gets it ready to be sent. One at a time: a run whose turn it is not is read when its tab asks for it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app, self._turn = app, Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on what was asked, and look at it."""
        link = asked_for(scope)
        if "run" in link and self._turn.acquire(blocking=False):
            try:
                Thread(target=self._read, args=(link,), name="read-ahead", daemon=True).start()
            except RuntimeError:  # no thread can be had now; nobody needs this one
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
    """The link of a page that shows runs, as its query parameters; empty where a request is for anything else."""
    if scope["type"] != "http" or scope["method"] != "GET":
        return {}
    base = str(st.get_option("server.baseUrlPath") or "").strip("/")
    if scope["path"].strip("/") not in (base, f"{base}/{EXPLORE}".strip("/")):
        return {}
    return {name: values[0] for name, values in parse_qs(scope["query_string"].decode("latin-1")).items()}


def get_ready(view: View) -> None:
    """Read the run that Explore opens for this view, and make what is sent of it.

    What is wrong with it is not told here: the page meets it again, and says it.
    """
    from mars_viz.components.explorer import element
    from mars_viz.ui import library, links
    from mars_viz.ui.session import Session

    with suppress(BadInput), contained("The run of a link"):
        shelf = library.shelf(Session())
        view, _ = shelf.landed(view)
        run = shelf.opened(view.run)
        view = links.fitted(view, run).view
        element.get_ready(run, view.gamma, view.cuts)


@cache
def _warm_up() -> WarmUp:
    return WarmUp()
