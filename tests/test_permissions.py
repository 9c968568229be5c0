"""Who may delete runs and name paths, and, on a server for a class, who sees, shows and decodes what."""

from __future__ import annotations

import html
import json
import os
import re
import urllib.error
import urllib.request
from collections.abc import Callable, Coroutine, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode

import pytest
from playwright.sync_api import Browser, Page, expect

from mars_viz import cli, demo, permissions
from mars_viz.backend_choice import BackendChoice
from mars_viz.errors import BadInput, SettingError
from mars_viz.exploration import mapped
from mars_viz.permissions import DELETE, PATHS, ClassLimits, MayDelete, MayNamePaths, class_limits, is_this_machine
from mars_viz.permissions import who_may_delete as deletes
from mars_viz.permissions import who_may_name_paths as names_paths
from mars_viz.run import Run
from mars_viz.runfiles import save_run
from mars_viz.runstore import RunStatus, RunStore
from mars_viz.speculators.loading import load_backend
from mars_viz.speculators.names import check_id
from mars_viz.ui import startup, visitors
from mars_viz.ui.classroom import door, explore_bar, rights
from mars_viz.ui.classroom.explore_bar import Following
from mars_viz.ui.classroom.rights import ServerClass, too_many_jobs
from mars_viz.ui.jobs.models import Job, JobState
from mars_viz.ui.jobs.tasks import Decoded, Ways, decode_job
from mars_viz.ui.jobs.worker import Worker
from mars_viz.ui.links import View
from mars_viz.ui.models_form import in_words, permitted
from mars_viz.ui.session import Session
from tests.clients import Tab, elsewhere, opened
from tests.factories import toy_map, toy_run, until
from tests.served import ROOT, own_environment, running, serving
from tests.sweep_cases import toy_sweep

STORY = "1-story-mars"
PAGES = ("", "explore", "live", "runs", "compare", "rules", "tune", "learn")
MOST_TOKENS = 64
ANNA, BEN, TEACHER, NOBODY = ("a" * 43, "b" * 43, "t" * 43, "")


def run_with_map(title: str = "") -> Run:
    run = replace(toy_run(rule="mars", dial=0.9, gamma=2, max_new_tokens=40), title=title)
    made, _ = toy_map(replace(run.settings, dial=None), 0.5, 1.0, (1, 2))
    return mapped(run, made)


