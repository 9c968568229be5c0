"""The app's own server killed at random moments while tabs decode: what was finished is there, what was not is kept as
far as it came, and nothing else is lost."""

from __future__ import annotations

import asyncio
import os
import random
import re
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from websockets.exceptions import ConnectionClosed

from mars_viz.run import Run
from mars_viz.runstore import KeptRun, RunStatus, RunStore, read
from tests.clients import Tab, opened
from tests.served import Server, serving

APP = Path(__file__).parents[1] / "app.py"
KILLS = int(os.environ.get("MARS_VIZ_SERVER_KILLS", "2"))
"""Servers to kill; 30 before a release."""
PATIENCE = 240.0  # seconds; a busy machine is no reason to fail
_DONE = re.compile(r"Done: (\d+)")


@dataclass(slots=True)
class Seen:
    """What the tabs saw before the server was gone."""

    finished: dict[str, int] = field(default_factory=dict)
    """Tokens of each run that its page called done, by prompt."""
    asked: list[str] = field(default_factory=list)
    """Prompts whose decode was asked for."""


async def decode_until_killed(server: Server, seen: Seen, number: int, folder: Path, luck: random.Random) -> None:
    """Two tabs decode one run after the other; the server dies at some moment after it first kept a round."""
    store = RunStore(folder)
    had = with_rounds(store)

    async def person(tab_number: int) -> None:
        with suppress(ConnectionClosed, AssertionError, OSError):  # as it is when the server goes
            async with opened(server.address, "live") as tab:
                for turn in range(1000):
                    prompt = f"Once upon a time, there was a little fox called {number}-{tab_number}-{turn} who"
                    await one_decode(tab, prompt, seen)

    people = [asyncio.create_task(person(i)) for i in range(2)]
    async with asyncio.timeout(PATIENCE):
        while with_rounds(store) <= had:
            await asyncio.sleep(0.05)
    await asyncio.sleep(luck.uniform(0, 3))
    server.process.kill()
    await asyncio.wait(people, timeout=PATIENCE)
    for task in people:
        task.cancel()
    await asyncio.gather(*people, return_exceptions=True)


def with_rounds(store: RunStore) -> set[str]:
    """Names of the runs of which something is kept."""
    return {entry.name for entry in store.list() if not entry.error}


async def one_decode(tab: Tab, prompt: str, seen: Seen) -> None:
    await tab.until(lambda: tab.can_press("Decode now"), "Decode now")
    await tab.write("Prompt", prompt)
    seen.asked.append(prompt)
    await tab.press("Decode now")
    await tab.until(lambda: prompt in streamed(tab), "the tab's own prompt")
    await tab.until(lambda: done(tab) is not None, "the end")
    seen.finished[prompt] = done(tab) or 0


def streamed(tab: Tab) -> str:
    found = (shown.proto for shown in tab.elements("bidi_component") if "race" in shown.proto.component_name)
    return "".join(proto.json or proto.mixed.json for proto in found)


def done(tab: Tab) -> int | None:
    found = (_DONE.search(shown.proto.text) for shown in tab.elements("progress"))
    return next((int(match[1]) for match in found if match), None)


def settled(store: RunStore) -> list[KeptRun]:
    """What is kept, once the models' process has seen that its server is gone."""
    end = time.monotonic() + PATIENCE
    while True:
        listed = store.list()
        if all(entry.standing is not RunStatus.GROWING for entry in listed):
            return listed
        assert time.monotonic() < end, "a decode goes on that nobody waits for"
        time.sleep(0.05)


def text_of(run: Run) -> tuple[str, tuple[int, ...]]:
    return run.prompt, run.token_ids


@pytest.mark.parametrize("seed", [1])
def test_a_server_that_is_killed_loses_no_finished_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setenv("MARS_VIZ_RUNS", str(tmp_path))
    monkeypatch.setenv("MARS_VIZ_SAMPLES", "off")
    luck, seen, store = random.Random(seed), Seen(), RunStore(tmp_path)
    earlier: dict[str, tuple[str, tuple[int, ...]]] = {}
    interrupted = 0
    for number in range(KILLS):
        with serving(APP, patience=PATIENCE) as server, ThreadPoolExecutor(1) as elsewhere:
            # Playwright's loop, once begun, goes on in a process's first thread, which can have no other
            elsewhere.submit(asyncio.run, decode_until_killed(server, seen, number, tmp_path, luck)).result()
        listed = settled(store)
        entries = [entry for entry in listed if not entry.error]
        assert all("before its first round was kept" in entry.error for entry in listed if entry.error)
        now = {entry.name: text_of(read(entry.path)) for entry in entries}  # nothing is half-written
        whole = {now[entry.name][0]: now[entry.name][1] for entry in entries if entry.standing is RunStatus.WHOLE}
        cut = {now[entry.name][0]: now[entry.name][1] for entry in entries if entry.standing is RunStatus.INTERRUPTED}
        assert len(whole) + len(cut) == len(entries)  # nothing is said to be growing, and nothing is there twice
        assert {prompt: len(whole[prompt]) for prompt in seen.finished} == seen.finished
        assert whole.keys() | cut.keys() <= set(seen.asked)
        assert all(cut.values())
        assert earlier.items() <= now.items()  # as they were after the last kill
        earlier, interrupted = now, len(cut)
    assert seen.finished or interrupted
    print(f"{KILLS} kills: {len(seen.finished)} finished runs are whole, {interrupted} interrupted ones kept")
