"""What the Live page remembers of one browser tab: its decode, its race, what it measures and checks, and
sentences to show."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from mars_viz import default_folders
from mars_viz.backend_choice import BackendChoice
from mars_viz.chat import NO_HISTORY, History
from mars_viz.errors import BadInput, SettingError
from mars_viz.race.records import BY_THE_CLOCK
from mars_viz.rules import rule_named
from mars_viz.run import Run, Settings
from mars_viz.runstore import RunStatus, new_name, read
from mars_viz.speculators.names import check_controller, check_trees
from mars_viz.ui import decode_form, links, tab_jobs, visitors
from mars_viz.ui.classroom import rights
from mars_viz.ui.jobs import tasks
from mars_viz.ui.jobs.background_task import BackgroundTask, CostsJob
from mars_viz.ui.jobs.decode_job import DecodeJob
from mars_viz.ui.jobs.job import Job, JobState
from mars_viz.ui.jobs.race_job import RaceJob
from mars_viz.ui.jobs.worker import LEFT
from mars_viz.ui.live.live_link import LiveView, Show
from mars_viz.ui.live.races import race_store
from mars_viz.ui.session import Session, remembered

TEXT, RACES = "Live text", "Races"
"""What the page can show; the buttons that make it are named for what they do."""
NEXT = "live-next"
"""Under which name the session keeps what the page is to show next."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a decode or a race is to be made with."""

    choice: BackendChoice
    """The models."""
    chat: bool | None
    """False if the prompt does not go through the target's chat template; None if it does if there is one."""
    history: History = NO_HISTORY
    """What comes before the prompt in its conversation."""


