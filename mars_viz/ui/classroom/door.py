"""HTTP requests to a classroom: the teacher's link, which makes the browser a teacher's, and the route that browsers
poll for the shown run.

Students' browsers poll several times a second, so the handler runs no script, reads no file and never waits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

import streamlit as st
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from mars_viz.errors import BadInput, SettingError
from mars_viz.ui import visitors
from mars_viz.ui.classroom.rights import ServerClass, server_class
from mars_viz.ui.links import View, from_parameters

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

PARAMETER = "teacher"
WRONG = (
    "<!doctype html><html lang=en><meta charset=utf-8><title>MARS Viz</title><p>This is not the teacher's link of this "
    "server: it has another one each time it is started. Open the link that it printed when it was started, or "
    "<a href='./'>open the app as a student</a>."
)
_PRIVATE_HEADERS = {"cache-control": "no-store", "referrer-policy": "no-referrer"}


class LetsTeachersIn:
    """Makes a browser a teacher's when it opens the teacher's link: the right key sets a cookie and redirects to the
    address without it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        classroom = server_class() if scope["type"] == "http" and scope["method"] == "GET" else None
        query_string = b"" if classroom is None else scope["query_string"]
        query = parse_qsl(query_string.decode("latin-1"), keep_blank_values=True)
        keys = [key for name, key in query if name == PARAMETER]
        if classroom is None or not keys:
            await self._app(scope, receive, send)
            return
        if not all(map(classroom.fits, keys)):
            await HTMLResponse(WRONG, 403, _PRIVATE_HEADERS)(scope, receive, send)
            return
        headers = Headers(scope=scope)
        is_secure = headers.get("x-forwarded-proto", scope["scheme"]) == "https"
        cookie = visitors.set_cookie(headers.get("cookie", ""), is_secure)
        classroom.let_in(visitors.mark_of(visitors.secret_of(cookie)))
        rest = urlencode([(name, value) for name, value in query if name != PARAMETER])
        path = f"./{quote(scope['path'].rsplit('/', 1)[-1])}"  # relative, because a proxy may add a prefix
        location = {"location": f"{path}?{rest}" if rest else path, "set-cookie": cookie}
        await Response(None, 303, _PRIVATE_HEADERS | location)(scope, receive, send)


def link(address: str, classroom: ServerClass) -> str:
    return f"{address}?{urlencode({PARAMETER: classroom.key})}"


LARGEST = 1024  # maximum size of a message in bytes
PARTS = frozenset(("run", "cuts", "dial", "gamma", "overlay", "selected"))  # of a message


def routes() -> list[Route]:
    """Return the classroom's route; empty if the server is not a classroom."""
    base = str(st.get_option("server.baseUrlPath") or "").strip("/")
    path = f"/{base}/classroom/shown" if base else "/classroom/shown"
    return [] if server_class() is None else [Route(path, shown, methods=["GET", "POST"])]


async def shown(request: Request) -> Response:
    """GET returns the shown position and its version as JSON, or 204 if the version is unchanged. POST, from a teacher,
    updates the position."""
    classroom, no_store = server_class(), {"cache-control": "no-store"}
    mark, status, why = visitors.mark_of(request.cookies.get(visitors.COOKIE, "")), 403, ""
    if classroom is None or not mark:
        why = "This browser sends no cookie of this server. Allow cookies here, and load the page again."
    elif request.method != "POST":
        if request.query_params.get("since") != classroom.version:
            return JSONResponse(classroom.read(), 200, no_store)
    elif not classroom.is_teacher(mark):
        why = "The teacher alone moves what the class is shown. Open the teacher's link first."
    elif not from_own_page(request.headers):
        why = "This message comes from a page of another site. Open the app itself."
    else:
        body = b""
        async for part in request.stream():
            body += part
            if len(body) > LARGEST:
                status, why = 413, f"This message has more than {LARGEST} bytes. Load the page again."
                break
        else:
            try:
                classroom.move(view_in(body))
            except BadInput as error:
                status, why = 400, str(error)
    return JSONResponse({"error": why}, status, no_store) if why else Response(None, 204, no_store)


def from_own_page(headers: Any) -> bool:
    """Return True if a page of this server sent the request, judging by its headers."""
    if site := headers.get("sec-fetch-site"):
        return bool(site == "same-origin")
    origin, host = headers.get("origin", ""), headers.get("host", "")
    return bool(host) and urlsplit(origin).netloc.lower() == host.lower()


def view_in(body: bytes) -> View:
    """Return the view in a message, which is written like a link. Raises SettingError if the message is invalid."""
    try:
        parameters = dict(parse_qsl(body.decode(), strict_parsing=True))
    except ValueError as error:
        raise SettingError("This message cannot be read. Load the page again.") from error
    opened = from_parameters(View, parameters)
    if opened.complaints or not opened.view.run or not set(parameters) <= PARTS:
        raise SettingError("This message names a place that there cannot be. Load the page again.")
    return opened.view
