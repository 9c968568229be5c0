"""Browser tabs without a browser: WebSocket clients that speak to a server as Streamlit's own front end does.

Messages are BackMsg up and ForwardMsg down, see streamlit/web/server/starlette/starlette_websocket.py.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from streamlit.proto.WidgetStates_pb2 import WidgetState, WidgetStates
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

T = TypeVar("T")
PATIENCE = 300.0  # seconds; only a server that hangs lets somebody wait as long


class Shown(NamedTuple):
    """An element on the page."""

    kind: str  # its type in the protocol: button, slider, markdown, …
    proto: Any  # its contents
    fragment: str  # the fragment that it is part of; empty outside of any
    run: str  # the run of the script that showed it last


class Tab:
    """One tab, from the opening of its connection to its end."""

    def __init__(self, address: str, page: str, query: str, headers: Mapping[str, str]) -> None:
        self._address, self._first_page, self._headers = address, page, headers
        self.session, self.page, self.query, self.finished = "", "", query, 0
        self.pages: dict[str, str] = {}
        self._connection: ClientConnection | None = None
        self._listening: asyncio.Task[None] | None = None
        self._elements: dict[tuple[int, ...], Shown] = {}
        self._states: dict[str, WidgetState] = {}
        self._run, self._in_part, self._running, self._ended = "", False, False, False
        self._repeats: dict[str, tuple[float, asyncio.Task[None]]] = {}  # seconds and task by fragment
        self._news = asyncio.Condition()

    def elements(self, kind: str) -> Iterator[Shown]:
        """All of a type, from top to bottom."""
        return (self._elements[path] for path in sorted(self._elements) if self._elements[path].kind == kind)

    def find(self, kind: str, label: str) -> Shown | None:
        """The widget with that label, or None."""
        return next((shown for shown in self.elements(kind) if shown.proto.label == label), None)

    def can_press(self, label: str) -> bool:
        """True if there is such a button, and it is enabled."""
        found = self.find("button", label)
        return found is not None and not found.proto.disabled

    @property
    def text(self) -> str:
        """All that is written on the page, widgets excepted."""
        return "\n".join(shown.proto.body for kind in ("markdown", "html") for shown in self.elements(kind))

    @property
    def errors(self) -> list[str]:
        """Exceptions on the page."""
        return [f"{shown.proto.type}: {shown.proto.message}" for shown in self.elements("exception")]

    async def press(self, label: str) -> None:
        """Click a button, once it can be clicked."""
        await self.until(lambda: self.can_press(label), f"a button {label!r} that can be pressed")
        button = self.find("button", label)
        await self._rerun(button.fragment, WidgetState(id=button.proto.id, trigger_value=True))

    async def write(self, label: str, text: str) -> None:
        """Write into a text area, and leave it."""
        await self.until(lambda: self.find("text_area", label) is not None, f"a text area {label!r}")
        area = self.find("text_area", label)
        await self.set(area, WidgetState(id=area.proto.id, string_value=text))

    async def set(self, shown: Shown, state: WidgetState) -> None:
        """Give a widget a state."""
        await self._rerun(shown.fragment, state)

    async def go(self, page: str) -> None:
        """Choose another page in the navigation."""
        self._states.clear()
        self._stop(*self._repeats)
        message = BackMsg()
        message.rerun_script.page_script_hash = self.pages[page]
        await self._send(message)

    async def reconnect(self) -> None:
        """Lose the connection and what the server sends meanwhile, and come back as the same session."""
        await self.close()
        await self.connect()
        if self._repeats or self._in_part or self._running:
            await self._rerun()

    async def ask_again(self, fragment: str, page: str) -> None:
        """Send what a timer of that page sends, which may be under way while the page is left."""
        now, self.page = self.page, page
        await self._rerun(fragment, auto=True)
        self.page = now

    async def until(self, holds: Callable[[], bool], what: str = "it", patience: float = PATIENCE) -> None:
        """Wait for something to be on the page. Raises AssertionError if it does not come or a script fails."""
        assert await self.comes(holds, patience), f"waited in vain for {what}; the page says: {self.text[-300:]}"

    async def comes(self, holds: Callable[[], bool], patience: float) -> bool:
        """Return whether it came."""
        async with self._news:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(patience):
                    await self._news.wait_for(lambda: holds() or self.errors or self._ended)
            assert not self.errors, self.errors
            return holds()

    async def connect(self) -> None:
        """Open the connection, with the session that there was before."""
        asked = ["streamlit", "PLACEHOLDER_AUTH_TOKEN", *filter(None, [self.session])]
        stream = f"{self._address.replace('http', 'ws', 1)}/_stcore/stream"
        how: Any = {"subprotocols": asked, "max_size": None, "ping_interval": None}
        self._connection = await connect(stream, additional_headers=self._headers, **how)
        self._ended = False
        self._listening = asyncio.create_task(self._listen(self._connection))

    async def close(self) -> None:
        """End the connection."""
        assert self._connection is not None and self._listening is not None
        self._listening.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._listening
        await self._connection.close()

    async def _listen(self, connection: ClientConnection) -> None:
        try:
            async for data in connection:
                message = ForwardMsg()
                message.ParseFromString(data if isinstance(data, bytes) else data.encode())
                async with self._news:
                    self._take(message)
                    self._news.notify_all()
        finally:
            async with self._news:
                self._ended = True
                self._news.notify_all()

    def _take(self, message: ForwardMsg) -> None:
        match message.WhichOneof("type"):
            case "new_session":
                self._begin(message)
            case "delta":
                self._show(message)
            case "navigation":
                self.pages = {page.url_pathname: page.page_script_hash for page in message.navigation.app_pages}
                self.page = message.navigation.page_script_hash
            case "page_info_changed":
                self.query = message.page_info_changed.query_string
            case "session_status_changed":
                self._running = message.session_status_changed.script_is_running
            case "auto_rerun":
                self._start(message.auto_rerun.fragment_id, message.auto_rerun.interval)
            case "stop_auto_rerun":
                self._stop(*message.stop_auto_rerun.fragment_ids)
            case "script_finished":
                self._end(message)

    def _begin(self, message: ForwardMsg) -> None:
        """A run of another page's fragment leaves the tab on its page but clears it."""
        news, run = message.new_session, message.metadata.run
        self.session = news.initialize.session_id or self.session
        if news.page_script_hash != self.page:
            self._elements.clear()
        self._run, self._in_part = run.script_run_id, bool(run.fragment_ids)
        if not run.fragment_ids:
            self.page = news.page_script_hash
            self._stop(*self._repeats)

    def _show(self, message: ForwardMsg) -> None:
        path, delta = tuple(message.metadata.delta_path), message.delta
        if delta.WhichOneof("type") == "new_element":
            kind = delta.new_element.WhichOneof("type")
            proto = getattr(delta.new_element, kind)
            self._elements[path] = Shown(kind, proto, delta.fragment_id, self._run)

    def _end(self, message: ForwardMsg) -> None:
        self.finished += 1
        run = message.metadata.run
        whole, part = ForwardMsg.FINISHED_SUCCESSFULLY, ForwardMsg.FINISHED_FRAGMENT_RUN_SUCCESSFULLY
        overtaken = not run.fragment_ids and run.script_run_id != self._run
        if message.script_finished in (whole, part) and not overtaken:
            for path, shown in tuple(self._elements.items()):
                ran = shown.fragment in run.fragment_ids or not run.fragment_ids
                if ran and shown.run != run.script_run_id:
                    del self._elements[path]

    def _start(self, fragment: str, seconds: float) -> None:
        if self._repeats.get(fragment, (0,))[0] != seconds:
            self._stop(fragment)
            self._repeats[fragment] = seconds, asyncio.create_task(self._repeat(fragment, seconds))

    async def _repeat(self, fragment: str, seconds: float) -> None:
        while True:
            await asyncio.sleep(seconds)
            with contextlib.suppress(ConnectionClosed):  # it goes on once the tab is back
                await self._rerun(fragment, auto=True)

    def _stop(self, *fragments: str) -> None:
        for fragment in fragments:
            if fragment in self._repeats:
                self._repeats.pop(fragment)[1].cancel()

    async def _rerun(self, fragment: str = "", state: WidgetState | None = None, *, auto: bool = False) -> None:
        message = BackMsg()
        asked = message.rerun_script
        asked.query_string, asked.page_script_hash = self.query, self.page
        asked.page_name = "" if self.page else self._first_page
        asked.fragment_id, asked.is_auto_rerun = fragment, auto
        asked.context_info.timezone, asked.context_info.color_scheme = "UTC", "light"
        if state is not None and not state.trigger_value:
            self._states[state.id] = state
        now = [] if state is None or not state.trigger_value else [state]
        asked.widget_states.CopyFrom(WidgetStates(widgets=[*self._states.values(), *now]))
        await self._send(message)

    async def _send(self, message: BackMsg) -> None:
        assert self._connection is not None
        await self._connection.send(message.SerializeToString())


@asynccontextmanager
async def opened(
    address: str, page: str = "", query: str = "", headers: Mapping[str, str] = MappingProxyType({})
) -> AsyncIterator[Tab]:
    """Open a tab at a page; `headers` are sent besides."""
    tab = Tab(address, page, query, headers)
    await tab.connect()
    try:
        await tab._rerun()
        await tab.until(lambda: tab.finished > 0 and bool(tab.pages), "the first run of the page")
        yield tab
    finally:
        tab._stop(*tab._repeats)
        await tab.close()


def elsewhere(work: Coroutine[Any, Any, T]) -> T:
    """Run it in a thread of its own: Playwright's loop keeps the first thread of a process."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result()
