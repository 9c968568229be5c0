"""Identifies browsers by a random cookie, so that each can manage its own runs, and recognizes browsers on the server's
machine, which may name its folders.

Scripts cannot read the cookie. The server stores only a hash of it, the mark.
"""

from __future__ import annotations

import os
import re
import secrets
import tempfile
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import streamlit as st
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser

from mars_viz import default_folders, permissions, samples
from mars_viz.errors import BadInput
from mars_viz.permissions import MayNamePaths, is_this_machine

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

COOKIE = "mars_viz_browser"
_BYTES = 32
_SECRET = re.compile(r"[\w-]{43}", re.ASCII)
_SECONDS = 400 * 86_400  # maximum age that browsers accept; renewed with each page


_PASSED_ON = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-real-ip", "via")
"""Headers that proxies add, so that the request is not local."""


def may_name_paths() -> bool:
    """Return True if the script's browser may name folders of this machine and see its paths."""
    try:
        who = permissions.who_may_name_paths()
    except BadInput:
        return False
    if who is MayNamePaths.LOCAL:
        return is_this_machine(address()) and _asks_itself(st.context.headers)
    return who is MayNamePaths.EVERYBODY


def told(sentence: str) -> str:
    """Return the sentence with server paths removed, unless the browser may see them."""
    if os.sep not in sentence or may_name_paths():
        return sentence
    folders = (default_folders.runs(), default_folders.sweeps(), samples.RUNS.parent, Path(tempfile.gettempdir()))
    for folder in sorted((str(folder.absolute()) for folder in folders), key=len, reverse=True):
        sentence = sentence.replace(f"{folder}{os.sep}", "").replace(folder, "the server's folder")
    return sentence


def address() -> str:
    """Return the address that the server listens on; empty for all addresses."""
    return str(st.get_option("server.address") or "")


def _asks_itself(headers: Mapping[str, str]) -> bool:
    """Return True for a request to a local host name without a proxy."""
    named = {name.lower(): value for name, value in headers.items()}
    try:
        host = urlsplit(f"//{named.get('host', '')}").hostname or ""
    except ValueError:
        return False
    return is_this_machine(host) and not any(name in named for name in _PASSED_ON)


def mark() -> str:
    """Return the mark of the script's browser; empty without a cookie or a running script."""
    from streamlit.runtime.scriptrunner import get_script_run_ctx

    if get_script_run_ctx(suppress_warning=True) is None:
        return ""
    return mark_of(str(st.context.cookies.get(COOKIE, "")))


def mark_of(secret: str) -> str:
    return sha256(f"{COOKIE} {secret}".encode()).hexdigest() if _SECRET.fullmatch(secret) else ""


def secret_of(cookies: str) -> str:
    secret = cookie_parser(cookies).get(COOKIE, "")
    return secret if _SECRET.fullmatch(secret) else ""


class KnowsBrowsers:
    """Starlette middleware that gives each browser a cookie when it loads a page."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Headers(scope=scope) if scope["type"] == "http" and scope["method"] == "GET" else Headers()
        if "text/html" not in request.get("accept", ""):
            await self._app(scope, receive, send)
            return
        cookie = set_cookie(request.get("cookie", ""), request.get("x-forwarded-proto", scope["scheme"]) == "https")

        async def send_with_cookie(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.append("set-cookie", cookie)
                headers["cache-control"] = "private, no-cache"  # a proxy must not share the cookie between browsers
            await send(message)

        await self._app(scope, receive, send_with_cookie)


def set_cookie(sent: str, is_secure: bool) -> str:
    """Return a Set-Cookie header for the cookie in `sent`, or for a new one.

    Over TLS, the cookie also works in a frame on another site, such as Spaces, but each such site has its own.
    """
    secret = secret_of(sent) or secrets.token_urlsafe(_BYTES)
    base = str(st.get_option("server.baseUrlPath") or "").strip("/")
    policy = "SameSite=None; Secure; Partitioned" if is_secure else "SameSite=Lax"
    return f"{COOKIE}={secret}; Path=/{base}; Max-Age={_SECONDS}; HttpOnly; {policy}"
