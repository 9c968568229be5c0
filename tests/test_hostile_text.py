"""Text from strangers is shown on every page and acts on none: no request leaves, no markup is made, nothing turned."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import numpy as np
import pytest
from playwright.sync_api import Browser, Page, TimeoutError

from mars_viz import figures
from mars_viz.analysis.metrics import positions
from mars_viz.analysis.rulings import AllRules, agreement
from mars_viz.axis import RuleDial
from mars_viz.escapes import visible
from mars_viz.exploration import mapped
from mars_viz.figures.rules import agreement_matrix
from mars_viz.prompts import PromptItem, PromptSet
from mars_viz.race import save_race
from mars_viz.report import report_html, write_report
from mars_viz.rules import rule_named
from mars_viz.run import LONGEST_STOP, Piece, Run, Settings
from mars_viz.sweep import Sweep
from mars_viz.sweep.wall_clock import keep_check
from tests.controls import READY, SCRIPT
from tests.factories import toy_map, toy_run
from tests.served import App, app_server
from tests.sweep_cases import COSTS, timing
from tests.tables import Words, table_backend
from tests.test_race import toy_race

HOST = "hostile.invalid"
FIXED = ("rule", "tree", "controller", "grader", "question")
"""Fields without free text: names from a registry, and keys."""
ATTACKS = tuple(
    before + word + after
    for before, word, after in (
        ("![", "evilimage", f"](http://{HOST}/i)"),
        ("<img src=http://" + HOST + "/t alt=", "eviltag", ">"),
        ("[", "evillink", f"](http://{HOST}/l)"),
        ("\u202e", "evilturned", "\u2069\u2066\u200f"),
        (":red[", "evilred", "]"),
        (f"http://{HOST}/", "eviladdress", ""),
        ("<script>document.title=", "1;evilscript", "</script>"),
        ("\x1b[31m", "evilescape", "\x07\x9b"),
        ("**", "evilstrong", "**"),
        ("[x](javascript:document.title=", "eviljavascript", ")"),
        (":material/", "evilicon", ": :streamlit: :smile:"),
        ("$", "evilmath", "$"),
        ("`", "eviltick", "` ~~evilstrike~~ _evilem_"),
        ("'\"><a href=http://" + HOST + "/a onmouseover=1>", "evilanchor", "</a>"),
        ("%{x}<b>", "evilbold", "</b> -> &lt;evilentity&gt;"),
        ("\n\n# ", "evilheading", "\n\n- evillist\n\n|evil|table|\n|---|---|\n|a|b|\n\n    evilcode\n"),
        (f"www.{HOST} a@{HOST} ", "evilplain", ""),
    )
)


@dataclass(slots=True)
class Attacker:
    """Puts an attack into every text of a record. The first one differs from field to field, since pages cut texts."""

    turn: int = 0

    def text(self, name: str) -> str:
        at = (self.turn + sum(map(ord, name))) % len(ATTACKS)
        return " ".join([*ATTACKS[at:], *ATTACKS[:at]])

    def on(self, value: Any, name: str = "") -> Any:
        """Replace every text in a record."""
        if name in FIXED:
            return value
        if isinstance(value, str):
            return self.text(name)[:LONGEST_STOP] if name == "stop" else self.text(name)
        if isinstance(value, Piece):
            return replace(value, data=f"{self.text(f'piece {value.text}')}{value.text}".encode())
        if isinstance(value, tuple) and value and all(isinstance(each, str) for each in value):
            return tuple(self.on(each, name) for each in value)
        if isinstance(value, Mapping):
            return {self.on(key, f"{name} key"): self.on(each, f"{name} {key}") for key, each in value.items()}
        if is_dataclass(value) and not isinstance(value, type):
            return replace(
                value, **{each.name: self.on(getattr(value, each.name), each.name) for each in fields(value)}
            )
        return value


def attacked(run: Run, turn: int = 0) -> Run:
    """Put an attack into every text of a run and of its dial map."""
    made = run.dial_map
    hostile: Run = Attacker(turn).on(replace(run, map=None))
    return hostile if made is None else mapped(hostile, replace(made, frame=hostile.without_rounds))


def folder_name(turn: int) -> str:
    """An attack as the name of a folder."""
    return Attacker(turn).text("folder").replace("/", "\u2215").encode()[:180].decode(errors="ignore")


@cache
def runs() -> dict[str, Run]:
    """By folder: greedy with a map, sampled, and without rounds."""
    one = toy_run(max_new_tokens=24, vocabulary=200, model_seed=2, stop=("never",))
    made, _ = toy_map(one.settings, low=0.5, model_seed=2, vocabulary=200)
    sampled = toy_run(rule="lenience", temperature=1.0, max_new_tokens=24, stop=("never",), seed=3)
    return {
        "mapped": attacked(mapped(one, replace(made, frame=one.without_rounds))),
        folder_name(3): attacked(sampled, 3),
        "empty": attacked(replace(one, rounds=()), 6),
    }


def sweep(out: Path) -> None:
    """A sweep of a prompt for each attack, some with answers that texts can contain, and a timing."""
    plain = PromptItem("id", "category", "prompt", "answer", "contains")
    items = [Attacker(turn).on(plain) for turn in range(len(ATTACKS))]
    answered = [replace(item, answer=f"w{turn + 1}") if turn % 4 else item for turn, item in enumerate(items)]
    settings = Settings(rule="mars", gamma=3, max_new_tokens=8)
    attacker, backend, words = Attacker(4), table_backend(), Words()
    words.pieces = attacker.on(words.pieces)
    hostile = replace(
        backend,
        target=replace(backend.target, name=attacker.text("target"), revision=attacker.text("target_revision")),
        drafter=replace(backend.drafter, name=attacker.text("drafter"), revision=attacker.text("drafter_revision")),
        dtype=attacker.text("dtype"),
        processor=attacker.text("device"),
        versions=attacker.on(backend.versions, "versions"),
        tokenizer=words,
    )
    prompts = PromptSet(Attacker().text("prompt set"), tuple(answered))
    span = RuleDial(rule_named("mars")).span(None, None, (settings.gamma,))
    Sweep(hostile, prompts, settings, span, out, costs=attacker.on(COSTS)).finish()
    keep_check(out, replace(timing(), device=attacker.text("device"), created=attacker.text("created")))


PREFIX = {
    re.search(r"evil\w+", attack)[0]: re.sub(r"[\s\x00-\x1f\u202e]", "", attack.split("evil")[0])  # type: ignore[index]
    for attack in ATTACKS
}
"""Words of the attacks, and the text before them if they are shown as written."""
SPACING = re.compile("[\\s\u2060·⏎⇥]")
"""Blanks, their replacements in labels, and the character that breaks an address for Markdown."""


class Visit:
    """A tab that visits the pages and collects problems."""

    def __init__(self, page: Page, address: str) -> None:
        self.page, self.address, self.where = page, address, ""
        self.problems: list[str] = []
        self.seen: set[str] = set()  # words of attacks that were shown
        self.opened: set[str] = set()  # labels of lists and popovers
        ours = (address, "data:", "blob:", "file:")
        page.on("request", lambda asked: asked.url.startswith(ours) or self.add(f"the page requested {asked.url}"))
        page.on("dialog", lambda dialog: (self.add("a script opened a dialog"), dialog.dismiss()))

    def add(self, problem: str) -> None:
        self.problems.append(f"{self.where}: {problem}")

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
        """Open each list and popover whose label was not opened on any page before."""
        for kind, key, over in (
            ("[data-testid=stSelectbox] input", "ArrowDown", "[data-testid$=Dropdown]"),
            ("[data-testid=stPopoverButton]", "Enter", "[data-testid=stPopoverBody]"),
        ):
            shown = self.page.locator(over)
            for each in self.page.locator(f"{kind}:enabled:visible").all():
                label = each.get_attribute("aria-label") or each.inner_text()
                if label in self.opened:
                    continue
                self.opened.add(label)
                for _ in range(3):  # a list closes if its page scrolls or is drawn again
                    each.focus()
                    self.page.wait_for_function(READY)
                    each.press(key)
                    with suppress(TimeoutError):
                        shown.first.wait_for(timeout=20_000)
                        break
                self.page.wait_for_function(READY)
                self.look()
                self.page.keyboard.press("Escape")
                if shown.count():  # the focus is elsewhere
                    each.click(force=True)
                shown.wait_for(state="detached")

    def upload(self, popover: str, key: str, name: str, data: bytes) -> None:
        """Upload a file that cannot be read, and check the error."""
        if popover:
            self.page.get_by_text(popover, exact=True).first.click()
            self.page.wait_for_function(READY)
        before, notes = self.page.locator(".mv-note").count(), "document.querySelectorAll('.mv-note').length"
        file = self.page.locator(f".st-key-{key} input[type=file]")
        file.set_input_files({"name": name, "mimeType": "application/octet-stream", "buffer": data})
        self.page.wait_for_function(f"{notes} > {before}")
        self.look()


@pytest.fixture(scope="module")
def hostile_app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[App]:
    folder = tmp_path_factory.mktemp("hostile")
    kept, samples, sweeps = folder / "runs", folder / "samples", folder / "sweeps"
    for name, run in runs().items():
        run.save(kept / name)
        run.save(samples / f"sample-{name}")
    save_race(Attacker(1).on(toy_race()), kept / "races" / "race")
    sweep(sweeps / folder_name(5))
    with app_server(folder, MARS_VIZ_SAMPLES=str(samples), MARS_VIZ_DELETE="everybody") as app:
        yield app


@pytest.fixture
def visit(hostile_app: App, browser: Browser) -> Iterator[Visit]:
    with browser.new_context(viewport={"width": 1400, "height": 900}, reduced_motion="reduce") as context:
        context.add_init_script(path=SCRIPT)
        context.add_init_script(path=Path(__file__).with_name("hostile.js"))
        visit = Visit(context.new_page(), hostile_app.address)
        yield visit
        assert not visit.problems, "\n".join(dict.fromkeys(visit.problems))
        assert visit.seen


ODD, SWEEP = quote(folder_name(3)), quote(folder_name(5))
PARAMETERS = ("view", "run", "rule", "dial", "tokens", "stop", "overlay", "selected", "gamma", "target", "drafter")
LINK = urlencode({name: Attacker(place).text(name) for place, name in enumerate(PARAMETERS)})
TEXTS = {name: Attacker(place).text(name) for place, name in enumerate(("question_id", "category", "prompt", "grader"))}
SURFACES = (
    ("/", ".mv-card"),
    (f"/explore?run={ODD}", ".explorer", "Open or save", "zip", "zip", TEXTS["prompt"].encode()),
    ("/compare?run=mapped", ".compare .stream"),
    (f"/compare?across=sweep&sweep={SWEEP}", ".mv-lead"),
    (f"/rules?run={ODD}", "h1"),
    (f"/tune?sweep={SWEEP}", ".js-plotly-plot", "", "vllm-import", "json", json.dumps({"x": TEXTS}).encode()),
    (f"/learn?run={ODD}", ".stepper"),
    ("/live?view=race&race=race", ".race-board"),
    (f"/live?run={ODD}", ".track-text"),
    ("/runs", "h1"),
    (f"/runs?run={ODD}", ".facts"),
    *((f"/{page}?{LINK}", "h1") for page in ("explore", "learn", "runs", "live")),
)
"""Links, what must be there, and for some the popover, key, ending and contents of a damaged upload."""


def test_no_page_acts_on_a_text(visit: Visit) -> None:
    for link, shows, *upload in SURFACES:
        visit.open(link, shows)
        visit.open_lists()
        if upload:
            popover, key, ending, data = upload
            visit.upload(popover, key, f"{folder_name(len(key))}.{ending}", data)
    assert visit.seen >= set(PREFIX)


def test_no_job_acts_on_a_text(visit: Visit) -> None:
    """A hostile prompt, from its progress to its end."""
    visit.open("/live?tokens=8", "h1")
    visit.look("hovered()")
    visit.page.locator(".st-key-prompt textarea").fill(Attacker(2).text("prompt")[:400])
    visit.page.get_by_role("button", name="Decode now", exact=True).click()
    ended = visit.page.get_by_text("Done:").first
    while not ended.is_visible():
        visit.look()
        with suppress(TimeoutError):
            ended.wait_for(timeout=100)
    visit.page.wait_for_function(READY)
    visit.look()


def test_no_report_acts_on_a_text(visit: Visit, tmp_path: Path) -> None:
    path = write_report(report_html(runs()["mapped"], most_steps=0), tmp_path / "report.html")
    visit.page.goto(path.as_uri())
    visit.page.wait_for_selector("#heat_map .js-plotly-plot, #heat_map.js-plotly-plot")
    visit.page.locator("#explorer .stream .t").nth(3).click()
    visit.look()


OUR_TAGS = re.compile(r'</?(?:b|br|i|extra)>|<span style="color:#[0-9A-Fa-f]{6}">|</span>')
FILLED_IN = re.compile(r"(?:x|y|z|text|hovertext|customdata(?:\[\d+\])?)(?::.*)?")


def test_figures_hold_no_tags_but_their_own() -> None:
    for run in runs().values():
        panel, at = AllRules(run), positions(run, run.settings.dial)
        rulings = [panel.ruling(name, None) for name in panel.able]
        agreed, every = agreement(rulings, len(panel.drafted)), np.arange(len(panel.drafted))
        drawn = [make(at, figures.LIGHT) for make in figures.ALONG_THE_DIAL]
        drawn += [agreement_matrix(agreed, panel.drafted, run.pieces, every, figures.LIGHT)] if len(every) else []
        for figure in drawn:
            for text in map(json.loads, re.findall(r'"(?:[^"\\]|\\.)*"', figure.to_json())):
                assert "<" not in OUR_TAGS.sub("", text), text
                assert visible(text.replace("\u2060", "")) == text.replace("\u2060", "")
                assert all(map(FILLED_IN.fullmatch, re.findall(r"%\{([^}]*)\}", text))), text
        assert not len(every) or "evil" in str(drawn[-1].to_plotly_json())
