"""State of the Live page in one tab: its link, its decode, race, measurement and check, notices, and the races that it
can replay."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any

import streamlit as st

from mars_viz import default_folders, options, samples
from mars_viz.backend_choice import BackendChoice
from mars_viz.chat import NO_HISTORY, History
from mars_viz.errors import BadInput, RunFileError, SettingError, contained
from mars_viz.race import Race, RaceEntry, list_races, load_race
from mars_viz.race.files import ABOUT, RaceStore
from mars_viz.race.records import BY_THE_CLOCK
from mars_viz.rules import Rule, rule_named
from mars_viz.run import Run, Settings
from mars_viz.runstore import RunStatus, new_name, read
from mars_viz.shapes import CHAIN, drafted_tokens, shape_named, with_nodes
from mars_viz.ui import decode_form, links, tab_jobs, visitors
from mars_viz.ui.classroom import rights
from mars_viz.ui.decode_form import LONGEST_STOPS, LONGEST_SYSTEM, stop_lines
from mars_viz.ui.items import ItemsState
from mars_viz.ui.jobs import tasks
from mars_viz.ui.jobs.decode_job import DecodeJob, RaceJob
from mars_viz.ui.jobs.job import BackgroundTask, CostsJob, Job, JobState
from mars_viz.ui.jobs.worker import LEFT
from mars_viz.ui.library import told_apart
from mars_viz.ui.session import Session, remembered
from mars_viz.words import exactly, number_in, short_device


@dataclass(frozen=True, slots=True)
class Replay:
    """Races that can be replayed."""

    entries: dict[str, RaceEntry]  # by name: the server's races, newest first, then the samples

    def label(self, name: str) -> str:
        """Return a unique line for a list."""
        lines = {}
        for other, entry in self.entries.items():
            about = entry.manifest
            made = " (cannot be read)" if about is None else f" · {about.target} on {short_device(about.device)}"
            lines[other] = f"{entry.title}{made}"
        return told_apart(lines)[name]

    def landed(self, name: str) -> str:
        """Return `name` if it exists, otherwise a sample, otherwise any race; empty if there is none."""
        recorded = (other for other in self.entries if not self.own(other))
        return name if name in self.entries else next(recorded, next(iter(self.entries), ""))

    def opened(self, name: str) -> Race:
        """Return the race. Raises BadInput if it cannot be read."""
        entry = self.entries[name]
        if entry.manifest is None:
            raise RunFileError(entry.error)
        with contained(f"The race {name}"):
            return _loaded(entry.path, (entry.path / ABOUT).stat().st_mtime_ns)

    def own(self, name: str) -> bool:
        """Return True if the race is in this server's folder and not a sample."""
        return self.entries[name].path.parent == default_folders.races()


def course() -> Replay:
    """Return the races that can be replayed now."""
    server_races = reversed(race_store().list())
    return Replay({entry.path.name: entry for entry in (*server_races, *list_races(samples.RACES))})


def race_store() -> RaceStore:
    """Return the server's store of races, restricted to those that this browser may see."""
    return _race_store(default_folders.races()).seen_by(rights.sees())


@st.cache_resource(show_spinner=False)
def _race_store(folder: Path) -> RaceStore:
    return RaceStore(folder, [entry.path.name for entry in list_races(samples.RACES)])


@st.cache_resource(max_entries=8, show_spinner=False)
def _loaded(path: Path, changed: int) -> Race:
    """`changed` is part of the cache key, so that a changed folder is read again."""
    return load_race(path)


_DEFAULT = Settings()


SAVED = "saved"  # view of saved runs in old links; these now have their own page


class Show(Enum):
    """Views of the page."""

    DECODE = "decode"
    RACE = "race"


def _settings_in_link(parameters: Mapping[str, str], complaints: list[str]) -> Settings:
    values: dict[str, Any] = dict(options.from_link(Settings, parameters, complaints))
    readers: dict[str, Callable[[str], dict[str, Any]]] = {  # each may depend on those before it
        "rule": lambda text: {"rule": rule_named(text).name},
        "dial": lambda text: {"dial": _dial(rule_named(values.get("rule", _DEFAULT.rule)), text)},
        "tree": lambda text: {} if text == CHAIN else _draft(text, values.get("gamma")),
        "controller": lambda text: {"controller": Settings(tree=values.get("tree", CHAIN), controller=text).controller},
        "stop": lambda text: {"stop": _stop(text)},
    }
    for name, reader in readers.items():
        values.update(options.value_in(parameters, name, reader, complaints) or {})
    return replace(_DEFAULT, **values)


def _dial(rule: Rule, text: str) -> float | None:
    value = number_in(text)
    if value is None:
        raise SettingError("It must be a number.")
    return rule.checked_dial(value)


