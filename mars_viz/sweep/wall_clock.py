"""The wall-clock check: the target alone, strict and a setting, decoded in turn.

Knows backends and clocks; loads the model libraries when called.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import groupby
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from mars_viz.analysis.intervals import Interval, band
from mars_viz.chat import EncodedPrompt, Exchange
from mars_viz.costs import Costs, Factor, objection, per_token
from mars_viz.errors import SettingError
from mars_viz.prompts import PromptItem, PromptSet
from mars_viz.records import emitted
from mars_viz.rules import rule_named
from mars_viz.run import Settings
from mars_viz.sweep.measures import costed
from mars_viz.sweep.result import SweepResult
from mars_viz.sweep.store import SweepStore, open_store
from mars_viz.sweep.timing import TimingCheck, Way
from mars_viz.walk import walk

if TYPE_CHECKING:
    from mars_viz.speculators.backend import Backend

T = TypeVar("T")
Prefix = tuple[int, ...]
WAYS = ("target", "strict", "chosen")
"""How every prompt is decoded."""


@dataclass(frozen=True, slots=True)
class TimedDecode:
    """One decode."""

    token_ids: Prefix
    """Its text."""
    rounds: int
    """Target passes."""
    seconds: float
    """Wall clock, the prompt's own pass excluded."""


@dataclass(frozen=True, slots=True)
class ClockProgress:
    """How far a wall-clock check has come."""

    done: int
    """Decodes so far, those that warm up left out."""
    decodes: int
    """All of them."""


class WallClock:
    """Iterate it for its progress, stop whenever; when it has come to its end, take what it found.

    Each prompt is decoded `repetitions` times in every way, in an order that rotates so that a noisy machine hits all.
    """

    def __init__(
        self,
        backend: Backend,
        prompts: Sequence[EncodedPrompt],
        settings: Settings,
        *,
        repetitions: int = 3,
        chat: bool = False,
        costs: Costs | None = None,
    ):
        """`settings` are the setting to check; strict is its rule's strict end. Nothing is recorded, unless the rule
        needs the evidence. Raises BadInput without a prompt, for a rule without a dial, and where a prompt does not
        fit."""
        rule = rule_named(settings.rule)
        if not prompts or repetitions < 1 or rule.dial is None:
            raise SettingError("A wall-clock check takes at least one prompt and repetition, and a rule with a dial.")
        self._backend, self._costs, self._repetitions = backend, costs, repetitions
        self._settings = replace(settings, dial=rule.dial.checked(settings.dial))
        self._strict = replace(settings, dial=rule.dial.strict)
        self._prompts = [backend.prompt_ids(each.prompt, settings, each.history, chat=chat) for each in prompts]
        self._found: dict[str, list[list[TimedDecode]]] = {name: [[] for _ in prompts] for name in WAYS}

    @property
    def progress(self) -> ClockProgress:
        """How far it has come."""
        done = sum(len(each) for way in self._found.values() for each in way)
        return ClockProgress(done, len(WAYS) * len(self._prompts) * self._repetitions)

    def __iter__(self) -> Iterator[ClockProgress]:
        """Decode to the end."""
        for name in WAYS:
            self._decode(name, self._prompts[0])  # warm up
        turn = 0
        for _ in range(self._repetitions):
            for place, prompt in enumerate(self._prompts):
                for name in WAYS[turn % len(WAYS) :] + WAYS[: turn % len(WAYS)]:
                    self._found[name][place].append(self._decode(name, prompt))
                    yield self.progress
                turn += 1

    def check(self) -> TimingCheck:
        """What it found, once it has come to its end."""
        found, settings = self._found, self._settings
        made = {name: _way(name, decodes) for name, decodes in found.items()}
        pairs = zip(found["strict"], found["target"], strict=True)
        modelled = _modelled(made["chosen"], self._costs, settings)
        assert settings.dial is not None
        return TimingCheck(
            device=self._backend.device,
            rule=settings.rule,
            dial=settings.dial,
            gamma=settings.gamma,
            target=made["target"],
            strict=made["strict"],
            chosen=made["chosen"],
            same_as_target=sum(ours[0].token_ids == alone[0].token_ids for ours, alone in pairs),
            modelled_over_strict=_tau(made["chosen"]) / _tau(made["strict"]),
            modelled_over_target=modelled.estimate,
            modelled_low=modelled.low,
            modelled_high=modelled.high,
            created=datetime.now(UTC).isoformat(timespec="seconds"),
        )

    def _decode(self, name: str, prompt: Prefix) -> TimedDecode:
        if name == "target":
            return _alone(self._backend, prompt, self._settings)
        return _walked(self._backend, prompt, self._strict if name == "strict" else self._settings)


