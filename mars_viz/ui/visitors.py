"""Tells browsers apart, so that what one made can be left to it: by a random cookie that it gets with its first page;
and those of the server's own machine from others, which may name none of its folders.

Knows Starlette and Streamlit's context; knows nothing of what is kept. Scripts cannot read the cookie, and what the
server keeps of it is a mark from which it cannot be found.
"""

from __future__ import annotations

import os
import re
import secrets
import tempfile
from collections.abc import Mapping
from hashlib import sha256
from http.cookies import CookieError, SimpleCookie
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import streamlit as st
from starlette.datastructures import Headers, MutableHeaders

from mars_viz import default_folders, permissions, samples
from mars_viz.errors import BadInput
from mars_viz.permissions import MayNamePaths, is_this_machine

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

COOKIE = "mars_viz_browser"
_BYTES = 32
_SECRET = re.compile(r"[\w-]{43}", re.ASCII)
_SECONDS = 400 * 86_400  # browsers keep none for longer; each page that is loaded begins it anew


_PASSED_ON = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-real-ip", "via")
"""Headers of proxies: whoever asks sits elsewhere."""


def may_name_paths() -> bool:
    """True where the browser whose script is running may name folders of this machine, and see where things lie."""
    try:
        who = permissions.who_may_name_paths()
    except BadInput:
        return False
    if who is MayNamePaths.LOCAL:
        return is_this_machine(address()) and _asks_itself(st.context.headers)
    return who is MayNamePaths.EVERYBODY


def told(sentence: str) -> str:
    """A sentence for the browser whose script is running: of where on this machine things lie it has their names alone,
    unless it may know."""
    if os.sep not in sentence or may_name_paths():
        return sentence
    known = (default_folders.runs(), default_folders.sweeps(), samples.RUNS.parent, Path(tempfile.gettempdir()))
    for folder in sorted((str(folder.absolute()) for folder in known), key=len, reverse=True):
        sentence = sentence.replace(f"{folder}{os.sep}", "").replace(folder, "the server's folder")
    return sentence


def address() -> str:
    """Where the server listens; empty for everywhere."""
    return str(st.get_option("server.address") or "")


def _asks_itself(headers: Mapping[str, str]) -> bool:
    """True of a request to the server by a name of its own machine, which nobody has passed on."""
    named = {name.lower(): value for name, value in headers.items()}
    try:
        host = urlsplit(f"//{named.get('host', '')}").hostname or ""
    except ValueError:
        return False
    return is_this_machine(host) and not any(name in named for name in _PASSED_ON)


def mark() -> str:
    """Of the browser whose script is running; empty where it sends no cookie, and where no script is running."""
    from streamlit.runtime.scriptrunner import get_script_run_ctx

    if get_script_run_ctx(suppress_warning=True) is None:
        return ""
    return mark_of(str(st.context.cookies.get(COOKIE, "")))


def mark_of(secret: str) -> str:
    """Of the browser that has this cookie; empty where that is none of ours."""
    return sha256(f"{COOKIE} {secret}".encode()).hexdigest() if _SECRET.fullmatch(secret) else ""


def secret_of(cookies: str) -> str:
    """What a header says our cookie is; empty where it has none of ours."""
    try:
        found = SimpleCookie(cookies).get(COOKIE)
    except CookieError:
        found = None
    return found.value if found is not None and _SECRET.fullmatch(found.value) else ""


class KnowsBrowsers:
    """Around the app, as Starlette's middleware: gives each browser that loads a page its cookie."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on what was asked, and send the cookie with the page."""
        asked = Headers(scope=scope) if scope["type"] == "http" and scope["method"] == "GET" else Headers()
        if "text/html" not in asked.get("accept", ""):
            await self._app(scope, receive, send)
            return
        cookie = set_cookie(asked.get("cookie", ""), asked.get("x-forwarded-proto", scope["scheme"]) == "https")

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.append("set-cookie", cookie)
                headers["cache-control"] = "private, no-cache"  # no proxy gives one browser's to another
            await send(message)

        await self._app(scope, receive, sending)


def set_cookie(sent: str, is_secure: bool) -> str:
    """The header that lets a browser keep the cookie that it `sent`, or a new one.

    Over TLS it is also sent inside a page of another site, as on Spaces, but each such site has one of its own.
    """
    secret = secret_of(sent) or secrets.token_urlsafe(_BYTES)
    base = str(st.get_option("server.baseUrlPath") or "").strip("/")
    where = "SameSite=None; Secure; Partitioned" if is_secure else "SameSite=Lax"
    return f"{COOKIE}={secret}; Path=/{base}; Max-Age={_SECONDS}; HttpOnly; {where}"
