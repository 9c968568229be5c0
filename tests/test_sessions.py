"""Several tabs at a real server: each gets its own runs, whole; and a page that was opened from another one stays."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mars_viz.recording import Recording
from mars_viz.runstore import RunStore, read
from mars_viz.speculators.loading import load_backend
from tests.clients import opened
from tests.crowd import Crowd, End
from tests.served import served

APP = Path(__file__).parents[1] / "app.py"
PATIENCE = 240.0  # seconds; a busy machine is no reason to fail
PAGES = {
    "app.py": """
import streamlit as st

st.navigation([st.Page("left.py", default=True), st.Page("opened.py")]).run()
""",
    "left.py": """
import streamlit as st

from mars_viz.ui import navigation


@st.fragment(run_every=1000)
def looks_at_a_job():
    if st.button("Leave"):
        navigation.leave_for("opened.py")


looks_at_a_job()
""",
    "opened.py": """
import time

import streamlit as st

st.markdown("It is drawn,")
time.sleep(1)
st.markdown("and it stays.")
""",
}


def test_every_tab_of_a_few_gets_its_own_runs_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MARS_VIZ_RUNS", str(tmp_path))
    monkeypatch.setenv("MARS_VIZ_SAMPLES", str(tmp_path))
    crowd = Crowd(3, 6, pause=0.05)
    with served(APP, patience=PATIENCE) as address, ThreadPoolExecutor(1) as elsewhere:
        # Playwright's loop, once begun, goes on in a process's first thread, which can have no other
        elsewhere.submit(asyncio.run, crowd.gather(address)).result()
    assert len(crowd.ended) == 6 and crowd.moved
    kept = {entry.name: entry for entry in RunStore(tmp_path).list()}
    made = [ended for ended in crowd.ended if ended.end is not End.NOTHING]
    assert {ended.name for ended in made} == kept.keys()
    pair = load_backend(device="cpu")
    for ended in made:
        run = read(kept[ended.name].path)
        assert (run.prompt, len(run.token_ids)) == (ended.prompt, ended.tokens)
        alone = Recording(pair, ended.prompt, run.settings).finish().token_ids
        assert alone == run.token_ids if ended.end is End.DONE else alone[: ended.tokens] == run.token_ids


def test_a_page_stays_though_the_one_before_it_had_asked_to_be_looked_at_again(tmp_path: Path) -> None:
    for name, text in PAGES.items():
        (tmp_path / name).write_text(text)

    async def leave(address: str) -> None:
        async with opened(address) as tab:
            found = tab.find("button", "Leave")
            assert found is not None
            await tab.press("Leave")
            await tab.until(lambda: "It is drawn" in tab.text, "the other page", PATIENCE)
            before = tab.finished
            await tab.ask_again(found.fragment, tab.pages[""])  # what a browser sends that has not heard of it yet
            await tab.until(lambda: tab.finished > before and "and it stays" in tab.text, "all of it", PATIENCE)
            await asyncio.sleep(0.5)  # for what might still come
            assert "It is drawn" in tab.text and tab.page == tab.pages["opened"]

    with served(tmp_path / "app.py", patience=PATIENCE) as address, ThreadPoolExecutor(1) as elsewhere:
        elsewhere.submit(asyncio.run, leave(address)).result()
