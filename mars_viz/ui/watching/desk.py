"""What the Live page remembers of one browser tab: its decode, its race, what it measures, and sentences to show."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import streamlit as st

from mars_viz.errors import BadInput
from mars_viz.rules import rule_named
from mars_viz.run import Settings
from mars_viz.ui import decode_form, live
from mars_viz.ui.jobs.attendance import LEFT
from mars_viz.ui.jobs.costs_job import CostsJob
from mars_viz.ui.jobs.decode_job import DecodeJob
from mars_viz.ui.jobs.race_job import RaceJob
from mars_viz.ui.jobs.worker import Job, JobState
from mars_viz.ui.watching.pair_form import Wanted

_KEY = "mars_viz_live"
TEXT, RACES, SAVED = "Live text", "Races", "Saved runs"
"""What the page can show; the buttons that make it are named for what they do."""
NEXT = "live-next"
"""Under which name the session keeps what the page is to show next."""


@dataclass(slots=True)
class Desk:
    """The memory of one tab's Live page."""

    job: DecodeJob | None = None
    """The last decode, under way or over."""
    number: str = ""
    """Tells that decode from the one before."""
    race: RaceJob | None = None
    """The race that this tab waits for."""
    measuring: CostsJob | None = None
    """The measurement that this tab waits for."""
    shown: str = ""
    """The race that is shown, by its folder's name; empty for the first."""
    notices: list[str] = field(default_factory=list)
    """Sentences to show until the next thing is asked for."""

    @property
    def waits_for(self) -> Job[Any] | None:
        """The job that this tab waits for."""
        jobs = (self.job, self.race, self.measuring)
        return next((job for job in jobs if job is not None and not job.progress.state.finished), None)

    def decode(self, prompt: str, settings: Callable[[], Settings], wanted: Callable[[], Wanted]) -> None:
        """Ask the worker to decode; what is wrong with the wish becomes a notice."""
        asked = self._asked(prompt, settings, wanted)
        if asked is not None:
            chosen, models = asked
            self.job, self.number = DecodeJob(prompt, chosen, live.streamed(models.chat), models.choice), uuid4().hex
            live.shared_worker().submit(self.job)

    def run_race(self, prompt: str, settings: Callable[[], Settings], wanted: Callable[[], Wanted]) -> None:
        """Ask the worker to race; what is wrong with the wish becomes a notice."""
        asked = self._asked(prompt, settings, wanted)
        if asked is not None:
            chosen, models = asked
            if rule_named(chosen.rule).dial is None:
                self.notices.append("That rule has no dial, so nothing relaxed could race; choose another in Settings.")
                return
            make = live.racing(prompt, chosen, models.chat)
            self.race = RaceJob(make, models.choice, live.races_folder())
            live.shared_worker().submit(self.race)

    def measure(self, settings: Callable[[], Settings], wanted: Callable[[], Wanted]) -> None:
        """Ask the worker to measure what a pass costs."""
        asked = self._asked("any", settings, wanted)
        if asked is not None:
            self.measuring = CostsJob(live.measuring(asked[0]), asked[1].choice)
            live.shared_worker().submit(self.measuring)

    def attempt(self, deed: Callable[[], object]) -> None:
        """Do something to what is kept; what is wrong becomes a notice."""
        self.notices.clear()
        try:
            deed()
        except BadInput as error:
            self.notices.append(str(error))

    def settle(self) -> None:
        """Take note of what has ended."""
        if self.race is not None and self.race.progress.state.finished:
            over, self.race = self.race.progress, None
            self.shown = over.saved or self.shown
            self.notices.extend(filter(None, [over.error, over.unsaved]))
            if over.state is JobState.CANCELLED:
                self.notices.append(f"{LEFT if over.abandoned else 'You stopped the race'}; half a race is not kept.")
        if self.measuring is not None and self.measuring.progress.state.finished:
            over_too, self.measuring = self.measuring.progress, None
            self.notices.extend(filter(None, [over_too.error]))

    def _asked(
        self, prompt: str, settings: Callable[[], Settings], wanted: Callable[[], Wanted]
    ) -> tuple[Settings, Wanted] | None:
        chosen = decode_form.checked(self.notices, prompt, settings, under_way=self.waits_for is not None)
        if chosen is None:
            return None
        try:
            return chosen, wanted()
        except BadInput as error:
            self.notices.append(str(error))
            return None


def current_desk() -> Desk:
    """This tab's memory of the page."""
    if _KEY not in st.session_state:
        st.session_state[_KEY] = Desk()
    desk: Desk = st.session_state[_KEY]
    return desk