def wall_clock(backend: Backend, prompts: Sequence[EncodedPrompt], settings: Settings, **options: Any) -> TimingCheck:
    """The whole check at once; takes the options of `WallClock` and raises what it does."""
    clock = WallClock(backend, prompts, settings, **options)
    for _ in clock:
        pass
    return clock.check()


def to_time(result: SweepResult, prompts: PromptSet, count: int) -> list[EncodedPrompt]:
    """At most `count` of the prompts that have results, evenly spaced from the first to the last.

    Of a conversation one turn at most, from question to question a later one, since turns of one question are no
    independent measurements; it follows what the sweep had it follow.
    """
    known, store = set(result.prompts["id"].tolist()), open_store(result.folder)
    numbered = [(index, item) for index, item in enumerate(prompts.items) if item.id in known]
    questions = [list(turns) for _, turns in groupby(numbered, key=lambda each: each[1].unit)]
    chosen = [turns[n % len(turns)] for n, turns in enumerate(spread_over(questions, count))]
    return [_asked(store, prompts, index, item) for index, item in chosen]


def _asked(store: SweepStore, prompts: PromptSet, index: int, item: PromptItem) -> EncodedPrompt:
    if item.turn == 1:
        return EncodedPrompt(item.prompt)
    begins = index - item.turn + 1
    told = zip(prompts.items[begins:index], store.told(begins, index), strict=True)
    return EncodedPrompt(item.prompt, tuple(Exchange(before.prompt, each.answer) for before, each in told))


def spread_over(found: Sequence[T], count: int) -> list[T]:
    """At most `count` of them, evenly spaced from the first to the last."""
    places = np.linspace(0, len(found) - 1, min(count, len(found))).round().astype(int)
    return [found[place] for place in places]


def _alone(backend: Backend, prompt: Prefix, settings: Settings) -> TimedDecode:
    from mars_viz.speculators.autoregressive import decode_alone

    done = decode_alone(backend, prompt, settings)
    return TimedDecode(done.token_ids, len(done.token_ids), done.seconds)


def _walked(backend: Backend, prompt: Prefix, settings: Settings) -> TimedDecode:
    rule = rule_named(settings.rule)
    speculator = backend.speculator(settings, rule.needs)
    speculator.prefill(prompt)
    ending = backend.ending(settings)
    began = time.perf_counter()
    rounds = list(walk(speculator, rule, settings.dial, prompt, ending))
    seconds = time.perf_counter() - began
    return TimedDecode(emitted(rounds), len(rounds), seconds)


def _way(name: str, decodes: list[list[TimedDecode]]) -> Way:
    return Way(
        name=name,
        tokens=np.array([len(each[0].token_ids) for each in decodes]),
        rounds=np.array([each[0].rounds for each in decodes]),
        seconds=np.array([[one.seconds for one in each] for each in decodes]),
    )


def _tau(way: Way) -> float:
    return float(way.tokens.sum() / way.rounds.sum())


def _modelled(way: Way, costs: Costs | None, settings: Settings) -> Interval:
    """Over the target alone, resampled over prompts, with the costs' own interval; NaN without costs that can be
    believed."""
    known = costs is not None and costs.cover(settings.gamma, settings.tree) and not objection(costs)
    factor = per_token(costs, settings.gamma) if costs is not None and known else Factor(math.nan, math.nan, math.nan)
    found = band(lambda tokens, rounds: factor.estimate * tokens / rounds, way.tokens[:, None], way.rounds[:, None])
    return costed(found, (found.estimate, factor)).only
