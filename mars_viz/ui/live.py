"""The Live page: decodes, races, measurements of the models, and the state of a tab."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import pandas as pd
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from mars_viz import default_folders, samples
from mars_viz.chat import History
from mars_viz.components import race as lanes
from mars_viz.costs import Costs, disturbance, per_token, round_cost
from mars_viz.documents import Facts
from mars_viz.errors import BadInput, RunFileError, SettingError, contained
from mars_viz.escapes import markdown
from mars_viz.race import ABOUT, Race, RaceEntry, RaceLane, RaceStore, Racing, check_race, list_races, load_race
from mars_viz.run import Run, Settings
from mars_viz.runstore import RunStatus, new_name, read
from mars_viz.shapes import CHAIN, draft_words
from mars_viz.sweep.document import of_one_position
from mars_viz.ui import decode_form, documents, faults, links, models_form, navigation, share, tab_jobs, theme, visitors
from mars_viz.ui.classroom import rights
from mars_viz.ui.decode_form import LONGEST_SYSTEM, DecodeRequest
from mars_viz.ui.items import Item, ItemsState, draw_bin, draw_deleted, popover
from mars_viz.ui.jobs.models import LEFT, Job, JobState, P
from mars_viz.ui.jobs.tasks import Decoded, Raced, decode_job, finished_job, race_job
from mars_viz.ui.library import told_apart
from mars_viz.ui.links import to_parameters
from mars_viz.ui.session import Session, bound, current_session
from mars_viz.ui.theme import Tile
from mars_viz.words import THIN_SPACE, counted, number, short_device


def race_store() -> RaceStore:
    return tab_jobs.opened(RaceStore, default_folders.races()).seen_by(rights.sees())


@st.cache_resource(max_entries=8, show_spinner=False)
def _loaded(path: Path, changed: int) -> Race:
    """`changed` is part of the cache key, so that a changed folder is read again."""
    return load_race(path)


SAVED = "saved"  # view of saved runs in old links; these now have their own page


class Show(Enum):
    DECODE = "decode"
    RACE = "race"


@dataclass(frozen=True, slots=True)
class LiveView:
    show: Show = links.one_of("view", Show.DECODE)
    run: str = links.text("run")  # name of the shown decode; empty for none
    race: str = links.text("race")  # name of the shown race; empty for the recorded example
    settings: Settings = links.part(
        lambda parameters, complaints: Settings(**links.values_in(Settings, parameters, complaints)),
        lambda settings: links.written(Settings, settings.keywords),
        default_factory=Settings,
    )  # settings of the next decode
    chat: bool = links.parameter("chat", "0".__ne__, lambda chat: str(int(chat)), True)
    """False to skip the target's chat template."""
    system: str = links.parameter(
        "system",
        lambda text: text if len(text) <= LONGEST_SYSTEM else None,
        str,
        "",
        f"has more than {LONGEST_SYSTEM} characters",
    )


VIEW = "live-view"  # key of the switch between them


