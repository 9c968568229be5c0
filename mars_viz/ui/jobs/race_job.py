"""Job that decodes a race of three lanes, and saves it in a folder if requested.

The function that makes the race is an argument.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol

from mars_viz.backend_choice import BUILT_IN, BackendChoice
from mars_viz.errors import BadInput
from mars_viz.race import Race
from mars_viz.race.making import RECORDED, RaceStep, RaceTexts
from mars_viz.race.store import RaceStore
from mars_viz.run import Settings
from mars_viz.runstore import new_name
from mars_viz.ui.jobs.decode_job import grown, since
from mars_viz.ui.jobs.job import Job, JobState, Progress, Throttle
from mars_viz.ui.jobs.models import Models


@dataclass(frozen=True, slots=True)
class Raced(Progress):
    """Snapshot of a race's progress."""

    step: RaceStep | None = None
    texts: RaceTexts = RaceTexts()  # the lanes' texts so far, updated less often than `step`
    race: Race | None = None
    saved: str = ""  # name of the saved race's folder
    unsaved: str = ""  # why the race could not be saved, in a sentence


class Racer(Protocol):
    """Race in progress, such as `mars_viz.race.making.Racing`."""

    def __iter__(self) -> Iterator[RaceStep]:
        """Race; each step is one token or one round."""

    def texts(self) -> RaceTexts:
        """Return the lanes' texts so far."""

    def race(self) -> Race:
        """Return the finished race."""


class RaceJob(Job[Raced]):
    """Decodes one race."""

    private: ClassVar[bool] = True

    def __init__(
        self,
        make: Callable[[Any], Racer],
        prompt: str,
        settings: Settings,
        choice: BackendChoice = BUILT_IN,
        folder: Path | None = None,
        name: str = "",
        maker: str = "",
    ) -> None:
        """`make` makes the racer from a pair. `prompt` and `settings` are for display. The race is saved in `folder`,
        if given, under `name` or a new name, with the browser's mark `maker`."""
        super().__init__(Raced(JobState.QUEUED))
        self.choice, self.prompt, self.settings = choice, prompt, settings
        self._make, self._folder, self._name, self.maker = make, folder, name, maker

    @property
    def new_tokens(self) -> int:
        """Token limit from the settings."""
        return self.settings.max_new_tokens

    def after(self, news: Mapping[str, Any]) -> Raced:
        """Append the new parts of the texts, sent as `more`."""
        if "more" in news:
            news = {"texts": _grown(self.progress.texts, news["more"])}
        return super().after(news)

    def work(self, models: Models[Any]) -> None:
        """Race to the end. A cancelled race is discarded."""
        pair = models.pair(self.choice, lambda: self.stopping)
        racer = self._make(pair)
        self.tell(state=JobState.DECODING)
        looks, complete = Throttle(), False
        for step in () if self.stopping else racer:
            self.tell(step=step)
            if self.stopping:
                break
            if not complete and (looks.due or step.turn != RECORDED):
                complete = step.turn != RECORDED  # the texts are complete
                with looks:
                    self.tell(more=_since(self.progress.texts, racer.texts()))
        if self.stopping:
            self.tell(state=JobState.CANCELLED)
            return
        race = racer.race()
        saved, unsaved = "", ""
        if self._folder is not None:
            try:
                saved = RaceStore(self._folder).save(race, self._name or new_name("race"), self.maker)
            except BadInput as error:
                unsaved = f"The race is not saved: {error}"
        self.tell(state=JobState.DONE, race=race, saved=saved, unsaved=unsaved)


def _since(before: RaceTexts, texts: RaceTexts) -> RaceTexts:
    strict = None if texts.strict is None else since(before.strict, texts.strict)
    relaxed = None if texts.relaxed is None else since(before.relaxed, texts.relaxed)
    return RaceTexts(texts.alone[len(before.alone) :], strict, relaxed)


def _grown(before: RaceTexts, more: RaceTexts) -> RaceTexts:
    strict = before.strict if more.strict is None else grown(before.strict, more.strict)
    relaxed = before.relaxed if more.relaxed is None else grown(before.relaxed, more.relaxed)
    return RaceTexts((*before.alone, *more.alone), strict, relaxed)
