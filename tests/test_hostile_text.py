"""Text from strangers is shown on every page and acts on none: no request leaves, no markup is made, nothing turned."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
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
from tests.gestures import PATIENCE
from tests.hostile import ATTACKS, HOST, Attacker
from tests.served import ROOT, served
from tests.test_race import toy_race

PREFIX = {
    re.search(r"evil\w+", attack)[0]: re.sub(r"[\s\x00-\x1f\u202e]", "", attack.split("evil")[0])  # type: ignore[index]
    for attack in ATTACKS
}
"""Words of the attacks, and what stands before them where they are shown as they are written."""
SPACING = re.compile("[\\s\u2060·⏎⇥]")
"""Blanks, what labels show in their place, and what breaks an address for Markdown."""
FIND = Path(__file__).with_name("hostile.js")


@dataclass(slots=True)
class Visit:
    """A browser's tab that goes through the pages and keeps what is wrong."""

    page: Page
    address: str
    """Of the server."""
    where: str = ""
    problems: list[str] = field(default_factory=list)
    seen: set[str] = field(default_factory=set)
    """Words of attacks that were shown."""
    opened: dict[tuple[str, str], int] = field(default_factory=dict)
    """How often what opens on a page was opened, by the page and its label."""

    def __post_init__(self) -> None:
        self.page.set_default_timeout(PATIENCE * 1000)
        self.page.on("request", lambda request: self.requested(request.url))
        self.page.on("dialog", lambda dialog: (self.says("a script opened a dialog"), dialog.dismiss()))

    def says(self, words: str) -> None:
        self.problems.append(f"{self.where}: {words}")

    def requested(self, url: str) -> None:
        if not url.startswith((self.address, "data:", "blob:", "file:")):
            self.says(f"the page asked for {url}")

    def settled(self) -> None:
        self.page.wait_for_function(READY)

    def open(self, link: str, shows: str) -> None:
        self.where = link[:60]
        self.page.goto(self.address + link)
        self.page.wait_for_selector(shows)
        self.settled()
        closed = self.page.locator("details:not([open]) > summary")
        while closed.count():
            closed.first.click()
            self.settled()
        self.look()

    def look(self) -> None:
        """Everything that the page shows now."""
        self.judge(self.page.evaluate("() => hostile()"))

    def hover(self) -> None:
        """What shows only on hovering: help and tooltips."""
        self.judge(self.page.evaluate("() => hovered()"))

    def judge(self, found: dict[str, Any]) -> None:
        """What a page says of itself."""
        for problem in found["problems"]:
            self.says(problem)
        text = SPACING.sub("", found["text"]).replace("\u2215", "/")
        for shown in re.finditer(r"evil\w+", text):
            before = PREFIX.get(shown[0], "")
            self.seen.add(shown[0])
            told = text[max(0, shown.start() - len(before)) : shown.start()]
            cut = told.rpartition("…")  # the end of a long text
            if told != before and not (cut[1] and before.endswith(cut[2])):
                self.says(f"“{text[max(0, shown.start() - 30) : shown.end() + 9]}” is not shown as it is written")

    def everything(self) -> None:
        """The lists and what opens over the page, one after the other; of a label on a page with two runs."""
        for each in self.page.locator("[data-testid=stSelectbox] input:enabled:visible").all():
            if self.is_new(each.get_attribute("aria-label") or ""):
                self.unfold(each)
                self.shown("[data-testid$=Dropdown]", each)
        for each in self.page.locator("[data-testid=stPopoverButton]:enabled:visible").all():
            if self.is_new(each.inner_text()):
                each.click()
                self.shown("[data-testid=stPopoverBody]", each)

    def is_new(self, label: str) -> bool:
        """True unless what has this label was opened twice on this page."""
        key = (self.where.split("?")[0], label)
        self.opened[key] = self.opened.get(key, 0) + 1
        return self.opened[key] <= 2

    def unfold(self, box: Locator) -> None:
        """Its list. One that is open closes as its page scrolls or is drawn anew, so it is asked for three times."""
        for _ in range(3):
            box.focus()
            self.settled()
            box.press("ArrowDown")
            with suppress(TimeoutError):
                self.page.locator("[data-testid$=Dropdown]").first.wait_for(timeout=20_000)
                return

    def upload(self, key: str, name: str, data: bytes) -> None:
        """What is said of a file that cannot be read."""
        files: list[FilePayload] = [{"name": name, "mimeType": "application/octet-stream", "buffer": data}]
        before = self.page.locator(".mv-note").count()
        with self.page.expect_response(lambda response: "/upload_file/" in response.url):
            self.page.locator(f".st-key-{key} input[type=file]").set_input_files(files)
        self.page.wait_for_function("before => document.querySelectorAll('.mv-note').length > before", arg=before)
        self.look()

    def shown(self, over: str, opener: Locator) -> None:
        """What lies over the page now."""
        self.page.locator(over).first.wait_for()
        self.settled()
        self.look()
        self.page.keyboard.press("Escape")
        if self.page.locator(over).count():  # the focus is elsewhere
            opener.click(force=True)
        self.page.locator(over).wait_for(state="detached")


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("hostile")
    kept, samples, sweeps = folder / "runs", folder / "samples", folder / "sweeps"
    for name, run in hostile.runs().items():
        run.save(kept / name)
        run.save(samples / f"sample-{name}")
    save_race(Attacker(1).on(toy_race()), kept / "races" / "race")
    hostile.sweep(sweeps / hostile.folder_name(5))
    hostile.sweep(sweeps / "margin", "mars-margin")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MARS_VIZ_RUNS", str(kept))
        patch.setenv("MARS_VIZ_SAMPLES", str(samples))
        patch.setenv("MARS_VIZ_SWEEPS", str(sweeps))
        patch.setenv("MARS_VIZ_DELETE", "everybody")
        with served(ROOT / "app.py") as found:
            yield found


