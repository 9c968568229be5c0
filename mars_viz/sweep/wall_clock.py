"""The wall-clock check: the target alone, strict (or drafts of full length) and a setting, decoded in turn.

The models draft all γ tokens even if a draft-length controller cuts them. So with a controller each text is decoded
once before timing, to learn the length of every draft. While timed, the drafter takes the passes that the controller
would allow, and the target scores the tokens that it would leave. Time for the controller's own look at the drafter's
law is excluded. Model libraries are imported on use.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import groupby
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from mars_viz.analysis.intervals import DEFAULT, Interval, band
from mars_viz.axis import axis_of
from mars_viz.chat import EncodedPrompt, Exchange, History
from mars_viz.controllers import NONE, Controller
from mars_viz.costs import Costs, at_ends, drafts_seconds, modelled_seconds, objection, per_token
from mars_viz.errors import SettingError
from mars_viz.exploration import walk
from mars_viz.prompts import PromptSet
from mars_viz.records import emitted
from mars_viz.rules import rule_named
from mars_viz.run import Settings
from mars_viz.sweep.measures import costed, widened
from mars_viz.sweep.result import SweepResult
from mars_viz.sweep.store import open_store
from mars_viz.sweep.timing import TimingCheck, Way
from mars_viz.walk import Answer, Prefix, Speculator

if TYPE_CHECKING:
    from mars_viz.speculators.backend import Backend
    from mars_viz.speculators.speculator import DraftAndScore

T = TypeVar("T")
WAYS = ("target", "strict", "chosen")  # the ways in which every prompt is decoded


@dataclass(frozen=True, slots=True)
class TimedDecode:
    """One decode."""

    token_ids: Prefix
    rounds: int  # target passes
    seconds: float  # wall clock, without the prompt's own pass
    drafted: tuple[int, ...] = ()  # tokens drafted in each round; empty for the target alone


@dataclass(frozen=True, slots=True)
class ClockProgress:
    """Progress of a wall-clock check."""

    done: int  # number of decodes so far, without warm-up
    decodes: int  # number of all decodes


class WallClock:
    """A wall-clock check in progress: iterate it, stop at any time, and call `check` at the end. Each prompt is decoded
    `repetitions` times in every way, in a rotating order, so that noise of the machine affects all ways."""

    def __init__(
        self,
        backend: Backend,
        prompts: Sequence[EncodedPrompt],
        settings: Settings,
        *,
        repetitions: int = 3,
        chat: bool | None = None,
        costs: Costs | None = None,
        over: str = "",
    ):
        """Check `settings` against the rule's strict end or, `over` a controller's threshold, against uncut drafts.

        Nothing is recorded, unless the rule needs the evidence. Raises BadInput without a prompt, for a rule without a
        dial (unless `over` a threshold), and for a prompt that does not fit.
        """
        rule = rule_named(settings.rule)
        if not prompts or repetitions < 1 or not (over or rule.dial):
            raise SettingError("A wall-clock check takes at least one prompt and repetition, and a rule with a dial.")
        self._backend, self._costs, self._repetitions = backend, costs, repetitions
        self._axis = axis_of(rule, settings.gamma, over)
        chosen = replace(settings, dial=rule.checked_dial(settings.dial))
        strict = replace(chosen, controller=NONE) if over else self._axis.apply(chosen, self._axis.reference)
        self._settings = {"target": chosen, "strict": strict, "chosen": chosen}
        self._prompts = [backend.prompt_ids(each.prompt, settings, each.history, chat=chat) for each in prompts]
        self._found: dict[str, list[list[TimedDecode]]] = {name: [[] for _ in prompts] for name in WAYS}
        self._lengths: dict[tuple[str, Prefix], dict[Prefix, int]] = {}

    @property
    def progress(self) -> ClockProgress:
        """The present progress."""
        done = sum(len(each) for way in self._found.values() for each in way)
        return ClockProgress(done, len(WAYS) * len(self._prompts) * self._repetitions)

    def __iter__(self) -> Iterator[ClockProgress]:
        """Decode to the end."""
        for name in WAYS:
            self._decode(name, self._prompts[0])  # warm up
        for prompt in self._prompts[1:]:
            for name in WAYS:
                if self._cut(name):
                    self._told(name, prompt)
                    yield self.progress
        turn = 0
        for _ in range(self._repetitions):
            for place, prompt in enumerate(self._prompts):
                for name in WAYS[turn % len(WAYS) :] + WAYS[: turn % len(WAYS)]:
                    self._found[name][place].append(self._decode(name, prompt))
                    yield self.progress
                turn += 1

    def check(self) -> TimingCheck:
        """Return the result; call it after the last iteration."""
        decodes_by_way, settings, over = self._found, self._settings["chosen"], self._axis.over
        ways = {}
        for name, decodes in decodes_by_way.items():
            tokens, rounds = np.array([(len(each[0].token_ids), each[0].rounds) for each in decodes]).T
            ways[name] = Way(name, tokens, rounds, np.array([[one.seconds for one in each] for each in decodes]))
        pairs = zip(decodes_by_way["strict"], decodes_by_way["target"], strict=True)
        paces = []
        for name in ("chosen", "strict"):
            first = [each[0] for each in decodes_by_way[name]]  # every repetition has the same rounds
            tokens = np.array([len(each.token_ids) for each in first])
            paces.append(ModelledPace(self._settings[name], tokens, tuple(each.drafted for each in first)))
        chosen, strict = paces
        modelled = chosen.over_target(self._costs)
        return TimingCheck(
            device=self._backend.device,
            rule=settings.rule,
            dial=self._axis.value_of(settings),
            gamma=settings.gamma,
            target=ways["target"],
            strict=ways["strict"],
            chosen=ways["chosen"],
            same_as_target=sum(ours[0].token_ids == alone[0].token_ids for ours, alone in pairs),
            modelled_over_strict=chosen.over(strict, self._costs),
            modelled_over_target=modelled.estimate,
            modelled_low=modelled.low,
            modelled_high=modelled.high,
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            over=over,
            controller=NONE if over else settings.controller,
            at=settings.dial if over and settings.dial is not None else math.nan,
        )

    def _decode(self, name: str, prompt: Prefix) -> TimedDecode:
        settings = self._settings[name]
        if name == "target":
            from mars_viz.speculators.autoregressive import decode_alone

            done = decode_alone(self._backend, prompt, settings)
            return TimedDecode(done.token_ids, len(done.token_ids), done.seconds)
        return _walked(self._backend, prompt, settings, self._told(name, prompt) if self._cut(name) else None)

    def _cut(self, name: str) -> bool:
        return name != "target" and self._settings[name].control is not None

    def _told(self, name: str, prompt: Prefix) -> dict[Prefix, int]:
        """Return the number of tokens that the controller leaves after each prefix, from a decode with full drafts."""
        if (name, prompt) not in self._lengths:
            settings, prefix, lengths = self._settings[name], prompt, dict[Prefix, int]()
            speculator = self._backend.speculator(settings)
            speculator.prefill(prompt)
            ending = self._backend.ending(settings)
            for round_ in walk(speculator, rule_named(settings.rule), settings.dial, prompt, ending):
                lengths[prefix] = len(round_.speculation)
                prefix += round_.token_ids
            self._lengths[name, prompt] = lengths
        return self._lengths[name, prompt]


def wall_clock(backend: Backend, prompts: Sequence[EncodedPrompt], settings: Settings, **options: Any) -> TimingCheck:
    """Run the complete check. Takes the options of `WallClock` and raises its errors."""
    clock = WallClock(backend, prompts, settings, **options)
    for _ in clock:
        pass
    return clock.check()


def to_time(result: SweepResult, prompts: PromptSet, count: int) -> list[EncodedPrompt]:
    """Return at most `count` prompts with results, evenly spaced from the first to the last, task by task.

    At most one turn of a conversation is taken, a later one from question to question, because turns of one question
    are no independent measurements. A turn has the same history as in the sweep.
    """
    finished, store = set(result.prompts["id"].tolist()), open_store(result.folder)
    numbered = [(index, item) for index, item in enumerate(prompts.items) if item.id in finished]
    tasks = list(dict.fromkeys(item.category for _, item in numbered))
    questions = [list(turns) for _, turns in groupby(numbered, key=lambda each: each[1].unit)]
    questions.sort(key=lambda turns: tasks.index(turns[0][1].category))  # or every n-th might be of one task
    encoded = []
    for index, item in (turns[n % len(turns)] for n, turns in enumerate(spread_over(questions, count))):
        history = item.opening
        if item.turn > 1:
            begins = index - item.turn + 1
            answered = zip(prompts.items[begins:index], store.told(begins, index), strict=True)
            history = History(item.system, tuple(Exchange(before.prompt, each.answer) for before, each in answered))
        encoded.append(EncodedPrompt(item.prompt, history))
    return encoded


def spread_over(found: Sequence[T], count: int) -> list[T]:
    """Return at most `count` items, evenly spaced from the first to the last."""
    places = np.linspace(0, len(found) - 1, min(count, len(found))).round().astype(int)
    return [found[place] for place in places]


def _walked(
    backend: Backend, prompt: Prefix, settings: Settings, lengths: Mapping[Prefix, int] | None = None
) -> TimedDecode:
    """Time one decode; `lengths` are the tokens that a controller leaves of each draft."""
    rule, ending = rule_named(settings.rule), backend.ending(settings)
    speculator = backend.speculator(replace(settings, controller=NONE), rule.needs)
    speculator.prefill(prompt)
    control = settings.control
    source: Speculator = speculator
    if lengths is not None and control is not None:
        source = _Stopping(speculator, lengths, control.controller, settings.gamma)
    began = time.perf_counter()
    rounds = list(walk(source, rule, settings.dial, prompt, ending))
    seconds = time.perf_counter() - began
    return TimedDecode(emitted(rounds), len(rounds), seconds, tuple(len(each.speculation) for each in rounds))


@dataclass(frozen=True, slots=True)
class _Stopping:
    """A speculator whose drafter stops at a controller's cut."""

    speculator: DraftAndScore
    lengths: Mapping[Prefix, int]  # number of drafted tokens after each prefix
    controller: Controller  # determines the number of passes
    gamma: int  # maximum number of tokens

    def speculate(self, prefixes: Sequence[Prefix]) -> list[Answer]:
        """Return one answer per prefix, one after the other."""
        drafted = [(prefix, self.lengths[prefix]) for prefix in prefixes]
        return [
            self.speculator.drafted(prefix, self.controller.steps(count, self.gamma), count)
            for prefix, count in drafted
        ]


