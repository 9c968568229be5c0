"""The teacher's link: around the app, as Starlette's middleware. Whoever opens it is a teacher, and the key leaves the
address at once, before the page is there.

Knows requests and the server's class; draws no page but the sentence about a key that is none.
"""

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
_QUIETLY = {"cache-control": "no-store", "referrer-policy": "no-referrer"}


class LetsTeachersIn:
    """Makes teachers of the browsers that open the teacher's link."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on what was asked, unless it brings a key."""
        its = server_class() if scope["type"] == "http" and scope["method"] == "GET" else None
        asked = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True) if its is not None else []
        if its is None or all(name != PARAMETER for name, _ in asked):
            await self._app(scope, receive, send)
            return
        await answer(its, asked, scope)(scope, receive, send)


def answer(its: ServerClass, asked: list[tuple[str, str]], scope: Scope) -> Response:
    """What a browser gets that brings a key: with the right one its cookie, and the same address without the key."""
    if not all(its.fits(key) for name, key in asked if name == PARAMETER):
        return HTMLResponse(WRONG, 403, _QUIETLY)
    headers = Headers(scope=scope)
    is_secure = headers.get("x-forwarded-proto", scope["scheme"]) == "https"
    cookie = visitors.set_cookie(headers.get("cookie", ""), is_secure)
    its.let_in(visitors.mark_of(visitors.secret_of(cookie)))
    rest = urlencode([(name, value) for name, value in asked if name != PARAMETER])
    place = f"./{quote(scope['path'].rsplit('/', 1)[-1])}"  # beside itself, whatever a proxy has before it
    return Response(None, 303, {**_QUIETLY, "location": f"{place}?{rest}" if rest else place, "set-cookie": cookie})


def link(address: str, its: ServerClass) -> str:
    """The teacher's link, of an app at this address."""
    return f"{address}?{urlencode({PARAMETER: its.key})}"