@dataclass(slots=True)
class LivePageState:
    """The memory of one tab's Live page."""

    job: DecodeJob | None = None
    """The last decode, under way or over."""
    run: str = ""
    """The name under which that decode is kept, which tells it from the one before; or that of a kept run that a link
    asks for."""
    recalled: Run | None = None
    """That kept run, where no job made it in this tab."""
    race: RaceJob | None = None
    """The race that this tab waits for."""
    racing: str = ""
    """The name under which that race will be kept; what is `shown` stays, for a race may come to nothing."""
    measuring: CostsJob | None = None
    """The measurement that this tab waits for."""
    checking: BackgroundTask | None = None
    """The last check of a head that this tab asked for, under way or over."""
    measured: bool = False
    """True once this tab has asked for one."""
    shown: str = ""
    """The race that was chosen or run last, by its folder's name; empty for the recorded example."""
    link: LiveView = field(default_factory=LiveView)
    """What the forms say, at first what the link asked for that opened the tab: they begin there on every visit, since
    Streamlit forgets them while another page is shown."""
    opening: str = decode_form.EXAMPLE
    """The prompt that the form begins with: what was written last, at first that of the link's run, where there is
    one."""
    uploaded: str = ""
    """The uploader's id of the last upload that was read, so that a rerun does not read it again."""
    deleted: set[str] = field(default_factory=set)
    """What was deleted here, by `Item.key`: it is shown where it stood."""
    refused: dict[str, str] = field(default_factory=dict)
    """By `Item.key`, why what was last asked of a kept run or race cannot be."""
    notices: list[str] = field(default_factory=list)
    """Sentences to show until the next thing is asked for."""

    @property
    def waits_for(self) -> Job[Any] | None:
        """The job that this tab waits for."""
        jobs = (self.job, self.race, self.measuring, self.checking)
        return next((job for job in jobs if job is not None and not job.progress.state.finished), None)

    def arrive(self, session: Session, parameters: Mapping[str, str]) -> bool:
        """Open what the link asks for, when it is this page that opens the tab; see `Session.arrive`.

        A job of that name that is still this server's is waited for again. True where there was a link to read.
        """
        if not session.arrives() or not parameters:
            return False
        opened = links.from_parameters(LiveView, parameters)
        self.link = opened.view
        self.notices[:] = [said for said in opened.complaints if said not in session.models_notices]
        self.run, self.shown = opened.view.run, opened.view.race
        if self.run:
            self._pick_up()
        if (made := self.job or self.recalled) is not None:
            self.opening = made.prompt
        racing = tab_jobs.shared_worker().find(self.shown)
        if isinstance(racing, RaceJob) and rights.owns(racing.maker) and not racing.progress.state.finished:
            self.race, self.racing, self.shown = racing, self.shown, ""
            tab_jobs.shared_worker().join(racing)
        return True

    def _pick_up(self) -> None:
        """The decode of the link: the job itself, or else what it left behind."""
        job = tab_jobs.shared_worker().find(self.run)
        if isinstance(job, DecodeJob) and rights.owns(job.maker):
            self.job = job
            tab_jobs.shared_worker().join(job)
            return
        try:
            kept = tab_jobs.run_store().find(self.run)
            if kept.standing is RunStatus.GROWING:
                raise SettingError(
                    "The link's run is being decoded by another server; load this page again when it is done."
                )
            self.recalled = read(kept.path)
        except BadInput as error:
            self.notices.append(str(error))
            self.run = ""

    @property
    def has_decode(self) -> bool:
        """True if there is a decode to show, under way or over."""
        return self.job is not None or self.recalled is not None

    @property
    def decoded(self) -> Run | None:
        """The run that the page shows: the last decode once it is over, or a kept one."""
        return self.recalled if self.job is None else self.job.progress.run

    @property
    def address(self) -> str:
        """The name of the decode that a link can open: none that came to nothing, or could not be kept."""
        lost = self.job is not None and self.job.progress.state.finished and not self.job.progress.saved
        return "" if lost else self.run

    def address_of(self, show: Show) -> LiveView:
        """What a link says of the tab in a view: what is shown there, and in every view what is under way, since a tab
        that is loaded anew finds its job by the link alone. Names the view only if there is another one."""
        decodes = self.job is not None and not self.job.progress.state.finished
        run = self.address if decodes or show is Show.DECODE else ""
        shown = self.shown if show is Show.RACE else ""
        race = self.racing if self.race is not None else shown
        return replace(self.link, show=show if self.has_decode else Show.DECODE, run=run, race=race)

    def remember(self, prompt: str, settings: Callable[[], Settings], wanted: Wanted) -> None:
        """Take note of what the forms say; of those that cannot be read, what they said before stays."""
        self.opening = prompt
        with suppress(BadInput):
            self.link = replace(self.link, settings=settings())
        self.link = replace(self.link, chat=wanted.chat is None, system=wanted.history.system)

    def forget(self, name: str) -> None:
        """A kept run or race is deleted: no link opens it."""
        tab_jobs.shared_worker().forget(name)
        if name == self.run:
            self.run = ""
        if name == self.shown:
            self.shown = ""

    def decode(self, prompt: str, settings: Callable[[], Settings], wanted: Wanted) -> None:
        """Ask the worker to decode; what is wrong with the wish becomes a notice."""
        asked = self._asked(prompt, settings, wanted)
        if asked is not None:
            chosen, models = asked
            self.run, self.recalled = new_name(), None
            self.job = DecodeJob(
                prompt, chosen, tab_jobs.streamed(models.chat, models.history, self.run), models.choice
            )
            tab_jobs.shared_worker().submit(self.job, self.run)

    def run_race(self, prompt: str, settings: Callable[[], Settings], wanted: Wanted) -> None:
        """Ask the worker to race; what is wrong with the wish becomes a notice."""
        asked = self._asked(prompt, settings, wanted)
        if asked is not None:
            chosen, models = asked
            if rule_named(chosen.rule).dial is None:
                self.notices.append("That rule has no dial, so it has no relaxed lane; choose another in Settings.")
                return
            if chosen.control is not None:
                self.notices.append(BY_THE_CLOCK)
                return
            make = partial(tasks.race, prompt, chosen, models.chat, models.history)
            self.racing = new_name("race")
            place = (default_folders.races(), self.racing, visitors.mark())
            self.race = RaceJob(make, prompt, chosen, models.choice, *place)
            tab_jobs.shared_worker().submit(self.race, self.racing)

    def measure(self, settings: Callable[[], Settings], wanted: Wanted) -> None:
        """Ask the worker to measure what a pass costs."""
        asked = self._asked("any", settings, wanted)
        if asked is not None:
            self.measured = True
            self.measuring = CostsJob(partial(tasks.measure, asked[0]), asked[1].choice)
            tab_jobs.shared_worker().submit(self.measuring)

    def check_head(self, settings: Callable[[], Settings], wanted: Wanted) -> None:
        """Ask the worker to check the head that is chosen."""
        asked = self._asked("any", settings, wanted)
        if asked is not None:
            self.checking = BackgroundTask(tasks.check_head, asked[1].choice)
            tab_jobs.shared_worker().submit(self.checking)

    def bring_race(self, upload: str, data: bytes, name: str) -> bool:
        """Keep and show the race of an uploaded zip, or note what is wrong. False if this `upload` was read last.

        The same zip in another upload is brought in again: what it held may be gone by then, or had failed.
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
        """Take note of what has ended."""
        if self.race is not None and self.race.progress.state.finished:
            over, self.race = self.race.progress, None
            self.shown = over.saved or self.shown
            self.notices.extend(filter(None, [over.error, over.unsaved]))
            if over.state is JobState.CANCELLED:
                self.notices.append(
                    f"{LEFT if over.abandoned else 'You stopped the race'}; an unfinished race is not saved."
                )
        if self.measuring is not None and self.measuring.progress.state.finished:
            over_too, self.measuring = self.measuring.progress, None
            self.notices.extend(filter(None, [over_too.error]))

    def _asked(self, prompt: str, settings: Callable[[], Settings], wanted: Wanted) -> tuple[Settings, Wanted] | None:
        chosen = decode_form.checked(self.notices, prompt, settings, under_way=self.waits_for is not None)
        if chosen is None:
            return None
        try:
            named = wanted.choice.target or None, wanted.choice.drafter or None
            check_trees(chosen, *named)
            check_controller(chosen, *named)
            return chosen, wanted
        except BadInput as error:
            self.notices.append(str(error))
            return None


def current_desk() -> LivePageState:
    """This tab's memory of the page."""
    return remembered("mars_viz_live", LivePageState)
