"""A race as a job: three lanes decoded in turn, and the race kept in a folder where one is wanted.

Knows races in the making as something to iterate; how to make one is an argument.
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
    """What is known of a race at one moment."""

    step: RaceStep | None = None
    """The latest one."""
    texts: RaceTexts = RaceTexts()
    """The lanes' texts, as far as they go; they may lag behind `step` by a moment."""
    race: Race | None = None
    """The race, once it is over."""
    saved: str = ""
    """Its folder's name, once it is there."""
    unsaved: str = ""
    """Why it could not be saved, in a sentence."""


class Racer(Protocol):
    """A race in the making, such as `mars_viz.race.making.Racing`."""

    def __iter__(self) -> Iterator[RaceStep]:
        """Race; each step is a token or a round."""
        ...

    def texts(self) -> RaceTexts:
        """The lanes' texts so far."""
        ...

    def race(self) -> Race:
        """The race."""
        ...


class RaceJob(Job[Raced]):
    """One race, for one asker."""

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
        """`make` makes the racer of a pair, `prompt` and `settings` are what it races, to be shown; `folder` keeps
        races, None where nobody wants it kept, under that name or a new one, made by the browser of that mark."""
        super().__init__(Raced(JobState.QUEUED))
        self.choice, self.prompt, self.settings = choice, prompt, settings
        self._make, self._folder, self._name, self.maker = make, folder, name, maker

    @property
    def new_tokens(self) -> int:
        """Of its settings."""
        return self.settings.max_new_tokens

    def after(self, news: Mapping[str, Any]) -> Raced:
        """Told as `more`, texts are what is new of them alone."""
        if "more" in news:
            news = {"texts": _grown(self.progress.texts, news["more"])}
        return super().after(news)

    def work(self, models: Models[Any]) -> None:
        """Race to the end, unless it is stopped: half a race is none."""
        pair = models.pair(self.choice, lambda: self.stopping)
        racer = self._make(pair)
        self.tell(state=JobState.DECODING)
        looks, whole = Throttle(), False
        for step in () if self.stopping else racer:
            self.tell(step=step)
            if self.stopping:
                break
            if not whole and (looks.due or step.turn != RECORDED):
                whole = step.turn != RECORDED  # there is no more to come
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


def _since(known: RaceTexts, texts: RaceTexts) -> RaceTexts:
    strict = None if texts.strict is None else since(known.strict, texts.strict)
    relaxed = None if texts.relaxed is None else since(known.relaxed, texts.relaxed)
    return RaceTexts(texts.alone[len(known.alone) :], strict, relaxed)


def _grown(known: RaceTexts, more: RaceTexts) -> RaceTexts:
    strict = known.strict if more.strict is None else grown(known.strict, more.strict)
    relaxed = known.relaxed if more.relaxed is None else grown(known.relaxed, more.relaxed)
    return RaceTexts((*known.alone, *more.alone), strict, relaxed)
