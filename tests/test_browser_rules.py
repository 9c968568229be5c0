"""The Rules page in a real browser with the built-in pair: every rule decoded on one prompt, at a press."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from mars_viz.multi_rule_walk import Stand
from mars_viz.record_rule_walks import Walking
from mars_viz.recording import Recording
from mars_viz.replay import ending_of
from mars_viz.rules import RULES
from mars_viz.run import Settings
from mars_viz.speculators.backend import Backend
from mars_viz.speculators.loading import load_backend
from mars_viz.walk import walk
from tests.served import ROOT, served

PROMPT = "Sam had a new red kite."
SHORT = Settings(max_new_tokens=24, temperature=0.8, seed=3)


@pytest.fixture(scope="module")
def pair() -> Backend:
    return load_backend(device="cpu", dtype="float32")


def test_the_pair_writes_for_each_rule_what_it_writes_alone(pair):
    run = Recording(pair, PROMPT, SHORT).finish()
    stands = [Stand(rule, rule.checked_dial(None)) for rule in RULES.values()]
    *_, last = Walking(pair, run, stands)
    texts = set()
    for one in last.walks:
        alone = walk(pair.speculator(SHORT), one.stand.rule, one.stand.dial, run.prompt_ids, ending_of(run))
        assert one.token_ids == tuple(token for round_ in alone for token in round_.token_ids), one.stand.rule.name
        texts.add(one.token_ids)
    assert last.finished == len(RULES) and len(texts) > 2


@pytest.fixture(scope="module")
def address(pair: Backend, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("runs")
    Recording(pair, PROMPT, SHORT).finish().save(folder / "a-short-one")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MARS_VIZ_RUNS", str(folder))
        patch.setenv("MARS_VIZ_SAMPLES", str(folder))
        with served(ROOT / "app.py") as found:
            yield found


def test_eight_rules_first_the_rest_on_demand_and_a_table_that_fits(address, tab):
    page = tab
    page.set_viewport_size({"width": 800, "height": 900})
    page.goto(f"{address}/rules", wait_until="commit")
    rows, table = page.locator(".mv-rules tbody tr"), page.locator(".mv-wide")
    expect(rows).to_have_count(8)
    assert table.evaluate("table => table.scrollWidth <= table.clientWidth")
    about = page.get_by_text("About this rule")
    expect(page.get_by_text("Source: arXiv 2601.15498")).to_be_hidden()
    about.click()
    expect(page.get_by_text("Source: arXiv 2601.15498")).to_be_visible()
    page.get_by_text(f"Show all {len(RULES)} rules").click()
    expect(rows).to_have_count(len(RULES))
    page.wait_for_url("**/rules?*rules=all")
    page.reload(wait_until="commit")
    expect(rows).to_have_count(len(RULES))
    page.set_viewport_size({"width": 375, "height": 800})
    name = page.locator(".mv-rules tbody th").first
    page.wait_for_function(
        "() => { const t = document.querySelector('.mv-wide'); return t.scrollWidth > t.clientWidth; }"
    )
    before = name.bounding_box()
    table.evaluate("table => { table.scrollLeft = table.scrollWidth; }")
    page.wait_for_function("() => document.querySelector('.mv-wide').scrollLeft > 0")
    assert name.bounding_box()["x"] == before["x"] and before["width"] < 160  # whose numbers they are stays in sight


def test_a_press_makes_every_row_exact(address, tab):
    page = tab
    page.set_viewport_size({"width": 1400, "height": 900})
    page.goto(f"{address}/rules", wait_until="commit")
    expect(page.locator(".mv-rule", has_text="judged round by round on the recorded text")).to_be_visible()
    page.get_by_role("button", name="Decode every rule on this prompt").click()
    done = page.get_by_text("Every row is exact: counted on the rule's own text after this prompt.")
    expect(done).to_be_visible()
    assert not page.get_by_role("button", name="Decode every rule on this prompt").is_visible()
