"""Several tabs at a real server: each gets its own runs, whole."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mars_viz.recording import Recording
from mars_viz.runstore import RunStore, read
from mars_viz.speculators.loading import load_pair
from tests.crowd import Crowd, End
from tests.served import served

APP = Path(__file__).parents[1] / "app.py"
PATIENCE = 240.0  # seconds; a busy machine is no reason to fail


def test_every_tab_of_a_few_gets_its_own_runs_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MARS_VIZ_RUNS", str(tmp_path))
    crowd = Crowd(3, 6, pause=0.05)
    with served(APP, patience=PATIENCE) as address, ThreadPoolExecutor(1) as elsewhere:
        # Playwright's loop, once begun, goes on in a process's first thread, which can have no other
        elsewhere.submit(asyncio.run, crowd.gather(address)).result()
    assert len(crowd.ended) == 6 and crowd.moved
    kept = {entry.name: entry for entry in RunStore(tmp_path).list()}
    made = [ended for ended in crowd.ended if ended.end is not End.NOTHING]
    assert {ended.name for ended in made} == kept.keys()
    pair = load_pair(device="cpu")
    for ended in made:
        run = read(kept[ended.name].path)
        assert (run.prompt, len(run.token_ids)) == (ended.prompt, ended.tokens)
        alone = Recording(pair, ended.prompt, run.settings).finish().token_ids
        assert alone == run.token_ids if ended.end is End.DONE else alone[: ended.tokens] == run.token_ids