def _draft(tree: str, gamma: int | None) -> dict[str, Any]:
    """Return the link's tree. Its number of nodes defaults to γ or the usual number."""
    settings = Settings(tree=with_nodes(tree, shape_named(tree).nodes or drafted_tokens(gamma, tree)))
    return {"tree": settings.tree, "gamma": settings.gamma}


def _stop(text: str) -> tuple[str, ...]:
    """Return the link's stop strings, one per line as in the form."""
    if len(text) > LONGEST_STOPS or "\r" in text:  # a form would turn it into a line break
        raise SettingError(f"They have more than {LONGEST_STOPS} characters, or a carriage return.")
    return Settings(stop=stop_lines(text)).stop


def _written(settings: Settings) -> dict[str, str]:
    tree, dial = settings.drafts_trees, rule_named(settings.rule).dial
    return {
        "rule": "" if settings.rule == _DEFAULT.rule else settings.rule,
        "dial": "" if dial is None or settings.dial in (None, dial.default) else exactly(settings.dial or 0.0),
        **{name: text for name, text in options.to_link(settings).items() if not (tree and name == "gamma")},
        "tree": with_nodes(settings.tree, settings.gamma) if tree else "",
        "controller": "" if settings.control is None else settings.controller,
        "stop": "\n".join(settings.stop),
    }


