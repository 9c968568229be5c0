"""Where browsers ask what the class is shown, and the teacher's tells: one small route of the server, beside the pages.

A student's browser asks some times a second, so nothing here runs a script, reads a file or waits. Knows requests and
the server's class.
"""

from __future__ import annotations

import json
import math
from typing import Any
from urllib.parse import urlsplit

import streamlit as st
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from mars_viz.errors import BadInput, SettingError
from mars_viz.ui import visitors
from mars_viz.ui.classroom.server_class import ServerClass, server_class
from mars_viz.ui.links import OVERLAYS, View

PATH = "classroom/shown"
LARGEST = 1024
"""Bytes of a message."""
_FIELDS = frozenset(("run", "cuts", "dial", "gamma", "overlay", "selected"))
_QUIETLY = {"cache-control": "no-store"}


def routes() -> list[Route]:
    """The class's route; none where the server is no classroom."""
    if server_class() is None:
        return []
    base = str(st.get_option("server.baseUrlPath") or "").strip("/")
    return [Route(f"/{base}/{PATH}" if base else f"/{PATH}", shown, methods=["GET", "POST"])]


async def shown(request: Request) -> Response:
    """GET: what is shown, as JSON with its version; nothing (204) where that is still the one that was read last.
    POST, of a teacher: where the explorer stands now."""
    its = server_class()
    mark = visitors.mark_of(request.cookies.get(visitors.COOKIE, ""))
    if its is None or not mark:
        return _refused(
            403, "This browser sends no cookie of this server. Allow cookies here, and load the page again."
        )
    if request.method == "POST":
        return await _moved(its, mark, request)
    if request.query_params.get("since") == its.board.version:
        return Response(None, 204, _QUIETLY)
    return JSONResponse(its.board.read(), 200, _QUIETLY)


async def _moved(its: ServerClass, mark: str, request: Request) -> Response:
    if not its.is_teacher(mark):
        return _refused(403, "The teacher alone moves what the class is shown. Open the teacher's link first.")
    if not from_own_page(request.headers):
        return _refused(403, "This message comes from a page of another site. Open the app itself.")
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > LARGEST:
            return _refused(413, f"This message has more than {LARGEST} bytes. Load the page again.")
    try:
        its.board.move(view_in(body))
    except BadInput as error:
        return _refused(400, str(error))
    return Response(None, 204, _QUIETLY)


def from_own_page(headers: Any) -> bool:
    """True of a request that a page of this server sent, as browsers say of each; a mapping of its headers."""
    if site := headers.get("sec-fetch-site"):
        return bool(site == "same-origin")
    origin, host = headers.get("origin", ""), headers.get("host", "")
    return bool(host) and urlsplit(origin).netloc.lower() == host.lower()


def view_in(body: bytes) -> View:
    """The view that a message tells. Raises SettingError for anything else."""
    try:
        said = json.loads(body.decode())
    except (ValueError, RecursionError) as error:
        raise SettingError("This message is no JSON. Load the page again.") from error
    if not isinstance(said, dict) or set(said) != _FIELDS:
        raise SettingError(f"This message needs {', '.join(sorted(_FIELDS))}, and no more. Load the page again.")
    right = (
        isinstance(said["run"], str)
        and isinstance(said["cuts"], bool)
        and said["overlay"] in OVERLAYS
        and (said["dial"] is None or (_is_number(said["dial"]) and math.isfinite(said["dial"])))
        and all(said[name] is None or _is_whole(said[name]) for name in ("gamma", "selected"))
    )
    if not right:
        raise SettingError("This message names a place that there cannot be. Load the page again.")
    dial = None if said["dial"] is None else float(said["dial"])
    return View(said["run"], dial, said["overlay"], said["selected"], said["gamma"], said["cuts"])


def _is_number(value: object) -> bool:
    return isinstance(value, float) or _is_whole(value)


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 10**9


def _refused(status: int, why: str) -> Response:
    return JSONResponse({"error": why}, status, _QUIETLY)
