"""How the explorer answers the hand on a run of draft trees, beside a run of chains.

Knows the explorer and a browser; `browser.py` runs it. The built-in pair is asked once after each token of a sample's
text; these answers come again and again, so that runs and maps of any length are walked without models. Each turn opens
every page anew, one after the other, and ratios are taken within a turn.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from hand import PATIENCE, ROOT, WATCH, drag, line, p95, shown
from measuring import show, spread
from playwright.sync_api import Browser, Page

from served import served  # isort: skip

from mars_viz.axis import RuleDial, Span, Threshold
from mars_viz.controllers import CONTROLLERS
from mars_viz.exploration import DialMap, Walker, explore, mapped, walk
from mars_viz.rules import rule_named
from mars_viz.run import Run, Settings
from mars_viz.runfiles import load_run, save_run
from mars_viz.speculators.backend import Backend
from mars_viz.speculators.loading import load_backend
from mars_viz.walk import Answer, Ending, Prefix

TOKENS = 2_000
"""Of each run."""
TREE = "dynamic:depth=6,topk=4,nodes=32"
"""What is drafted."""
TURNS = 3
PRESSES = 12
"""Times that another draft length is chosen in a turn."""
DIAL = 0.9
"""θ of every run."""
MOST_LAMBDA = 0.45
"""λ up to which the controller's threshold is mapped: of so long a text all of it would be thousands of texts."""
LENGTHS = {"chain": (2, 4, 6), "tree": (8, 16, 32)}
"""Draft lengths that can be chosen; the last one is the run's own."""
PAGE = """
import sys
sys.path[:0] = {paths!r}
import streamlit as st
from mars_viz.components.explorer.element import explorer
from mars_viz.runfiles import load_run

st.set_page_config(layout="wide")
name = st.query_params["run"]
run = st.cache_resource(load_run)({folder!r} + "/" + name)
explorer(run, dial=None, overlay="outcome", selected=None, key=name, cuts=name.startswith("cut"))
"""
WATCH_SENTENCE = """
window.presses = [];
const after = new MessageChannel();
const pressed = [];
after.port1.onmessage = () => window.presses.push(performance.now() - pressed.shift());
const words = () => [...document.querySelectorAll("[data-testid=stBidiComponentIsolated]")].map(
  (component) => component.shadowRoot?.querySelector(".explorer .words")?.textContent ?? "").join("");
window.addEventListener("keydown", (event) => {
  const before = words();
  const look = () => {
    if (words() === before) return requestAnimationFrame(look);
    pressed.push(event.timeStamp);
    after.port2.postMessage(0);
  };
  requestAnimationFrame(look);
}, true);
"""


@dataclass(slots=True)
class Felt:
    """What the hand feels on one page, of all turns; milliseconds."""

    delays: list[list[float]] = field(default_factory=list)
    """From each event to the end of the frame that shows what it led to, turn by turn."""
    works: list[list[float]] = field(default_factory=list)
    """The page's part of a drag; none of a choice that the server answers."""


COMPARED = {
    "θ, trees": ("tree", "chain"),
    "λ, chains": ("cut", "chain"),
    "nodes, trees": ("lengths-tree", "lengths-chain"),
}
"""What is held against what, by what is turned."""


class Repeating:
    """A speculator that answers a prefix by its length alone: as the pair answers in a sample's text, over and over."""

    def __init__(self, pair: Backend, sample: Run, settings: Settings):
        """Asks after each of the text's tokens."""
        asked, self._prompt = pair.speculator(settings), len(sample.prompt_ids)
        asked.prefill(sample.prompt_ids)
        text = [sample.prompt_ids + sample.token_ids[:count] for count in range(len(sample.token_ids))]
        self._answers = [asked.speculate([prefix])[0] for prefix in text]

    def speculate(self, prefixes: Sequence[Prefix]) -> list[Answer]:
        """See `Speculator`."""
        found = []
        for prefix in prefixes:
            answer = self._answers[(len(prefix) - self._prompt) % len(self._answers)]
            found.append(replace(answer, speculation=replace(answer.speculation, start=len(prefix))))
        return found


