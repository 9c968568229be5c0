"""The Rules page in a real browser with the built-in pair: every rule decoded on one prompt, at a press."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from mars_viz.recorded import ending_of
from mars_viz.recording import Recording
from mars_viz.rules import RULES
from mars_viz.run import Settings
from mars_viz.speculators.loading import Pair, load_pair
from mars_viz.speculators.local import LocalSpeculator
from mars_viz.together import Stand
from mars_viz.walk import walk
from mars_viz.walking import Walking
from tests.served import ROOT, served

PATIENCE = 180_000  # milliseconds; only a hanging test waits as long
PROMPT = "Sam had a new red kite."
SHORT = Settings(max_new_tokens=24, temperature=0.8, seed=3)


@pytest.fixture(scope="module")
def pair() -> Pair:
    return load_pair(device="cpu", dtype="float32")


def test_the_pair_writes_for_each_rule_what_it_writes_alone(pair):
    run = Recording(pair, PROMPT, SHORT).finish()
    stands = [Stand(rule, rule.checked_dial(None)) for rule in RULES.values()]
    *_, last = Walking(pair, run, stands)
    texts = set()
    for one in last.walks:
        alone = walk(LocalSpeculator(pair, SHORT), one.stand.rule, one.stand.dial, run.prompt_ids, ending_of(run))
        assert one.token_ids == tuple(token for round_ in alone for token in round_.token_ids), one.stand.rule.name
        texts.add(one.token_ids)
    assert last.finished == len(RULES) and len(texts) > 2


def test_a_press_makes_every_row_exact(pair, browser, tmp_path, monkeypatch):
    Recording(pair, PROMPT, SHORT).finish().save(tmp_path / "a-short-one")
    monkeypatch.setenv("MARS_VIZ_RUNS", str(tmp_path))
    monkeypatch.setenv("MARS_VIZ_SAMPLES", "off")
    with served(ROOT / "app.py", patience=PATIENCE / 1000) as address:
        page = browser.new_page()
        page.set_default_timeout(PATIENCE)
        page.goto(f"{address}/rules", wait_until="commit")
        said = page.locator(".mv-rule", has_text="judged round by round on the recorded text")
        expect(said).to_be_visible(timeout=PATIENCE)
        page.get_by_role("button", name="Decode every rule on this prompt").click()
        done = page.get_by_text("Every row is exact: it counts what the rule itself writes after this prompt.")
        expect(done).to_be_visible(timeout=PATIENCE)
        assert not page.get_by_role("button", name="Decode every rule on this prompt").is_visible()
        page.close()