@dataclass(slots=True)
class LivePageState(ItemsState):
    view: LiveView = field(default_factory=LiveView)
    """Values of the forms, initially from the link. The forms are filled from it on each visit, because Streamlit drops
    their values while another page is open."""
    job: Job[Decoded] | None = None
    run: str = ""  # name of that decode, which identifies it
    race: Job[Raced] | None = None
    racing: str = ""  # Name of the unfinished race. `shown` stays, because a race may fail.
    shown: str = ""  # folder name of the chosen or last race; empty for the recorded example
    opening: str = ""  # the last prompt written, initially that of the link's run, if any

    names_run: ClassVar[bool] = False

    @property
    def waits_for(self) -> Job[Any] | None:
        jobs = (self.job, self.race)
        return next((job for job in jobs if job is not None and not job.progress.state.finished), None)

    def arrive(self, session: Session, parameters: Mapping[str, str]) -> bool:
        """Open the link and return True if this page is the first of the tab. If the link's job is still running, the
        tab joins it."""
        if not ItemsState.arrive(self, session, parameters):  # super() does not work in a class with slots
            return False
        self.notices[:] = [complaint for complaint in self.notices if complaint not in session.models_notices]
        self.shown, name = self.view.race, self.view.run
        if (racing := _joined(self.shown, Raced)) is not None:
            self.race, self.racing, self.shown = racing, self.shown, ""
        try:
            job = (_joined(name, Decoded) or _saved_decode(name)) if name else None
        except BadInput as error:
            self.notices.append(str(error))
        else:
            if job is not None:
                self.job, self.run, self.opening = job, name, job.progress.prompt
        return True

    def address_of(self, show: Show) -> LiveView:
        """Return the link of a view: its content, and any unfinished job, because a reloaded tab finds its job by the
        link. The view is named only if there is another one."""
        decodes = self.job is not None and not self.job.progress.state.finished
        lost = self.job is not None and not decodes and not self.job.progress.saved
        run = self.run if decodes or (show is Show.DECODE and not lost) else ""
        shown_race = self.shown if show is Show.RACE else ""
        race = self.racing if self.race is not None else shown_race
        return replace(self.view, show=Show.DECODE if self.job is None else show, run=run, race=race)

    def remember(self, request: DecodeRequest) -> None:
        """Store the forms' values. Settings that cannot be read stay as they were."""
        self.opening = request.prompt
        with suppress(BadInput):
            self.change(settings=request.settings())
        self.change(chat=request.chat is None, system=request.history.system)

    def forget(self, name: str) -> None:
        """Drop a deleted run or race from the link."""
        tab_jobs.shared_worker().forget(name)
        if name == self.run:
            self.run = ""
        if name == self.shown:
            self.shown = ""

    def decode(self, request: DecodeRequest) -> None:
        if (chosen := self._checked(request)) is not None:
            self.run = new_name()
            ways = tab_jobs.saved_ways(request, maps=False, name=self.run)
            self.job = decode_job(request.prompt, chosen, ways, request.choice)
            tab_jobs.shared_worker().submit(self.job, self.run)

    def run_race(self, request: DecodeRequest) -> None:
        if (chosen := self._checked(request)) is None:
            return
        try:
            check_race(chosen)
        except BadInput as error:
            self.notices.append(str(error))
            return
        make = partial(Racing, prompt=request.prompt, settings=chosen, chat=request.chat, history=request.history)
        self.racing = new_name("race")
        destination = (default_folders.races(), self.racing, visitors.mark())
        self.race = race_job(make, request.prompt, chosen, request.choice, *destination)
        tab_jobs.shared_worker().submit(self.race, self.racing)

    def settle(self) -> None:
        if self.race is not None and self.race.progress.state.finished:
            over, self.race = self.race.progress, None
            self.shown = over.saved or self.shown
            self.notices.extend(filter(None, [over.error, over.unsaved]))
            if over.state is JobState.CANCELLED:
                why = LEFT if over.abandoned else "You stopped the race"
                self.notices.append(f"{why}; an unfinished race is not saved.")

    def _checked(self, request: DecodeRequest) -> Settings | None:
        return decode_form.checked(self.notices, request, under_way=self.waits_for is not None)


def _joined(name: str, kind: type[P]) -> Job[P] | None:
    """Join this tab to the job of that name and kind, if the browser may, and return it."""
    job = tab_jobs.shared_worker().find(name)
    if job is None or not rights.owns(job.maker) or not isinstance(job.progress, kind):
        return None
    tab_jobs.shared_worker().join(job)
    return job


def _saved_decode(name: str) -> Job[Decoded]:
    """Return a saved run as a finished decode. Raises BadInput if it cannot be opened."""
    saved = tab_jobs.run_store().find(name)
    if saved.standing is RunStatus.GROWING:
        raise SettingError("The link's run is being decoded by another server; load this page again when it is done.")
    assert saved.path is not None
    return finished_job(read(saved.path), name)


def stream(page_state: LivePageState, busy: bool) -> None:
    """Draw the decode with its numbers, text and cancel button. `busy` is True if a job was running when the page was
    drawn."""
    job = page_state.job
    assert job is not None  # otherwise the races are shown
    progress, state = job.progress, job.progress.state
    done = state is JobState.DONE  # the text may end before the limit
    share = 1.0 if done else min(1.0, progress.tokens / progress.settings.max_new_tokens)
    if not state.finished:
        tab_jobs.progress(job, lambda: (share, decoding(progress)), "Cancel", "Saves the rounds so far")
    else:
        words, button = st.columns([6, 1], vertical_alignment="center")
        words.progress(share, markdown(decoding(progress)))
        if progress.run is not None and button.button("Explore", width="stretch", help="Open this run in Explore"):
            explore(progress.saved and page_state.run, progress.run)
    theme.note(progress.error, progress.unsaved)
    run = progress.so_far
    if run is not None or not state.finished:
        theme.numbers(tiles(run))
        lanes.show(lanes.live_payload(run, progress.prompt, page_state.run), key="live-stream")
    run = progress.run
    if run is not None and (request := tab_jobs.follow_up(current_session(), run)) is not None:
        page_state.decode(request)
        st.rerun(scope="app")
    released(page_state, busy)


def released(page_state: LivePageState, busy: bool) -> None:
    """Rerun the page after its last job has ended, which also stops polling."""
    if busy and page_state.waits_for is None:
        st.rerun(scope="app")


def explore(name: str, run: Run) -> None:
    """Open Explore with the saved run of that name, or with `run` if the name is empty."""
    session = current_session()
    session.land(name or session.keep(run, "live"))
    st.switch_page("pages/explore.py")