ODD = quote(hostile.folder_name(3))
SWEEP = quote(hostile.folder_name(5))
ASKED = {name: Attacker(place).text(name) for place, name in enumerate(("run", "dial", "overlay", "selected", "gamma"))}
LIVE = {
    name: Attacker(place).text(name) for place, name in enumerate(("view", "run", "rule", "dial", "tokens", "stop"))
}
MODELS = {"target": f"![x](http://{HOST}/i) evilmodel", "drafter": f"`<b>` http://{HOST}/ :red[evilred]"}
LOST = {"across": "sweep"} | {name: ASKED["run"] for name in ("sweep", "beside", "prompt", "from", "to")}
PAGES = (
    ("/", ".mv-card"),
    *(
        (f"/{page}?run={name}", shows)
        for page, shows in (("explore", ".explorer"), ("rules", "h1"))
        for name in ("mapped", ODD)
    ),
    ("/explore?run=empty", ".explorer"),
    ("/compare?run=mapped", ".compare .stream"),
    ("/compare?run=mapped&across=rules", "h1"),
    ("/compare?run=mapped&across=runs", ".compare .stream"),
    (f"/compare?across=sweep&sweep={SWEEP}", ".mv-lead"),
    (f"/compare?across=sweep&sweep=margin&beside={SWEEP}", ".mv-lead"),
    (f"/tune?sweep={SWEEP}", ".js-plotly-plot"),
    (f"/learn?run={ODD}", ".stepper"),
    *((f"/learn?run=mapped&lesson={number}", "h2") for number in range(1, 8)),
    ("/learn?run=empty&lesson=2", "h2"),
    (f"/learn?run={ODD}&lesson=1&teach=1", "h2"),
    ("/live?view=race&race=race", ".race-board"),
    ("/runs", "h1"),
    (f"/runs?run={ODD}", ".mv-facts"),
    (f"/runs?{urlencode(ASKED)}", "h1"),
    (f"/live?run={ODD}", ".track-text"),
    *((f"/{page}?{urlencode(ASKED)}", "h1") for page in ("explore", "rules", "learn")),
    (f"/tune?{urlencode({'sweep': ASKED['run'], 'others': ASKED['dial']})}", "h1"),
    (f"/compare?{urlencode(LOST)}", "h1"),
    (f"/live?{urlencode(LIVE)}", "h1"),
    (f"/live?{urlencode(MODELS)}", "h1"),
)
"""Links, and what must be there."""


