"""The Rules page in a real browser with the built-in pair: every rule decoded on one prompt, at a press."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from mars_viz.multi_rule_walk import Stand
from mars_viz.recording import Recording, Walking
from mars_viz.replay import ending_of
from mars_viz.rules import RULES
from mars_viz.run import Settings
from mars_viz.speculators.backend import Backend
from mars_viz.speculators.loading import load_backend
from mars_viz.walk import walk
from tests.served import ROOT, served
from tests.test_browser_component import contrast

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


def test_what_is_chosen_of_several_is_legible_in_the_dark(address, tab):
    page = tab
    page.emulate_media(color_scheme="dark")
    page.goto(f"{address}/rules", wait_until="commit")
    tags = page.locator(".stMultiSelect [data-tag]")
    tags.first.wait_for()
    colours = "all => all.map((tag) => [getComputedStyle(tag).color, getComputedStyle(tag).backgroundColor])"
    for ink, ground in tags.evaluate_all(colours):
        assert contrast(ink, ground) >= 4.5, (ink, ground)
    page.emulate_media(color_scheme="light")


COLOURS = """
globalThis.colours = () => {
  const of = (selector) => {
    const found = document.querySelector(selector); // not there while it is drawn anew
    const { color, backgroundColor, fill } = found ? getComputedStyle(found) : {};
    return { color, ground: backgroundColor, fill };
  };
  return {
    page: of(".stApp"), head: of(".mv-rules tbody tr:not(.chosen) > :first-child"),
    beside: of(".mv-rules tbody tr:not(.chosen) > :nth-child(2)"), chosen: of(".mv-rules .chosen > :first-child"),
    next: of(".mv-rules .chosen > :nth-child(2)"), title: of(".js-plotly-plot .gtitle"),
  };
};
"""
AT_ONCE = """(choice) => new Promise((found, lost) => {
  const scheme = () => getComputedStyle(document.querySelector(".stApp")).colorScheme;
  const before = scheme(), end = performance.now() + 60000;
  const look = () => {
    if (performance.now() > end) lost("no change");
    else if (scheme() === before) requestAnimationFrame(look);
    else found(colours());
  };
  document.querySelector(`[data-testid=stMainMenuItem-theme-${choice}]`).click();
  look();
})"""
"""Choose a theme in the menu, which is open; the colours in the first frame of it, before the script can have run."""


@pytest.mark.parametrize("scheme", ["dark", "light"])
def test_table_and_figures_follow_a_change_of_theme(address, tab, scheme):
    page, other = tab, {"dark": "light", "light": "dark"}[scheme]
    page.set_viewport_size({"width": 375, "height": 800})
    page.emulate_media(color_scheme=other)  # type: ignore[arg-type]
    page.goto(f"{address}/rules", wait_until="commit")
    page.evaluate("localStorage.clear()")  # of what a first try chose
    page.reload(wait_until="commit")
    page.locator(".js-plotly-plot .gtitle").first.wait_for()
    page.get_by_test_id("stMainMenu").click()
    page.get_by_test_id("stThemeSwitcher").wait_for()
    page.evaluate(COLOURS)
    found = page.evaluate(AT_ONCE, scheme.capitalize())
    assert found["page"]["ground"] == {"dark": "rgb(18, 22, 28)", "light": "rgb(255, 255, 255)"}[scheme]
    assert found["head"]["ground"] == found["page"]["ground"], "a first cell would hide in the old theme's colour"
    assert found["head"]["color"] == found["beside"]["color"] != found["head"]["ground"]
    assert contrast(found["page"]["color"], found["head"]["ground"]) >= 4.5
    assert found["beside"]["ground"] == "rgba(0, 0, 0, 0)"  # through which the page shows
    assert found["chosen"]["ground"] == found["next"]["ground"]
    page.wait_for_function("ink => colours().title.fill === ink", arg=found["page"]["color"])
    page.get_by_test_id("stMainMenuItem-theme-System").click()
    page.wait_for_function("ink => colours().page.color !== ink", arg=found["page"]["color"])
    page.wait_for_function("() => colours().title.fill === colours().page.color")
    page.emulate_media(color_scheme="light")
    page.set_viewport_size({"width": 1400, "height": 900})


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
    expect(page.get_by_role("button", name="Decode every rule on this prompt")).to_be_hidden()