@pytest.fixture(autouse=True)
def unset(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in (DELETE, PATHS, permissions.CLASSROOM, permissions.TOKENS, permissions.QUEUE):
        monkeypatch.delenv(variable, raising=False)


def test_the_default_is_the_careful_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (deletes(), names_paths()) == (MayDelete.MAKER, MayNamePaths.LOCAL)
    for variable, asked in ((DELETE, deletes), (PATHS, names_paths)):
        monkeypatch.setenv(variable, "nobody")
        assert asked().value == "nobody"
        monkeypatch.setenv(variable, "anybody")
        with pytest.raises(BadInput, match=f"{variable} is “anybody”.*everybody, nobody"):
            asked()


def test_only_this_machine_by_its_own_address_may_name_paths_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    for host in ("localhost", "127.0.0.1", "127.8.0.3", "::1", "[::1]", "a.localhost"):
        assert is_this_machine(host) and permissions.about_paths(host) == ""
    for host in ("", "0.0.0.0", "::", "10.0.0.1", "localhost.example", "example.org", "unix:/x"):
        assert not is_this_machine(host) and permissions.about_paths(host)
    for host in ("localhost:8501", "[::1]:8501", "127.0.0.1"):
        assert visitors._asks_itself({"Host": host})
    for headers in ({}, {"Host": "viz.example.org"}, {"Host": "[::1"}):
        assert not visitors._asks_itself(headers)
    for forwarded in ("X-Forwarded-For", "Forwarded", "X-Real-IP", "Via"):
        assert not visitors._asks_itself({"Host": "localhost:8501", forwarded: "x"})
    monkeypatch.setattr(visitors, "_asks_itself", lambda headers: True)
    for setting, address, may in (
        ("", "localhost", True),
        ("", "", False),
        ("", "0.0.0.0", False),
        ("local", "::1", True),
        ("everybody", "0.0.0.0", True),
        ("nobody", "localhost", False),
        ("anybody", "localhost", False),
    ):
        monkeypatch.setattr(visitors, "address", lambda address=address: address)
        if setting:
            monkeypatch.setenv(PATHS, setting)
        assert visitors.may_name_paths() == may


def test_only_ids_are_taken_whether_or_not_a_file_of_the_name_exists(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(visitors, "may_name_paths", lambda: False)
    no_ids = ["/etc/passwd", "../x", "./x", "~/x", "a/b/c", "a//b", "a/..", "..", ".hidden", "org\\name", "C:x"]
    for name in (*no_ids, "org/name\n", ""):
        with pytest.raises(BadInput, match="id of a model on the hub"):
            check_id(name)
    for name in no_ids:
        with pytest.raises(BadInput, match="id of a model on the hub"):
            permitted(BackendChoice("org/name", name))
    monkeypatch.chdir(ROOT)
    for name in ("docs/rules", "mars_viz/demo", "tests", "none"):  # folders of the server
        for pair in ((name, name), (None, f"hf:{name}")):
            with pytest.raises(BadInput, match=f"The configuration of {name} cannot be loaded"):
                load_backend(*pair, device="cpu", folders=False)
    assert load_backend(device="cpu", folders=False).target.name == f"{demo.BUILT_IN}/target"


def test_models_are_folders_only_for_visitors_who_may_name_paths(monkeypatch: pytest.MonkeyPatch) -> None:
    for may in (True, False):
        monkeypatch.setattr(visitors, "may_name_paths", lambda may=may: may)
        for each in (("org/name", "name"), ("", "suffix:n=9,min=3,text=/a/b+trimmed:m=9,text=/c/b")):
            assert permitted(BackendChoice(*each)) == BackendChoice(*each, folders=may)
        assert permitted(BackendChoice()) == BackendChoice()
        assert in_words(BackendChoice("/a/big", "eagle3:/a/b")) == f"{'/a/' * may}big with eagle3:{'/a/' * may}b"


def test_only_this_machine_is_shown_where_results_are_kept(tmp_path: Path) -> None:
    save_run(replace(toy_run(), title="Fox"), tmp_path / "runs" / "fox")
    toy_sweep(tmp_path / "sweeps" / "one", 2).finish()
    for broken in ("runs/broken/manifest.json", "sweeps/broken/sweep.json"):
        (tmp_path / broken).parent.mkdir()
        (tmp_path / broken).write_text("{}")
    settings = {"MARS_VIZ_RUNS": str(tmp_path / "runs"), "MARS_VIZ_SWEEPS": str(tmp_path / "sweeps")}
    command = ["-m", "mars_viz", "app", "--no-browser", "--port"]

    async def shown(address: str, *pages: str, **headers: str) -> dict[str, str]:
        found = {}
        for link in pages:
            page, _, query = link.partition("?")
            async with opened(address, page, query, headers) as tab:
                found[link] = "\n".join(str(each.proto) for each in tab._elements.values())
                assert not tab.errors
        return found

    with running(command, own_environment(settings) | {"PYTHONPATH": str(ROOT)}, folder=tmp_path) as server:
        own = elsewhere(shown(server.address, "runs", "tune"))
        asked = shown(server.address, *PAGES, "runs?run=fox", "explore?run=broken", **{"x-forwarded-for": "10.0.0.7"})
        others = elsewhere(asked)
    assert str(tmp_path / "runs") in own["runs"].replace("\\", "")  # Markdown is escaped
    assert str(tmp_path / "sweeps") in own["tune"]
    assert [page for page, text in others.items() if str(tmp_path) in text or str(ROOT) in text] == []
    assert "broken cannot be opened" in others["explore?run=broken"]


# ---- a class


def test_the_app_checks_its_settings_and_an_option_goes_before_the_environment(monkeypatch, capsys) -> None:
    started: list[tuple[ClassLimits | None, str | None]] = []
    clean = dict(os.environ)
    monkeypatch.setattr(os, "execv", lambda *_: started.append((class_limits(), os.environ.get(PATHS))))
    for variables, arguments, words in (
        ({DELETE: "anybody"}, "", f"{DELETE} is “anybody”"),
        ({PATHS: "anybody"}, "", f"{PATHS} is “anybody”"),
        ({}, "--paths somebody", "somebody"),
        ({}, "--class-tokens 100", "--classroom"),
        ({}, "--classroom --class-tokens 0", "between 1 and 100000"),
        ({}, "--classroom --class-tokens -3", "no whole number"),
        ({}, "--classroom --class-queue 101", "between 1 and 100"),
        ({}, "--classroom --class-queue x", "invalid int value"),
        ({PATHS: "anybody"}, "--paths nobody", ""),
        ({}, "--classroom", ""),
        ({}, "--classroom --class-tokens 50 --class-queue 5", ""),
    ):
        monkeypatch.setattr(os, "environ", clean | variables)
        assert cli.main(["app", *arguments.split()]) == (2 if words else 0) and words in capsys.readouterr().err
    assert started == [(None, "nobody"), (ClassLimits(256, 2), None), (ClassLimits(50, 5), None)]


def test_what_somebody_does_not_see_is_not_there_for_them(tmp_path: Path) -> None:
    whole = RunStore(tmp_path)
    mine, other = whole.keep(toy_run(), "anna"), whole.keep(toy_run(), "ben")
    seen = whole.seen_by(lambda name, maker: maker == "anna")
    assert [kept.name for kept in seen.list()] == [mine] and len(whole.list()) == 2
    for deed in (seen.find, seen.delete, seen.restore, lambda name: seen.rename(name, "Mine now")):
        with pytest.raises(BadInput, match="no run of that name here"):
            deed(other)
    whole.delete(other)
    assert seen.deleted() == () and [kept.standing for kept in whole.deleted()] == [RunStatus.DELETED]
    seen.delete(mine)
    seen.restore(mine)


def test_a_teacher_with_the_key_sees_all_a_student_their_own_and_what_is_shown() -> None:
    its = ServerClass(ClassLimits())
    its.let_in("teacher")
    its.let_in(NOBODY)
    runs = {"mine": "anna", "ben's": "ben", "nobody's": NOBODY}

    def seen(mark: str) -> set[str]:
        return {name for name, maker in runs.items() if its.sees(mark, name, maker)}

    assert seen("teacher") == set(runs) and seen("anna") == {"mine"} and seen(NOBODY) == set()
    its.show(run_with_map(), "Ben's", View("ben's"))
    assert seen("anna") == {"mine", "ben's"} and seen(NOBODY) == {"ben's"}
    its.stop()
    assert seen("anna") == {"mine"}
    assert its.fits(its.key) and its.key != ServerClass(ClassLimits()).key
    assert not any(its.fits(key) for key in ("", its.key[:-1], f"{its.key} ", its.key.swapcase(), "\udc80", "é"))


def test_each_change_has_a_version_and_what_the_run_lacks_is_refused() -> None:
    board, run = ServerClass(ClassLimits()), run_with_map()
    versions = [board.version]
    assert board.read() == {"version": versions[0], "run": None}
    board.show(run, "A run", View("it", selected=3))
    versions.append(board.version)
    place = {"run": "it", "cuts": False, "dial": 0.9, "gamma": 2, "overlay": "outcome", "selected": 3}
    assert board.read() == {"version": board.version, **place}
    board.move(View("it", 0.7, "ratio", 5, 1))
    versions.append(board.version)
    moved = {"dial": 0.7, "gamma": 1, "overlay": "ratio", "selected": 5}
    assert board.read() == {"version": board.version, **place, **moved}
    board.move(View("it", 0.7, "ratio", 5, 1))  # the same place is no news
    for wrong in (View("other", 0.7), View("it", 1.5), View("it", 0.7, gamma=9), View("it", 0.7, cuts=True), View()):
        with pytest.raises(SettingError):
            board.move(wrong)
    board.renew(run, False)
    assert board.version == versions[-1] and len(set(versions)) == 3
    board.renew(run.unmapped, False)
    assert board.version != versions[-1] and board.read()["gamma"] == 2, "its map is gone, and γ = 1 with it"


def message(**changes: object) -> bytes:
    return urlencode({"run": STORY, "dial": "0.8", "gamma": "6", "overlay": "outcome"} | changes).encode()


def test_a_message_that_is_none_is_refused() -> None:
    values = {
        "run": [""],
        "dial": ["nan", "true"],
        "gamma": ["2.5", "-1"],
        "overlay": ["pink"],
        "selected": [10**9, "false"],
        "more": [1],
    }
    wrong = [message(**{name: value}) for name, found in values.items() for value in found]
    for body in (b"", b"{", b"[]", b"\xff", b"dial=0.8", *wrong):
        with pytest.raises(SettingError, match="Load the page again"):
            door.view_in(body)
    assert door.view_in(message(cuts="1", selected="3")) == View(STORY, 0.8, selected=3, gamma=6, cuts=True)


def test_only_pages_of_the_server_move_what_is_shown() -> None:
    a, b = "http://a.example", "a.example"
    for site, origin, host, own in (
        ("same-origin", "https://a.example", "b.example", True),
        ("cross-site", a, b, False),
        ("same-site", a, b, False),
        ("", f"{a}:8501", f"{b}:8501", True),
        ("", "http://b.example", b, False),
        ("", "null", b, False),
        ("", "", b, False),
        ("", "", "", False),
    ):
        headers = {"sec-fetch-site": site, "origin": origin, "host": host}
        assert door.from_own_page({name: value for name, value in headers.items() if value}) == own


def test_a_student_follows_until_they_choose_for_themselves() -> None:
    for run, follows in (("", True), ("one", True), ("mine", False)):  # the link that the page is opened with
        board, session, memory = ServerClass(ClassLimits()), Session(view=View(run)), Following()
        board.show(run_with_map(), "One", View("one", 0.7))
        memory.settle(session, board.shown)
        assert memory.on == follows and session.view == (View("one", 0.7) if follows else View("mine"))
    board, session, memory = ServerClass(ClassLimits()), Session(), Following()

    def settled(view: View | None = None, shown: str = "") -> View:
        session.view = view or session.view
        if shown:
            board.show(run_with_map(), shown.title(), View(shown))
        memory.settle(session, board.shown)
        return session.view

    assert settled() == View() and memory.on
    assert settled(View("a sample"), shown="one") == View("one") and memory.on, "what is shown is opened"
    assert settled(View("mine")) == View("mine") and not memory.on and memory.said == explore_bar.OPENED
    assert settled(shown="two") == View("mine"), "who is on their own stays so"
    memory.switch(True)
    assert settled() == View("two") and memory.on and not memory.said
    memory.leave()
    assert not memory.on and memory.said == explore_bar.MOVED


def job(tokens: int = 40) -> Job[Decoded]:
    settings = replace(toy_run().settings, max_new_tokens=tokens)
    return decode_job("Once", settings, Ways(lambda *_: pytest.fail("it ran")))


def test_a_browser_has_so_many_jobs_over_all_of_its_tabs_and_others_are_not_admitted() -> None:
    limits, unfinished = ClassLimits(64, 2), [job(), job()]
    unfinished[0].maker = unfinished[1].maker = "anna"
    assert "at most 2 jobs that wait or run" in too_many_jobs(job(), "anna", unfinished, limits)
    assert too_many_jobs(job(), "ben", unfinished, limits) == ""
    unfinished[0].cancel()
    assert too_many_jobs(job(), "anna", unfinished, limits) == ""
    assert "65 new tokens" in too_many_jobs(job(65), "carl", [], limits)
    worker = Worker(None, admit=lambda job, unfinished: "Not now.")  # type: ignore[arg-type]
    refused = job()
    worker.submit(refused, "by this name")
    assert refused.progress.state is JobState.FAILED and refused.progress.error == "Not now."
    assert not worker.unfinished and worker.find("by this name") is None


# ---- a server, its teacher and two students


class Room(NamedTuple):
    """A server that is a classroom."""

    address: str
    link: str  # the teacher's
    names: dict[str, str]  # of a run, by its maker

    def ask(self, cookie: str, body: bytes | None = None, since: str = "", **headers: str) -> tuple[int, Any]:
        """Return the status and the JSON of the route's answer."""
        if cookie:
            headers["Cookie"] = f"{visitors.COOKIE}={cookie}"
        address = f"{self.address}/classroom/shown?since={since}"
        try:
            with urllib.request.urlopen(urllib.request.Request(address, body, headers), timeout=60) as answer:
                assert answer.headers["cache-control"] == "no-store"
                return answer.status, json.loads(answer.read() or "{}")
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.loads(error.read())


@pytest.fixture(scope="module")
def room(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Room]:
    folder = tmp_path_factory.mktemp("runs")
    store = RunStore(folder)
    makers = {"anna": visitors.mark_of(ANNA), "ben": visitors.mark_of(BEN), "nobody": ""}
    names = {maker: store.keep(run_with_map(f"The run of {maker}"), mark) for maker, mark in makers.items()}
    with pytest.MonkeyPatch.context() as patch:
        limited = {permissions.CLASSROOM: "1", permissions.TOKENS: str(MOST_TOKENS)}
        for name, value in {"MARS_VIZ_RUNS": str(folder), **limited}.items():
            patch.setenv(name, value)
        with serving(ROOT / "app.py") as server:
            until(lambda: f"?{door.PARAMETER}=" in server.said())
            link = re.search(rf"http\S+\?{door.PARAMETER}=\S+", server.said())
            assert link is not None
            found = Room(server.address, link[0], names)
            let_in(found, TEACHER)
            yield found


class _Stays(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


def let_in(room: Room, cookie: str, link: str = "") -> tuple[int, Mapping[str, str], str]:
    """Open the teacher's link, or another, in a browser with this cookie; return status, headers and text."""
    request = urllib.request.Request(link or room.link, headers={"Cookie": f"{visitors.COOKIE}={cookie}"})
    with pytest.raises(urllib.error.HTTPError) as answer:
        urllib.request.build_opener(_Stays).open(request, timeout=60)
    with answer.value as error:
        return error.code, error.headers, error.read().decode()


def in_tab(room: Room, cookie: str, page: str, query: str, look: Callable[[Tab], Coroutine[Any, Any, None]]) -> None:
    async def visit() -> None:
        headers = {"Cookie": f"{visitors.COOKIE}={cookie}"} if cookie else {}
        async with opened(room.address, page, query, headers) as tab:
            await look(tab)

    elsewhere(visit())


def says(room: Room, cookie: str, page: str, query: str = "") -> str:
    """All that a page says, with the lines of its pickers."""
    found: list[str] = []

    async def look(tab: Tab) -> None:
        options = [line for shown in tab.elements("selectbox") for line in shown.proto.options]
        found.extend((html.unescape(tab.text), *options, tab.query))

    in_tab(room, cookie, page, query, look)
    return "\n".join(found)


def test_the_key_leaves_the_address_and_a_wrong_one_is_refused(room: Room) -> None:
    status, headers, _ = let_in(room, TEACHER, f"{room.link}&run={STORY}&dial=0.8")
    assert status == 303 and headers["location"] == f"./?run={STORY}&dial=0.8"
    assert TEACHER in headers["set-cookie"] and headers["cache-control"] == "no-store"
    other = "c" * 43
    for wrong in (f"{room.address}/?teacher=", f"{room.link}x", f"{room.link}&teacher=x"):
        assert let_in(room, other, wrong)[0] == 403
    assert room.ask(other, b"{}")[0] == 403


def test_students_see_their_own_runs_and_the_teacher_all(room: Room) -> None:
    for cookie, page, makers in (
        (ANNA, "explore", ["anna"]),
        (ANNA, "compare", ["anna"]),
        (BEN, "rules", ["ben"]),
        (TEACHER, "explore", ["anna", "ben", "nobody"]),
    ):
        said = says(room, cookie, page)
        assert "A story" in said and [maker for maker in room.names if f"The run of {maker}" in said] == makers
    link = f"run={room.names['ben']}"
    for page in ("explore", "compare"):
        said = says(room, ANNA, page, link)
        assert rights.UNSEEN in said and "The run of ben" not in said, page
    assert rights.UNSEEN not in says(room, BEN, "explore", link)
    said = says(room, ANNA, "runs", link)
    assert "no run of that name here" in said and room.names["ben"] not in said


def test_the_route_refuses_students_other_sites_and_bad_messages(room: Room) -> None:
    ours = {"Origin": room.address}
    good = message()
    assert room.ask(NOBODY)[0] == room.ask("no cookie of ours")[0] == 403
    assert room.ask(ANNA, good, **ours)[0] == 403
    assert room.ask(TEACHER, good)[0] == room.ask(TEACHER, good, Origin="http://other.example")[0] == 403
    assert room.ask(TEACHER, b" " * 1025, **ours)[0] == 413
    status, answer = room.ask(TEACHER, good, **ours)
    assert status == 400 and "another run" in answer["error"]
    status, answer = room.ask(ANNA)
    assert status == 200 and answer["run"] is None
    assert room.ask(ANNA, since=answer["version"]) == (204, {})


async def press(tab: Tab, label: str) -> None:
    await tab.press(label)
    other = {"Show to the class": "Stop showing", "Stop showing": "Show to the class"}[label]
    await tab.until(lambda: tab.can_press(other), other)


def test_a_shown_run_is_the_default_of_the_class_and_may_be_seen(room: Room) -> None:
    ben = room.names["ben"]
    in_tab(room, TEACHER, "explore", f"run={ben}&dial=0.8&gamma=1", partial(press, label="Show to the class"))
    try:
        for page, words in (("explore", "dial=0.8"), ("rules", "dial=0.8"), ("compare", "0.8")):
            said = says(room, ANNA, page)
            assert f"run={ben}" in said and rights.UNSEEN not in said and words in said, page
            assert "The run of nobody" not in said
        assert "dial=0.8" in says(room, ANNA, "explore", f"run={ben}")
        assert f"run={room.names['anna']}" in says(room, ANNA, "explore", f"run={room.names['anna']}")
        for dial, status in ((0.7, 204), (7.0, 400)):
            body = message(run=ben, dial=dial, gamma=2)
            assert room.ask(TEACHER, body, Origin=room.address)[0] == status
        assert room.ask(ANNA)[1]["dial"] == 0.7
    finally:
        in_tab(room, TEACHER, "explore", f"run={ben}", partial(press, label="Stop showing"))
    assert rights.UNSEEN in says(room, ANNA, "explore", f"run={ben}")


def test_students_have_limits_on_tokens_and_no_sweeps(room: Room) -> None:
    most: list[float] = []

    async def look(tab: Tab) -> None:
        most.append(tab.find("number_input", "Max new tokens").proto.max)

    async def decode_all(tab: Tab) -> None:
        await tab.press("Decode every rule on this prompt")  # of a sample with 128 tokens
        await tab.until(lambda: "This asks for 128 new tokens" in tab.text, "the refusal")

    for cookie in (ANNA, TEACHER):
        in_tab(room, cookie, "live", "tokens=5000", look)
    assert most == [MOST_TOKENS, 100_000]
    in_tab(room, ANNA, "rules", f"run={STORY}", decode_all)
    assert rights.SWEEPS in says(room, ANNA, "tune")
    assert rights.SWEEPS not in says(room, TEACHER, "tune")


# ---- in browsers


INSPECTOR = ".side:not(.pin-side)"


def dial_of(page: Page) -> str:
    return str(page.locator(".explorer .thumb").get_attribute("aria-valuenow"))


def test_the_class_follows_the_teacher_s_hand(room: Room, browser: Browser) -> None:
    if room.ask(ANNA)[1]["run"] is not None:  # a first try that failed has left something to see
        in_tab(room, TEACHER, "explore", f"run={STORY}", partial(press, label="Stop showing"))
    contexts = [browser.new_context(viewport={"width": 1400, "height": 900}) for _ in range(3)]
    for context in contexts[1:]:
        context.add_cookies([{"name": visitors.COOKIE, "value": ANNA, "url": room.address}])
    teacher, anna, mute = (context.new_page() for context in contexts)  # the last two are one student
    teacher.goto(room.link)
    teacher.goto(f"{room.address}/explore?run={STORY}")
    for student in (anna, mute):
        student.goto(f"{room.address}/explore")
        student.wait_for_selector(".explorer .t")
    expect(anna.get_by_text("Follow the teacher")).to_have_count(0)
    teacher.get_by_role("button", name="Show to the class").click()
    for student in (anna, mute):
        expect(student.get_by_text("You see what the teacher shows")).to_be_visible()
    mute.evaluate("() => { WebSocket.prototype.send = () => {}; }")  # so no script is run for it
    track = teacher.locator(".explorer .track").bounding_box()
    middle = track["y"] + track["height"] / 2
    teacher.mouse.move(track["x"] + 0.9 * track["width"], middle)
    teacher.mouse.down()
    for share in (0.85, 0.7):
        teacher.mouse.move(track["x"] + share * track["width"], middle)
        for student in (anna, mute):
            expect(student.locator(".explorer .thumb")).to_have_attribute("aria-valuenow", dial_of(teacher))
    teacher.mouse.up()
    teacher.get_by_role("radio", name="4", exact=True).click()
    teacher.locator(".stream .t:visible").nth(9).click()
    teacher.get_by_role("radio", name="Ratio").click()
    for name in ("4", "Ratio"):
        expect(anna.get_by_role("radio", name=name, exact=True)).to_have_attribute("aria-checked", "true")
    teacher.mouse.move(2, 2)  # so that no token under the pointer is inspected
    until(lambda: anna.locator(INSPECTOR).inner_text() == teacher.locator(INSPECTOR).inner_text(), pause=0.1)
    anna.locator(".explorer .thumb").focus()
    anna.keyboard.press("ArrowLeft")
    expect(anna.get_by_text(explore_bar.MOVED)).to_be_visible()
    assert not anna.get_by_role("switch", name="Follow the teacher").is_checked()
    before = dial_of(anna)
    teacher.locator(".explorer .thumb").focus()
    teacher.keyboard.press("Home")
    expect(mute.locator(".explorer .thumb")).to_have_attribute("aria-valuenow", dial_of(teacher))
    assert dial_of(anna) == before != dial_of(teacher)
    anna.get_by_text("Follow the teacher").click()
    expect(anna.locator(".explorer .thumb")).to_have_attribute("aria-valuenow", dial_of(teacher))
    teacher.get_by_role("button", name="Stop showing").click()
    expect(anna.get_by_text("Follow the teacher")).to_have_count(0)
    for context in contexts:
        context.close()


def test_the_address_to_open(monkeypatch):
    usual = {"server.address": None, "server.port": 8501, "server.baseUrlPath": "", "server.sslCertFile": None}
    for options, address in (
        ({}, "http://localhost:8501/"),
        ({"server.address": "0.0.0.0", "server.port": 80}, "http://localhost:80/"),
        ({"server.address": "::1"}, "http://[::1]:8501/"),
        ({"server.address": "10.0.0.1", "server.baseUrlPath": "/mars/"}, "http://10.0.0.1:8501/mars"),
        ({"server.sslCertFile": "cert.pem"}, "https://localhost:8501/"),
    ):
        monkeypatch.setattr(startup.st, "get_option", (usual | options).__getitem__)
        assert startup.address() == address
