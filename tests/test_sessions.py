"""Several tabs at a real server: each gets its own runs, whole; and a killed server loses no finished run."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path

import pytest
from websockets.exceptions import ConnectionClosed

from mars_viz.recording import Recording
from mars_viz.runstore import RunStatus, RunStore, read
from mars_viz.speculators.backend import Backend
from tests.clients import elsewhere, opened
from tests.crowd import Crowd, End, end_of, streamed
from tests.factories import PATIENCE, until
from tests.served import ROOT, App, Server, served, serving

PAGES = {
    "app": """from mars_viz.ui.navigation import forget_last_page as forget; forget()
st.navigation([st.Page("left.py", default=True), st.Page("opened.py")]).run()""",
    "left": """
@st.fragment(run_every=1000)
def looks_at_a_job():
    if st.button("Leave"):
        st.switch_page("opened.py")
looks_at_a_job()
""",
    "opened": """
import time
st.markdown("It is drawn,")
time.sleep(1)
st.markdown("and it stays.")
""",
}


def test_every_tab_gets_its_own_runs_whole(app: App, pair: Backend) -> None:
    crowd, store = Crowd(3, 6, pause=0.05), RunStore(app.runs)
    before = {entry.name for entry in store.list()}
    elsewhere(crowd.gather(app.address))
    assert len(crowd.ended) == 6 and crowd.moved
    kept = {entry.name: entry for entry in store.list() if entry.name not in before}
    made = [ended for ended in crowd.ended if ended.end is not End.NOTHING]
    assert {ended.name for ended in made} == kept.keys()
    for ended in made:
        run = read(kept[ended.name].path)
        assert (run.prompt, len(run.token_ids)) == (ended.prompt, ended.tokens)
        alone = Recording(pair, ended.prompt, run.settings).finish().token_ids
        assert alone == run.token_ids if ended.end is End.DONE else alone[: ended.tokens] == run.token_ids


@pytest.mark.parametrize("leave_by", ["button", "link"])
def test_a_page_stays_though_the_one_before_it_asked_for_a_rerun(leave_by: str, tmp_path: Path) -> None:
    for name, text in PAGES.items():
        (tmp_path / f"{name}.py").write_text(f"import streamlit as st\n{text}")

    async def leave(address: str) -> None:
        async with opened(address) as tab:
            found = tab.find("button", "Leave")
            assert found is not None
            await (tab.press("Leave") if leave_by == "button" else tab.go("opened"))
            await tab.until(lambda: "It is drawn" in tab.text, "the other page", PATIENCE)
            before = tab.finished
            await tab.ask_again(found.fragment, tab.pages[""])  # as a browser that still shows the first page
            await tab.until(lambda: tab.finished > before and "and it stays" in tab.text, "all of it", PATIENCE)
            await asyncio.sleep(0.5)  # for what might still arrive
            assert "It is drawn" in tab.text and tab.page == tab.pages["opened"]

    with served(tmp_path / "app.py") as address:
        elsewhere(leave(address))


async def decode_until_killed(server: Server, store: RunStore, asked: set[str], finished: dict[str, int]) -> None:
    """Two tabs decode one run after the other; the server is killed 2 s after it first kept a round."""

    async def person(number: int) -> None:
        with suppress(ConnectionClosed, AssertionError, OSError):  # the server is gone
            async with opened(server.address, "live") as tab:
                for turn in range(1000):
                    prompt = f"Once upon a time, there was a little fox called {number}-{turn} who"
                    await tab.until(lambda: tab.can_press("Decode now"), "Decode now")
                    await tab.write("Prompt", prompt)
                    asked.add(prompt)
                    await tab.press("Decode now")
                    await tab.until(lambda prompt=prompt: prompt in streamed(tab), "the tab's own prompt")
                    await tab.until(lambda: end_of(tab) is not None, "the end")
                    finished[prompt] = int(end_of(tab)["done"])

    people = [asyncio.create_task(person(i)) for i in range(2)]
    async with asyncio.timeout(PATIENCE):
        while all(entry.error for entry in store.list()):
            await asyncio.sleep(0.05)
    await asyncio.sleep(2)
    server.process.kill()
    await asyncio.wait(people, timeout=PATIENCE)


def test_a_killed_server_loses_no_finished_run(tmp_path: Path) -> None:
    store, asked, finished = RunStore(tmp_path), set[str](), dict[str, int]()
    with serving(ROOT / "app.py", settings={"MARS_VIZ_RUNS": str(tmp_path), "MARS_VIZ_SAMPLES": "off"}) as server:
        elsewhere(decode_until_killed(server, store, asked, finished))
    # the model process notices that its server is gone
    until(lambda: all(entry.standing is not RunStatus.GROWING for entry in store.list()), 0.05)
    listed = store.list()
    assert all("before its first round was kept" in entry.error for entry in listed if entry.error)
    kept = {
        run.prompt: (len(run.token_ids), entry.standing)
        for entry in listed
        if not entry.error
        for run in [read(entry.path)]
    }
    whole = {prompt: length for prompt, (length, standing) in kept.items() if standing is RunStatus.WHOLE}
    assert {prompt: whole[prompt] for prompt in finished} == finished
    assert kept.keys() <= asked and all(length for length, _ in kept.values())