@dataclass(frozen=True, slots=True)
class ModelledPace:
    """Data of K decodes for modelling their pace."""

    settings: Settings
    tokens: np.ndarray  # int64 [K]; tokens of each text
    drafted: tuple[tuple[int, ...], ...]  # [K]; drafted tokens of each round of each text

    def over(self, other: ModelledPace, costs: Costs | None) -> float:
        """Return the ratio of the two paces: tokens per round, or tokens per modelled second if a controller cuts
        drafts. NaN without reliable costs."""
        cut = any(each.settings.control is not None for each in (self, other))
        if cut and not self._believes(costs):
            return math.nan
        mine, others = (each._seconds(costs) if cut and costs is not None else each._rounds for each in (self, other))
        return float(self.tokens.sum() / mine.sum() / (other.tokens.sum() / others.sum()))

    def over_target(self, costs: Costs | None) -> Interval:
        """Return the pace relative to the target alone, resampled over prompts and with the costs' intervals. NaN
        without reliable costs."""
        if costs is None or not self._believes(costs):
            return Interval(math.nan, math.nan, math.nan, DEFAULT.confidence, DEFAULT.method)
        tokens, rounds, seconds = self.tokens[:, None], self._rounds[:, None], self._seconds(costs)[:, None]
        if self.settings.control is None:
            factor = per_token(costs, self.settings.gamma)
            interval = band(lambda tokens, rounds: factor.estimate * tokens / rounds, tokens, rounds)
            return costed(interval, (interval.estimate, factor)).only
        alone = costs.passes[0].seconds
        interval = band(lambda tokens, seconds: alone * tokens / seconds, tokens, seconds)
        ends = (
            [each.passes[0].seconds * self.tokens.sum() / self._seconds(each).sum() for each in moved]
            for moved in at_ends(costs)
        )
        return widened(interval, ((np.array([low]), np.array([high])) for low, high in ends)).only

    def _believes(self, costs: Costs | None) -> bool:
        cover = costs is not None and costs.cover(self.settings.gamma, self.settings.tree)
        return cover and not objection(costs)

    @property
    def _rounds(self) -> np.ndarray:
        return np.array([len(each) for each in self.drafted])

    def _seconds(self, costs: Costs) -> np.ndarray:
        """Return the modelled seconds of each text, float64 [K]."""
        control, gamma = self.settings.control, self.settings.gamma
        if control is None:
            return modelled_seconds(costs, self._rounds, gamma)
        steps = [[control.controller.steps(each, gamma) for each in text] for text in self.drafted]
        return np.array(
            [drafts_seconds(costs, text, text_steps) for text, text_steps in zip(self.drafted, steps, strict=True)]
        )