def runs(tokens: int) -> Iterator[tuple[str, Run]]:
    """Each run with its name: without a map, with one of other lengths of drafts, with one of a controller."""
    sample, pair, rule = load_run(ROOT / "sample_runs" / "1-story-mars"), load_backend(device="cpu"), rule_named("mars")
    ending = Ending(frozenset(), tokens)
    for name, lengths in LENGTHS.items():
        tree = {"tree": TREE} if name == "tree" else {}
        settings = Settings(rule=rule.name, dial=DIAL, gamma=lengths[-1], max_new_tokens=tokens, **tree)
        answers = Repeating(pair, sample, settings)
        rounds = tuple(walk(answers, rule, DIAL, sample.prompt_ids, ending))
        run = replace(
            sample.unmapped,
            settings=settings,
            rounds=rounds,
            provenance=replace(sample.provenance, eos_ids=()),
            pieces=pair.pieces_of(range(pair.vocabulary_size)),
            title=name,
        )
        yield name, run
        yield f"lengths-{name}", _mapped(run, answers, RuleDial(rule).span(DIAL, DIAL, lengths))
        if name == "chain":
            yield (
                "cut",
                _mapped(
                    run, answers, Threshold(CONTROLLERS["threshold"], lengths[-1]).span(None, MOST_LAMBDA, lengths[-1:])
                ),
            )


def _mapped(run: Run, speculator: Repeating, span: Span) -> Run:
    """With a map of this span."""
    answers: dict[Prefix, Answer] = {}
    ending, dial = Ending(frozenset(), run.settings.max_new_tokens), DIAL if span.over else None
    rule = rule_named(run.settings.rule)
    for _ in explore(speculator, [Walker(rule, run.prompt_ids, ending, dial=dial, span=span, answers=answers)]):
        pass
    return mapped(run, DialMap(run.without_rounds, span, answers, 0, 0.0))


def tree_answers(browser: Browser, tokens: int, moves: int) -> dict[str, Felt]:
    """Turn what can be turned on each page, in turns."""
    with _pages(tokens) as (address, names):
        found = {name: Felt() for name in names}
        for turn in range(TURNS):
            for name in names[turn % len(names) :] + names[: turn % len(names)]:
                page = browser.new_page(viewport={"width": 1400, "height": 900})
                page.set_default_timeout(PATIENCE)
                shown(page, f"{address}/?run={name}")
                page.wait_for_timeout(1000)
                if name.startswith("lengths"):
                    found[name].delays.append(_chosen(page))
                else:
                    page.evaluate(WATCH)
                    drag(page, moves)
                    found[name].delays.append(page.evaluate("window.delays"))
                    found[name].works.append(page.evaluate("window.works"))
                page.close()
    return found


@contextmanager
def _pages(tokens: int) -> Iterator[tuple[str, list[str]]]:
    """A server that has a page for each run, and their names."""
    with tempfile.TemporaryDirectory() as folder:
        names = []
        for name, run in runs(tokens):
            save_run(run, Path(folder) / name)
            names.append(name)
        script = Path(folder) / "page.py"
        paths = [str(ROOT), str(ROOT / "tests")]
        script.write_text(PAGE.format(paths=paths, folder=folder), encoding="utf-8")
        with served(script, patience=PATIENCE / 1000) as address:
            yield address, names


def _chosen(page: Page) -> list[float]:
    """Choose one draft length after the other, there and back."""
    page.evaluate(WATCH_SENTENCE)
    page.locator(".explorer .lengths [aria-checked=true]").focus()
    keys = ["ArrowLeft", "ArrowLeft", "ArrowRight", "ArrowRight"]
    for press in range(PRESSES + len(keys)):
        page.keyboard.press(keys[press % len(keys)])
        page.wait_for_function(f"window.presses.length > {press}")
    presses: list[float] = page.evaluate("window.presses")
    return presses[len(keys) :]  # the first of each length is made before it is sent


def ratios(found: dict[str, Felt]) -> dict[str, list[float]]:
    """Of each that is compared the p95 over the other's, turn by turn."""
    return {
        what: [p95(one) / p95(other) for one, other in zip(found[ours].delays, found[base].delays, strict=True)]
        for what, (ours, base) in COMPARED.items()
    }


def show_trees(tokens: int, found: dict[str, Felt]) -> None:
    """A table."""
    for name, felt in found.items():
        line(f"{name}, {tokens:,} tokens: event to frame", np.concatenate(felt.delays).tolist())
        if felt.works:
            line("  of it the page's work", np.concatenate(felt.works).tolist())
    for what, values in ratios(found).items():
        show(f"{what}: p95 over that of {COMPARED[what][1]}", spread(values), "×")


def tree_figures(tokens: int, found: dict[str, Felt]) -> dict[str, Any]:
    """For the results file."""
    return {
        "tokens": tokens,
        "tree": TREE,
        "drag_p95_ms": {name: [p95(each) for each in felt.delays] for name, felt in found.items()},
        "drag_work_p95_ms": {name: [p95(each) for each in felt.works] for name, felt in found.items() if felt.works},
        "p95_over_chains": {what: spread(values) for what, values in ratios(found).items()},
    }