@dataclass(frozen=True, slots=True)
class LiveView:
    """State in a link."""

    show: Show = links.one_of("view", Show.DECODE)
    run: str = links.text("run")  # name of the shown decode; empty for none
    race: str = links.text("race")  # name of the shown race; empty for the recorded example
    settings: Settings = links.part(
        _settings_in_link, _written, default_factory=Settings
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


TEXT, RACES = "Live text", "Races"  # labels of the page's views
NEXT = "live-next"  # key under which the session stores the next view


@dataclass(frozen=True, slots=True)
class Wanted:
    """Options of a decode or a race that are not in its settings."""

    choice: BackendChoice
    chat: bool | None  # False to skip the target's chat template; None to use it if there is one
    history: History = NO_HISTORY  # earlier turns of the conversation


@dataclass(slots=True)
class LivePageState(ItemsState):
    """State of one tab's Live page."""

    job: DecodeJob | None = None
    run: str = ""  # name of that decode, which identifies it, or of a saved run from the link
    recalled: Run | None = None  # the saved run from the link, if no job of this tab made it
    race: RaceJob | None = None
    racing: str = ""  # Name of the unfinished race. `shown` stays, because a race may fail.
    measuring: CostsJob | None = None
    checking: BackgroundTask | None = None
    measured: bool = False  # True after the first measurement
    shown: str = ""  # folder name of the chosen or last race; empty for the recorded example
    link: LiveView = field(default_factory=LiveView)
    """Values of the forms, initially from the link. The forms are filled from it on each visit, because Streamlit drops
    their values while another page is open."""
    opening: str = decode_form.EXAMPLE  # the last prompt written, initially that of the link's run, if any
    uploaded: str = ""  # uploader's id of the last upload that was read, so that a rerun does not read it again

    @property
    def waits_for(self) -> Job[Any] | None:
        """The unfinished job of this tab, if any."""
        jobs = (self.job, self.race, self.measuring, self.checking)
        return next((job for job in jobs if job is not None and not job.progress.state.finished), None)

    def arrive(self, session: Session, parameters: Mapping[str, str]) -> bool:
        """Open the link if this page is the first of the tab; see `Session.arrive`.

        If the link's job is still running, the tab joins it. Returns True if there was a link to read.
        """
        if not session.arrives() or not parameters:
            return False
        opened = links.from_parameters(LiveView, parameters)
        self.link = opened.view
        self.notices[:] = [complaint for complaint in opened.complaints if complaint not in session.models_notices]
        self.run, self.shown = opened.view.run, opened.view.race
        if self.run:
            self._pick_up()
        if (shown_decode := self.job or self.recalled) is not None:
            self.opening = shown_decode.prompt
        racing = tab_jobs.shared_worker().find(self.shown)
        if isinstance(racing, RaceJob) and rights.owns(racing.maker) and not racing.progress.state.finished:
            self.race, self.racing, self.shown = racing, self.shown, ""
            tab_jobs.shared_worker().join(racing)
        return True

    def _pick_up(self) -> None:
        job = tab_jobs.shared_worker().find(self.run)
        if isinstance(job, DecodeJob) and rights.owns(job.maker):
            self.job = job
            tab_jobs.shared_worker().join(job)
            return
        try:
            saved = tab_jobs.run_store().find(self.run)
            if saved.standing is RunStatus.GROWING:
                why = "The link's run is being decoded by another server; load this page again when it is done."
                raise SettingError(why)
            assert saved.path is not None
            self.recalled = read(saved.path)
        except BadInput as error:
            self.notices.append(str(error))
            self.run = ""

    @property
    def decoded(self) -> Run | None:
        """The shown run: the last decode after its end, or a saved run."""
        return self.recalled if self.job is None else self.job.progress.run

    def address_of(self, show: Show) -> LiveView:
        """Return the link of a view: its content, and any unfinished job, because a reloaded tab finds its job by the
        link. The view is named only if there is another one."""
        decodes = self.job is not None and not self.job.progress.state.finished
        lost = self.job is not None and not decodes and not self.job.progress.saved
        run = self.run if decodes or (show is Show.DECODE and not lost) else ""
        shown_race = self.shown if show is Show.RACE else ""
        race = self.racing if self.race is not None else shown_race
        is_empty = self.job is None and self.recalled is None
        return replace(self.link, show=Show.DECODE if is_empty else show, run=run, race=race)

    def remember(self, prompt: str, settings: Callable[[], Settings], wanted: Wanted) -> None:
        """Store the forms' values. Settings that cannot be read stay as they were."""
        self.opening = prompt
        with suppress(BadInput):
            self.link = replace(self.link, settings=settings())
        self.link = replace(self.link, chat=wanted.chat is None, system=wanted.history.system)

    def forget(self, name: str) -> None:
        """Drop a deleted run or race from the link."""
        tab_jobs.shared_worker().forget(name)
        if name == self.run:
            self.run = ""
        if name == self.shown:
            self.shown = ""

    def decode(self, prompt: str, settings: Callable[[], Settings], wanted: Wanted) -> None:
        """Submit a decode. Invalid values give a notice."""
        if (chosen := self._checked(prompt, settings, wanted)) is not None:
            self.run, self.recalled = new_name(), None
            ways = tab_jobs.streamed(wanted.chat, wanted.history, self.run)
            self.job = DecodeJob(prompt, chosen, ways, wanted.choice)
            tab_jobs.shared_worker().submit(self.job, self.run)

    def run_race(self, prompt: str, settings: Callable[[], Settings], wanted: Wanted) -> None:
        """Submit a race. Invalid values give a notice."""
        chosen = self._checked(prompt, settings, wanted)
        if chosen is None:
            return
        if rule_named(chosen.rule).dial is None:
            self.notices.append("That rule has no dial, so it has no relaxed lane; choose another in Settings.")
        elif chosen.control is not None:
            self.notices.append(BY_THE_CLOCK)
        else:
            make = partial(tasks.race, prompt, chosen, wanted.chat, wanted.history)
            self.racing = new_name("race")
            destination = (default_folders.races(), self.racing, visitors.mark())
            self.race = RaceJob(make, prompt, chosen, wanted.choice, *destination)
            tab_jobs.shared_worker().submit(self.race, self.racing)

    def measure(self, settings: Callable[[], Settings], wanted: Wanted) -> None:
        """Submit a measurement of the passes' costs."""
        if (chosen := self._checked("any", settings, wanted)) is not None:
            self.measured = True
            self.measuring = CostsJob(partial(tasks.measure, chosen), wanted.choice)
            tab_jobs.shared_worker().submit(self.measuring)

    def check_head(self, settings: Callable[[], Settings], wanted: Wanted) -> None:
        """Submit a check of the chosen head."""
        if self._checked("any", settings, wanted) is not None:
            self.checking = BackgroundTask(tasks.check_head, wanted.choice)
            tab_jobs.shared_worker().submit(self.checking)

    def bring_race(self, upload: str, data: bytes, name: str) -> bool:
        """Save and show the race of an uploaded zip, or give a notice. Returns False if this `upload` was already read.

        A new upload of the same zip is read again, because the first may have failed or been deleted since.
        """
        if upload == self.uploaded:
            return False
        self.uploaded = upload
        self.notices.clear()
        try:
            self.shown = race_store().bring(data, name)
        except BadInput as error:
            self.notices.append(str(error))
        else:
            race_store().makers.note(self.shown, visitors.mark())
        return True

    def settle(self) -> None:
        """Handle ended jobs."""
        if self.race is not None and self.race.progress.state.finished:
            over, self.race = self.race.progress, None
            self.shown = over.saved or self.shown
            self.notices.extend(filter(None, [over.error, over.unsaved]))
            if over.state is JobState.CANCELLED:
                why = LEFT if over.abandoned else "You stopped the race"
                self.notices.append(f"{why}; an unfinished race is not saved.")
        if self.measuring is not None and self.measuring.progress.state.finished:
            error, self.measuring = self.measuring.progress.error, None
            self.notices.extend(filter(None, [error]))

    def _checked(self, prompt: str, settings: Callable[[], Settings], wanted: Wanted) -> Settings | None:
        under_way = self.waits_for is not None
        return decode_form.checked(self.notices, prompt, settings, wanted.choice, under_way=under_way)


def current_desk() -> LivePageState:
    """Return this tab's state."""
    return remembered("mars_viz_live", LivePageState)