def race(page_state: LivePageState) -> None:
    if page_state.race is not None:
        faults.fragment(_racing, run_every=tab_jobs.pace())(page_state.race, page_state.racing)
        return
    store, folder = race_store(), default_folders.races()
    entries = {entry.path.name: entry for entry in (*reversed(store.list()), *list_races(samples.RACES))}
    sample = next((name for name, entry in entries.items() if entry.path.parent != folder), next(iter(entries), ""))
    name = page_state.shown if page_state.shown in entries else sample
    if page_state.shown and name != page_state.shown:
        theme.note("There is no race of that name here; " + ("another is shown." if name else "run one first."))
        page_state.shown = ""
    if name and not page_state.shown:
        st.caption("**A recorded example**: one prompt, decoded three ways. *Race now* does the same with yours.")
    above = st.container()
    left, right = st.columns([5.3, 4.7], vertical_alignment="center")
    # in one row, also on a phone
    actions = right.container(horizontal=True, horizontal_alignment="right", gap="xsmall")
    deleted = [_race_item(entry) for entry in reversed(store.deleted())]
    here = [each for each in deleted if each.key in page_state.deleted]
    draw_deleted(page_state, here)
    draw_bin(page_state, [each for each in deleted if each not in here])
    if not name:
        theme.note("No race was run here yet. Choose a relaxed rule in Settings and press Race now.")
        return
    if entries[name].path.parent == folder:
        popover(actions, page_state, _race_item(entries[name]))
    lines = {}
    for each, entry in entries.items():
        about = entry.manifest
        made = " (cannot be read)" if about is None else f" · {about.target} on {short_device(about.device)}"
        lines[each] = f"{entry.title}{made}"
    show, words, hidden = partial(setattr, page_state, "shown"), told_apart(lines).__getitem__, "collapsed"
    bound(left.selectbox, "Race", "race", name, show, options=list(lines), format_func=words, label_visibility=hidden)
    with above:
        _raced(entries[name], actions, play=not page_state.shown)


@faults.drawn
def _raced(entry: RaceEntry, deeds: DeltaGenerator, *, play: bool) -> None:
    if entry.manifest is None:
        raise RunFileError(entry.error)
    with contained(f"The race {entry.path.name}"):
        opened = _loaded(entry.path, (entry.path / ABOUT).stat().st_mtime_ns)
    if deeds.button("Explore", help="Open the relaxed lane in Explore"):
        explore("", opened.relaxed)
    lanes.show(lanes.race_payload(opened), key="race-replay", play=play)
    board = share.Table("What each lane took", f"{entry.path.name}-race", lambda: pd.DataFrame(opened.rows))
    share.tables([board], [run.settings.rule for run in (opened.strict, opened.relaxed)], "race-board")


def _race_item(entry: RaceEntry) -> Item:
    title = "" if entry.manifest is None else " ".join(entry.manifest.title.split())
    return Item(race_store(), entry.path.name, entry.title, title, entry.manifest is not None)


def _racing(job: Job[Raced], name: str) -> None:
    tab_jobs.progress(job, lambda: race_words(job.progress), "Cancel", key="cancel-race")
    now = job.progress
    lanes.show(lanes.racing_payload(now.texts, now.prompt, now.settings, name), key="race-lanes")


def device(request: DecodeRequest) -> None:
    status = tab_jobs.shared_worker().models.status
    with st.expander("Measure these models", expanded=status.device is not None):
        if status.costs is not None:
            documents.draw([cost_facts(status.costs), of_one_position(status.costs)])
            theme.note(disturbance(status.costs))
        tab_jobs.measure_costs("What does a pass cost on this device?", request.settings, request.choice)


def decoding(progress: Decoded) -> str:
    if progress.state.finished:
        done = f"Done: {counted(progress.tokens, 'token')} in {counted(progress.rounds, 'round')}."
        return progress.ending or done
    return f"Decoding: {number(progress.tokens)} of at most {counted(progress.settings.max_new_tokens, 'token')}"


def race_words(progress: Raced) -> tuple[float, str]:
    """Return the finished share of a race, and a sentence about it."""
    step = progress.step
    if step is None:
        return 0.0, "The race begins …"
    how = f"turn {step.turn} of {step.turns} by the clock" if step.turn else "untimed, what is decided is recorded"
    share = (step.turn * len(RaceLane) + list(RaceLane).index(step.lane)) / ((step.turns + 1) * len(RaceLane))
    lane = "the target alone" if step.lane is RaceLane.ALONE else step.lane.value
    return share, f"Race, {how}: {lane}, {counted(step.tokens, 'token')}"