TEXTS = {name: Attacker(place).text(name) for place, name in enumerate(("question_id", "category", "prompt", "grader"))}
UPLOADS = (
    ("/live?view=race", ("Open",), "race-zip", "zip", b"PK\x05\x06" + bytes(18)),
    ("/explore?run=empty", ("Open or save",), "zip", "zip", TEXTS["prompt"].encode()),
    ("/tune?sweep=margin", (), "vllm-import", "json", json.dumps({TEXTS["prompt"]: TEXTS}).encode()),
)
"""Links, what to press there, the key of the field, and the ending and contents of what is put into it."""


def test_no_page_does_what_a_text_says(address: str, browser: Browser) -> None:
    with browser.new_context(viewport={"width": 1400, "height": 900}, reduced_motion="reduce") as context:
        context.add_init_script(path=SCRIPT)
        context.add_init_script(path=FIND)
        visit = Visit(context.new_page(), address)
        for link, shows in PAGES:
            visit.open(link, shows)
            visit.everything()
        for link, presses, key, ending, data in UPLOADS:
            visit.open(link, "h1")
            for name in presses:
                visit.page.get_by_text(name, exact=True).first.click()
                visit.settled()
            visit.upload(key, f"{hostile.folder_name(len(key))}.{ending}", data)
    assert not visit.problems, "\n" + "\n".join(dict.fromkeys(visit.problems))
    assert visit.seen >= set(PREFIX)


def test_no_job_does_either(address: str, browser: Browser) -> None:
    """A decode of such a prompt, from its progress to its end, and one below a link to models of such names."""
    ways = [
        ("/live?tokens=8", Attacker(2).text("prompt")[:400], "[data-testid=stMain]", "Done:"),
        (f"/live?{urlencode(MODELS | {'target': ATTACKS[0]})}", "Once upon a time", ".mv-note", "evil"),
    ]
    with browser.new_context(viewport={"width": 1400, "height": 900}, reduced_motion="reduce") as context:
        context.add_init_script(path=SCRIPT)
        context.add_init_script(path=FIND)
        visit = Visit(context.new_page(), address)
        for link, prompt, shown, words in ways:
            visit.open(link, "h1")
            visit.hover()
            visit.page.locator(".st-key-prompt textarea").fill(prompt)
            visit.page.get_by_role("button", name="Decode now", exact=True).click()
            ended = visit.page.locator(shown).filter(has_text=words).first
            while not ended.is_visible():
                visit.look()
                with suppress(TimeoutError):
                    ended.wait_for(timeout=100)
            visit.settled()
            visit.look()
            visit.hover()
    assert not visit.problems, "\n" + "\n".join(dict.fromkeys(visit.problems))
    assert "evilimage" in visit.seen  # the names are refused before anything is loaded


def test_a_report_does_not_either(browser: Browser, tmp_path: Path) -> None:
    path = write_report(report_html(hostile.runs()["mapped"], most_steps=0), tmp_path / "report.html")
    with browser.new_context(reduced_motion="reduce") as context:
        context.add_init_script(path=FIND)
        visit = Visit(context.new_page(), path.as_uri(), "the report")
        visit.page.goto(path.as_uri())
        visit.page.wait_for_selector("#heat_map .js-plotly-plot, #heat_map.js-plotly-plot")
        visit.page.locator("#explorer .stream .t").nth(3).click()
        visit.look()
    assert not visit.problems, "\n" + "\n".join(dict.fromkeys(visit.problems))
    assert visit.seen


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
    """Every text of a figure."""
    match value:
        case str():
            yield value
        case dict():
            for each in value.values():
                yield from texts(each)
        case list() | tuple():
            for each in value:
                yield from texts(each)
        case np.ndarray() if value.dtype.kind in "OU":
            yield from texts(value.tolist())


def test_a_picture_of_the_text_holds_no_markup() -> None:
    for run in hostile.runs().values():
        drawn = ElementTree.fromstring(token_strip(run))
        assert {each.tag.rpartition("}")[2] for each in drawn.iter()} <= {
            "svg",
            "title",
            "rect",
            "text",
            "tspan",
            "path",
        }
        assert all(visible(text) == text for text in drawn.itertext())
