"""Start of the server: imports all pages before the first tab, prints the settings and opens a browser."""

from __future__ import annotations

import sys
import webbrowser
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pyarrow
import streamlit as st
from streamlit.runtime.pages_manager import PagesManager
from streamlit.starlette import App

from mars_viz import permissions
from mars_viz.errors import BadInput
from mars_viz.permissions import class_limits
from mars_viz.ui import explore, gallery, live, runs, visitors  # noqa: F401  pages import most modules
from mars_viz.ui.classroom import door
from mars_viz.ui.classroom.rights import server_class
from mars_viz.words import counted


@asynccontextmanager
async def lifespan(_: App) -> AsyncIterator[None]:
    """Lifespan of `st.App`: print the server's settings and open a browser."""
    PagesManager.uses_pages_directory = False  # Streamlit runs app.py for every link, and never a page's file by itself
    pyarrow.set_memory_pool(pyarrow.system_memory_pool())  # Arrow's own pool is half as fast for long runs
    try:
        message = permissions.about_paths(visitors.address())
    except BadInput as error:
        message = str(error)
    if message:
        print(message, file=sys.stderr, flush=True)
    if (classroom := server_class()) is not None:
        try:
            class_limits()
        except BadInput as error:
            print(error, file=sys.stderr)
        jobs, tokens = counted(classroom.limits.jobs, "job"), classroom.limits.tokens
        words = (
            f"Classroom: a student's browser has {jobs} at once, {tokens} new tokens each. Anyone who opens this link"
        )
        link = door.link(address(), classroom)
        print(f"{words} becomes a teacher, so keep it to yourself:\n{link}", file=sys.stderr, flush=True)
    if not st.get_option("server.headless"):  # Streamlit does not open a browser for an App
        webbrowser.open(address())
    yield


def address() -> str:
    host, path = st.get_option("server.address"), st.get_option("server.baseUrlPath").strip("/")
    scheme = "https" if st.get_option("server.sslCertFile") else "http"
    host = "localhost" if not host or host in ("0.0.0.0", "::") else f"[{host}]" if ":" in host else host
    return f"{scheme}://{host}:{st.get_option('server.port')}/{path}"
