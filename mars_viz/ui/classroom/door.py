"""Starlette middleware for the teacher's link: makes the browser a teacher's and redirects to the address without the
key."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, quote, urlencode

from starlette.datastructures import Headers
from starlette.responses import HTMLResponse, Response

from mars_viz.ui import visitors
from mars_viz.ui.classroom.server_class import server_class

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

    from mars_viz.ui.classroom.server_class import ServerClass

PARAMETER = "teacher"
WRONG = (
    "<!doctype html><html lang=en><meta charset=utf-8><title>MARS Viz</title><p>This is not the teacher's link of this "
    "server: it has another one each time it is started. Open the link that it printed when it was started, or "
    "<a href='./'>open the app as a student</a>."
)
_PRIVATE_HEADERS = {"cache-control": "no-store", "referrer-policy": "no-referrer"}


class LetsTeachersIn:
    """Makes a browser a teacher's when it opens the teacher's link."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, unless it has a key."""
        classroom = server_class() if scope["type"] == "http" and scope["method"] == "GET" else None
        query = (
            parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True) if classroom is not None else []
        )
        if classroom is None or all(name != PARAMETER for name, _ in query):
            await self._app(scope, receive, send)
            return
        await answer(classroom, query, scope)(scope, receive, send)


def answer(classroom: ServerClass, query: list[tuple[str, str]], scope: Scope) -> Response:
    """Return the response to a request with a key. The right key sets a cookie and redirects to the same address
    without it."""
    if not all(classroom.fits(key) for name, key in query if name == PARAMETER):
        return HTMLResponse(WRONG, 403, _PRIVATE_HEADERS)
    headers = Headers(scope=scope)
    is_secure = headers.get("x-forwarded-proto", scope["scheme"]) == "https"
    cookie = visitors.set_cookie(headers.get("cookie", ""), is_secure)
    classroom.let_in(visitors.mark_of(visitors.secret_of(cookie)))
    rest = urlencode([(name, value) for name, value in query if name != PARAMETER])
    path = f"./{quote(scope['path'].rsplit('/', 1)[-1])}"  # relative, because a proxy may add a prefix
    return Response(
        None, 303, {**_PRIVATE_HEADERS, "location": f"{path}?{rest}" if rest else path, "set-cookie": cookie}
    )


def link(address: str, classroom: ServerClass) -> str:
    """Return the teacher's link for the app at this address."""
    return f"{address}?{urlencode({PARAMETER: classroom.key})}"
