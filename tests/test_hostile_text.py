"""Text from strangers is shown on every page and acts on none: no request leaves, no markup is made, nothing turned."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote, urlencode
from xml.etree import ElementTree

import numpy as np
import pytest
from playwright.sync_api import Browser, FilePayload, Locator, Page, TimeoutError

from mars_viz import figures
from mars_viz.analysis.all_rules import AllRules
from mars_viz.analysis.positions import positions
from mars_viz.analysis.rulings import agreement
from mars_viz.escapes import visible
from mars_viz.figures.rules import agreement_matrix
from mars_viz.figures.svg import token_strip
from mars_viz.race.files import save_race
from mars_viz.report import report_html, write_report
from tests import hostile
from tests.controls import READY, SCRIPT
from tests.hostile import ATTACKS, HOST, Attacker
from tests.served import App, app_server
from tests.test_race import toy_race

PREFIX = {
    re.search(r"evil\w+", attack)[0]: re.sub(r"[\s\x00-\x1f\u202e]", "", attack.split("evil")[0])  # type: ignore[index]
    for attack in ATTACKS
}
"""Words of the attacks, and the text before them if they are shown as written."""
SPACING = re.compile("[\\s\u2060·⏎⇥]")
"""Blanks, their replacements in labels, and the character that breaks an address for Markdown."""
FIND = Path(__file__).with_name("hostile.js")


@dataclass(slots=True)
class Visit:
    """A tab that visits the pages and collects problems."""

    page: Page
    address: str
    where: str = ""
    problems: list[str] = field(default_factory=list)
    seen: set[str] = field(default_factory=set)
    """Words of attacks that were shown."""
    opened: set[tuple[str, str]] = field(default_factory=set)
    """Page and label of each list and popover that was opened."""

    def __post_init__(self) -> None:
        self.page.on("request", lambda request: self.check_request(request.url))
        self.page.on("dialog", lambda dialog: (self.add("a script opened a dialog"), dialog.dismiss()))

    def add(self, problem: str) -> None:
        self.problems.append(f"{self.where}: {problem}")

    def check_request(self, url: str) -> None:
        if not url.startswith((self.address, "data:", "blob:", "file:")):
            self.add(f"the page requested {url}")

    def open(self, link: str, shows: str) -> None:
        self.where = link[:60]
        self.page.goto(self.address + link)
        self.page.wait_for_selector(shows)
        self.page.wait_for_function(READY)
        closed = self.page.locator("details:not([open]) > summary")
        while closed.count():
            closed.first.click()
            self.page.wait_for_function(READY)
        self.look()

    def look(self, script: str = "hostile()") -> None:
        """Check all that the page shows; `hovered()` shows help and tooltips."""
        found = self.page.evaluate(f"() => {script}")
        for problem in found["problems"]:
            self.add(problem)
        text = SPACING.sub("", found["text"]).replace("\u2215", "/")
        for shown in re.finditer(r"evil\w+", text):
            before = PREFIX.get(shown[0], "")
            self.seen.add(shown[0])
            actual = text[max(0, shown.start() - len(before)) : shown.start()]
            cut = actual.rpartition("…")  # the end of a long text
            if actual != before and not (cut[1] and before.endswith(cut[2])):
                self.add(f"“{text[max(0, shown.start() - 30) : shown.end() + 9]}” is not shown as written")

    def open_lists(self) -> None:
        """Open each list and popover whose label this page had not opened before."""
        for each in self.page.locator("[data-testid=stSelectbox] input:enabled:visible").all():
            if self.is_new(each.get_attribute("aria-label") or ""):
                self.unfold(each)
                self.look_over("[data-testid$=Dropdown]", each)
        for each in self.page.locator("[data-testid=stPopoverButton]:enabled:visible").all():
            if self.is_new(each.inner_text()):
                each.click()
                self.look_over("[data-testid=stPopoverBody]", each)

    def is_new(self, label: str) -> bool:
        key = (self.where.split("?")[0], label)
        new = key not in self.opened
        self.opened.add(key)
        return new

    def unfold(self, box: Locator) -> None:
        """Open a list. It closes if its page scrolls or is drawn again, so there are three tries."""
        for _ in range(3):
            box.focus()
            self.page.wait_for_function(READY)
            box.press("ArrowDown")
            with suppress(TimeoutError):
                self.page.locator("[data-testid$=Dropdown]").first.wait_for(timeout=20_000)
                return

    def look_over(self, over: str, opener: Locator) -> None:
        """Check what is shown over the page, and close it."""
        self.page.locator(over).first.wait_for()
        self.page.wait_for_function(READY)
        self.look()
        self.page.keyboard.press("Escape")
        if self.page.locator(over).count():  # the focus is elsewhere
            opener.click(force=True)
        self.page.locator(over).wait_for(state="detached")

    def upload(self, key: str, name: str, data: bytes) -> None:
        """Upload a file that cannot be read, and check the error."""
        files: list[FilePayload] = [{"name": name, "mimeType": "application/octet-stream", "buffer": data}]
        before = self.page.locator(".mv-note").count()
        with self.page.expect_response(lambda response: "/upload_file/" in response.url):
            self.page.locator(f".st-key-{key} input[type=file]").set_input_files(files)
        self.page.wait_for_function("before => document.querySelectorAll('.mv-note').length > before", arg=before)
        self.look()

    def found_nothing(self) -> None:
        assert not self.problems, "\n".join(dict.fromkeys(self.problems))
        assert self.seen


@pytest.fixture(scope="module")
def hostile_app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[App]:
    folder = tmp_path_factory.mktemp("hostile")
    kept, samples, sweeps = folder / "runs", folder / "samples", folder / "sweeps"
    for name, run in hostile.runs().items():
        run.save(kept / name)
        run.save(samples / f"sample-{name}")
    save_race(Attacker(1).on(toy_race()), kept / "races" / "race")
    hostile.sweep(sweeps / hostile.folder_name(5))
    hostile.sweep(sweeps / "margin", "mars-margin")
    with app_server(folder, MARS_VIZ_SAMPLES=str(samples), MARS_VIZ_DELETE="everybody") as app:
        yield app


@pytest.fixture
def visit(hostile_app: App, browser: Browser) -> Iterator[Visit]:
    with browser.new_context(viewport={"width": 1400, "height": 900}, reduced_motion="reduce") as context:
        context.add_init_script(path=SCRIPT)
        context.add_init_script(path=FIND)
        visit = Visit(context.new_page(), hostile_app.address)
        yield visit
        visit.found_nothing()


ODD = quote(hostile.folder_name(3))
SWEEP = quote(hostile.folder_name(5))
ASKED = {name: Attacker(place).text(name) for place, name in enumerate(("run", "dial", "overlay", "selected", "gamma"))}
LIVE = {
    name: Attacker(place).text(name) for place, name in enumerate(("view", "run", "rule", "dial", "tokens", "stop"))
}
MODELS = {"target": f"![x](http://{HOST}/i) evilmodel", "drafter": f"`<b>` http://{HOST}/ :red[evilred]"}
LOST = {"across": "sweep"} | {name: ASKED["run"] for name in ("sweep", "beside", "prompt", "from", "to")}
SURFACES = (
    ("/", ".mv-card"),
    (f"/explore?run={ODD}", ".explorer"),
    ("/compare?run=mapped", ".compare .stream"),
    (f"/compare?across=sweep&sweep=margin&beside={SWEEP}", ".mv-lead"),
    (f"/rules?run={ODD}", "h1"),
    (f"/tune?sweep={SWEEP}", ".js-plotly-plot"),
    (f"/learn?run={ODD}", ".stepper"),
    ("/learn?run=mapped&lesson=4", "h2"),
    ("/live?view=race&race=race", ".race-board"),
    (f"/live?run={ODD}", ".track-text"),
    ("/runs", "h1"),
    (f"/runs?run={ODD}", ".mv-facts"),
    *((f"/{page}?{urlencode(ASKED)}", "h1") for page in ("explore", "learn", "runs")),
    (f"/live?{urlencode(LIVE)}", "h1"),
)
"""Links, and what must be there."""
OTHERS = (
    ("/explore?run=mapped", ".explorer"),
    ("/explore?run=empty", ".explorer"),
    ("/compare?run=mapped&across=rules", "h1"),
    ("/compare?run=mapped&across=runs", ".compare .stream"),
    (f"/compare?across=sweep&sweep={SWEEP}", ".mv-lead"),
    *((f"/learn?run=mapped&lesson={number}", "h2") for number in (1, 2, 3, 5, 6, 7)),
    ("/learn?run=empty&lesson=2", "h2"),
    (f"/learn?run={ODD}&lesson=1&teach=1", "h2"),
    ("/rules?run=mapped", "h1"),
    (f"/rules?{urlencode(ASKED)}", "h1"),
    (f"/tune?{urlencode({'sweep': ASKED['run'], 'others': ASKED['dial']})}", "h1"),
    (f"/compare?{urlencode(LOST)}", "h1"),
    (f"/live?{urlencode(MODELS)}", "h1"),
)
TEXTS = {name: Attacker(place).text(name) for place, name in enumerate(("question_id", "category", "prompt", "grader"))}
UPLOADS = (
    ("/live?view=race", ("Open",), "race-zip", "zip", b"PK\x05\x06" + bytes(18)),
    ("/explore?run=empty", ("Open or save",), "zip", "zip", TEXTS["prompt"].encode()),
    ("/tune?sweep=margin", (), "vllm-import", "json", json.dumps({TEXTS["prompt"]: TEXTS}).encode()),
)
"""Links, buttons to press there, the key of the field, and the ending and contents of the file."""


@pytest.mark.parametrize("links", [SURFACES, pytest.param(OTHERS, marks=pytest.mark.long)], ids=["once", "others"])
def test_no_page_acts_on_a_text(visit: Visit, links: tuple[tuple[str, str], ...]) -> None:
    for link, shows in links:
        visit.open(link, shows)
        visit.open_lists()
    for link, presses, key, ending, data in UPLOADS if links is SURFACES else ():
        visit.open(link, "h1")
        for name in presses:
            visit.page.get_by_text(name, exact=True).first.click()
            visit.page.wait_for_function(READY)
        visit.upload(key, f"{hostile.folder_name(len(key))}.{ending}", data)
    assert links is OTHERS or visit.seen >= set(PREFIX)


def test_no_job_acts_on_a_text(visit: Visit) -> None:
    """A hostile prompt, from its progress to its end, and a link to models of hostile names, which are refused."""
    for link, prompt, shown, words in (
        ("/live?tokens=8", Attacker(2).text("prompt")[:400], "[data-testid=stMain]", "Done:"),
        (f"/live?{urlencode(MODELS | {'target': ATTACKS[0]})}", "Once upon a time", ".mv-note", "evil"),
    ):
        visit.open(link, "h1")
        visit.look("hovered()")
        visit.page.locator(".st-key-prompt textarea").fill(prompt)
        visit.page.get_by_role("button", name="Decode now", exact=True).click()
        ended = visit.page.locator(shown).filter(has_text=words).first
        while not ended.is_visible():
            visit.look()
            with suppress(TimeoutError):
                ended.wait_for(timeout=100)
        visit.page.wait_for_function(READY)
        visit.look()
        visit.look("hovered()")
    assert "evilimage" in visit.seen


def test_no_report_acts_on_a_text(visit: Visit, tmp_path: Path) -> None:
    path = write_report(report_html(hostile.runs()["mapped"], most_steps=0), tmp_path / "report.html")
    visit.address, visit.where = path.as_uri(), "the report"
    visit.page.goto(path.as_uri())
    visit.page.wait_for_selector("#heat_map .js-plotly-plot, #heat_map.js-plotly-plot")
    visit.page.locator("#explorer .stream .t").nth(3).click()
    visit.look()


OUR_TAGS = re.compile(r'</?(?:b|br|i|extra)>|<span style="color:#[0-9A-Fa-f]{6}">|</span>')
FILLED_IN = re.compile(r"(?:x|y|z|text|hovertext|customdata(?:\[\d+\])?)(?::.*)?")


def test_figures_hold_no_tags_but_their_own() -> None:
    for run in hostile.runs().values():
        panel, at = AllRules(run), positions(run, run.settings.dial)
        rulings = [panel.ruling(name, None) for name in panel.able]
        agreed, every = agreement(rulings, len(panel.drafted)), np.arange(len(panel.drafted))
        drawn = [make(at, figures.LIGHT) for make in figures.ALONG_THE_DIAL]
        drawn += [agreement_matrix(agreed, panel.drafted, run.pieces, every, figures.LIGHT)] if len(every) else []
        for figure in drawn:
            for text in texts(figure.to_plotly_json()):
                assert "<" not in OUR_TAGS.sub("", text), text
                assert visible(text.replace("\u2060", "")) == text.replace("\u2060", "")
                assert all(map(FILLED_IN.fullmatch, re.findall(r"%\{([^}]*)\}", text))), text
        assert not len(every) or "evil" in str(drawn[-1].to_plotly_json())


def texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, np.ndarray):
        yield from texts(value.tolist())
    elif isinstance(value, dict | list | tuple):
        for each in value.values() if isinstance(value, dict) else value:
            yield from texts(each)


def test_a_picture_of_the_text_holds_no_markup() -> None:
    for run in hostile.runs().values():
        drawn = ElementTree.fromstring(token_strip(run))
        tags = {each.tag.rpartition("}")[2] for each in drawn.iter()}
        assert tags <= {"svg", "title", "rect", "text", "tspan", "path"}
        assert all(visible(text) == text for text in drawn.itertext())