def tiles(run: Run | None) -> list[Tile]:
    rounds = () if run is None else run.rounds
    tokens = 0 if run is None else len(run.token_ids)
    drafted, kept = sum(len(each.speculation) for each in rounds), sum(each.kept for each in rounds)
    seconds = 0.0 if run is None else run.provenance.seconds
    note = "" if run is None or run.settings.control is None else ", all γ tokens drafted in every round"
    tau, pace = (number(tokens / count) if count else "–" for count in (len(rounds), seconds))
    timed = f"Over the wall clock of the decode, without the prompt's pass and with recording{note}"
    accepted = f"{number(100 * kept / drafted)}{THIN_SPACE}%" if drafted else "–"
    return [
        ("Tokens", number(tokens), "Emitted so far; exact"),
        ("τ, tokens per round", tau, "Tokens per target pass; exact"),
        ("Tokens/s, measured", pace, timed),
        ("Accepted", accepted, "Drafted tokens that were kept, of all drafted; exact"),
        ("Rolled back", number(drafted - kept), "Drafted tokens that were not kept; exact"),
    ]


def cost_facts(costs: Costs) -> Facts:
    """Return the measured times of passes and of a round with 95 % intervals, and the modelled break-even τ."""
    gamma = costs.gamma
    if costs.tree != CHAIN:
        parts = {f"Target, {counted(gamma, 'node')}": costs.passes[gamma], "Drafter, a tree": costs.drafting[-1]}
    else:
        drafted = counted(gamma if costs.drafting else 1, "token")  # all at once, or each
        parts = {f"Target, {gamma + 1} tokens": costs.passes[gamma], f"Drafter, {drafted}": costs.drafter_step}
    a_round = {f"A round, {draft_words(gamma, costs.tree)}": round_cost(costs, gamma)}
    facts = {
        f"{name}, measured": f"{number(1000 * cost.seconds)}{THIN_SPACE}ms ({number(1000 * cost.low)} to "
        f"{number(1000 * cost.high)})"
        for name, cost in ({"Target, 1 token": costs.passes[0]} | parts | a_round).items()
    }
    factor = per_token(costs, gamma)
    tau = f"{number(1 / factor.estimate)} ({number(1 / factor.high)} to {number(1 / factor.low)}) tokens per round"
    return Facts(facts | {"Break-even τ, modelled": f"{tau}; with more, speculation is faster than the target alone"})


@faults.drawn
def page() -> None:
    page_state = LivePageState.of_tab()
    if st.query_params.get("view") == SAVED and current_session().arrives():
        st.switch_page("pages/runs.py")
    if page_state.arrive(current_session(), st.query_params.to_dict()):
        st.session_state[VIEW] = page_state.view.show
    page_state.settle()
    theme.title("Live", "Decode now, and see each round as it is verified")
    busy = page_state.waits_for is not None
    request = ask(page_state)
    theme.note(*page_state.notices)
    show = Show.RACE  # without a decode there is no switch
    if page_state.job is not None:
        st.session_state.setdefault(VIEW, Show.DECODE)
        labels = {Show.DECODE: "Live text", Show.RACE: "Races"}
        how: dict[str, Any] = {"key": VIEW, "required": True, "label_visibility": "collapsed"}
        chosen = st.segmented_control("Show", list(Show), format_func=lambda each: markdown(labels[each]), **how)
        show = chosen or Show.DECODE
    if show is Show.DECODE:
        faults.fragment(stream, run_every=tab_jobs.pace() if busy else None)(page_state, busy)
    else:
        if busy:
            faults.fragment(released, run_every=tab_jobs.pace())(page_state, busy)
        race(page_state)
    device(request)
    navigation.write_link(to_parameters(page_state.address_of(show)))


def ask(page_state: LivePageState) -> DecodeRequest:
    """Draw the prompt, its settings and the two buttons.

    They stay enabled while a job runs, because on a busy server the rerun that would enable them may be lost.
    """
    models = current_session().models
    left, middle, right = st.columns([6.6, 1.8, 2.0], vertical_alignment="center")
    with left:
        template, pair = tab_jobs.has_template(models), models_form.not_built_in(models)
        text = decode_form.prompt_box(page_state.opening, pair=pair, chats=template)
        chat, system = decode_form.chat_fields(template, page_state.view.chat, page_state.view.system)
    with middle, st.popover("Settings", width="stretch"):
        shown = None if page_state.job is None else page_state.job.progress.run
        settings = decode_form.settings_fields(page_state.view.settings, shown)
    request = DecodeRequest(text, settings, models, chat, History(system))
    page_state.remember(request)
    with right:
        if st.button("Decode now", type="primary", width="stretch", help="Shows each round as soon as it is verified"):
            page_state.decode(request)
            st.session_state[VIEW] = Show.DECODE
            st.rerun()
        if st.button("Race now", width="stretch", help="Times the target alone, strict and relaxed on the same prompt"):
            page_state.run_race(request)
            st.session_state[VIEW] = Show.RACE
            st.rerun()
    return request
