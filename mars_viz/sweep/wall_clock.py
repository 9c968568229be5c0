"""The wall-clock check: the target alone, strict (or drafts of full length) and a setting, decoded in turn.

The models draft all γ tokens even if a draft-length controller cuts them. So with a controller each text is decoded
once before timing, to learn the length of every draft. While timed, the drafter takes the passes that the controller
would allow, and the target scores the tokens that it would leave. Time for the controller's own look at the drafter's
law is excluded. Model libraries are imported on use.

Results are in the sweep's folder `checks`, one file each. A file is renamed when complete and never changed, so two
servers may add to one sweep.
"""

from __future__ import annotations

import math
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mars_viz.analysis.intervals import DEFAULT, Bootstrap, Interval, divided, interval
from mars_viz.axis import Axis, Threshold, axis_of
from mars_viz.bounds import headed
from mars_viz.chat import EncodedPrompt, Exchange, History
from mars_viz.controllers import CONTROLLERS, NONE, Controller
from mars_viz.costs import too_fast
from mars_viz.errors import BadInput, RunFileError, SettingError, disk_refusals
from mars_viz.exploration import walk
from mars_viz.records import emitted
from mars_viz.rules import rule_named
from mars_viz.run import Settings
from mars_viz.sweep.measures import measures, value_at
from mars_viz.sweep.plan import Plan
from mars_viz.sweep.result import SweepResult
from mars_viz.sweep.store import open_store
from mars_viz.walk import Answer, Prefix, Speculator, answers_through
from mars_viz.writer import json_of, make_folder, picked, to_read, write_file

if TYPE_CHECKING:
    from mars_viz.speculators.backend import Backend, DraftAndScore

FORMAT = "mars-viz-wall-clock"
SCHEMA = 3
WAYS = ("target", "strict", "chosen")  # the ways in which every prompt is decoded
_COLUMNS = {"tokens": np.int64, "rounds": np.int64, "seconds": np.float64}  # of a way
_CUT = (
    "Each draft took as many passes of the drafter as the controller lets it take, known from a decode before; what "
    "the controller's own look at the drafter's law takes is left out."
)


def excluded(controller: str) -> str:
    """Return a sentence about time that the clock excludes; empty unless the controller of this name, which may have a
    threshold, looks at the drafter's law."""
    name = controller.partition(":")[0]
    return "" if name == NONE or CONTROLLERS[name].counts else _CUT


@dataclass(frozen=True, slots=True)
class Way:
    """One way to decode the same prompts."""

    name: str  # 'target', 'strict' or 'chosen'
    tokens: np.ndarray  # int64 [K]; tokens of each text, equal in every repetition
    rounds: np.ndarray  # int64 [K]; target passes of each
    seconds: np.ndarray  # float64 [K, R]; wall clock, without the prompt's own pass

    @property
    def typical(self) -> np.ndarray:
        """float64 [K]; the median of each prompt's repetitions."""
        return np.median(self.seconds, axis=1)


@dataclass(frozen=True, slots=True)
class TimingCheck:
    """The target alone, strict and a setting, decoded in turn on one device."""

    device: str
    rule: str  # name in the registry
    dial: float  # the setting: a value of the rule's dial, or of the swept threshold
    gamma: int  # tokens drafted per round
    target: Way  # the target alone, one pass per token
    strict: Way  # the rule at its strict end; for a swept threshold, drafts of full length
    chosen: Way  # the rule at the setting
    same_as_target: int  # number of prompts whose strict text equals, token for token, the target's own
    modelled_over_strict: float = math.nan  # the sweep's modelled speed-up per token over strict for these prompts
    modelled_over_target: float = math.nan  # the same over the target alone; NaN without costs
    modelled_low: float = math.nan  # low end of its interval, over prompts and costs
    modelled_high: float = math.nan  # high end of its interval
    created: str = ""  # end of the check, ISO 8601 in UTC
    over: str = ""  # name of the controller whose threshold was swept; empty for the rule's dial
    controller: str = NONE  # controller and threshold for all settings, as in `Settings`
    at: float = math.nan  # value of the rule's dial while a controller's threshold is swept; NaN for a rule without one
    how: Bootstrap = DEFAULT  # method of intervals

    @property
    def against(self) -> str:
        """The reference in words; see `Plan.against`."""
        return (Threshold if self.over else Axis).against

    def is_of(self, plan: Plan) -> bool:
        """Return True if it belongs to a setting of this sweep."""
        dial = plan.rule.checked_dial(plan.settings.dial) if plan.over else None
        at, settings = math.nan if dial is None else dial, plan.settings
        theirs = (settings.rule, settings.gamma, plan.over, settings.controller)
        same = (self.rule, self.gamma, self.over, self.controller) == theirs
        return same and (self.at == at or math.isnan(self.at) and math.isnan(at))

    def pace_over(self, other: Way) -> Interval:
        """Return tokens per second relative to another way, resampled over prompts."""
        columns = (self.chosen.tokens, self.chosen.typical, other.tokens, other.typical)
        return interval(lambda x, y, u, v: divided(divided(x, y), divided(u, v)), *columns, how=self.how)

    def answers_over(self, other: Way) -> Interval:
        """Return the time of an answer in another way relative to the setting's, resampled like `pace_over`."""
        return interval(divided, other.typical, self.chosen.typical, how=self.how)

    def modelled_answers_over(self, other: Way) -> float:
        """Return the modelled counterpart of `answers_over`: the pace, times how much longer the other's answers are.
        NaN for the target alone without costs."""
        pace = self.modelled_over_target if other is self.target else self.modelled_over_strict
        return pace * float(other.tokens.sum() / self.chosen.tokens.sum())

    @property
    def objection(self) -> str:
        tau, speed_up = self.chosen.tokens.sum() / self.chosen.rounds.sum(), self.pace_over(self.target).estimate
        return too_fast(speed_up, float(tau), "check the wall clock again") if speed_up > tau else ""

    def pace(self, way: Way) -> Interval:
        return interval(divided, way.tokens, way.typical, how=self.how)

    def facts(self) -> dict[str, Any]:
        impossible, ways = bool(self.objection), (self.target, self.strict, self.chosen)
        names = ("created", "device", "rule", "dial", "gamma", "controller", "against", "objection")
        return picked(self, *names, "modelled_over_strict", "modelled_over_target") | {
            "note": excluded(self.over or self.controller),
            "threshold_of": self.over,
            "prompts": len(self.chosen.tokens),
            "repetitions": self.chosen.seconds.shape[1],
            "tokens_per_second": {way.name: asdict(self.pace(way)) for way in ways},
            "answers_over_strict": asdict(self.answers_over(self.strict)),
            "answers_over_target": None if impossible else asdict(self.answers_over(self.target)),
            "modelled_answers_over_strict": self.modelled_answers_over(self.strict),
            "modelled_answers_over_target": self.modelled_answers_over(self.target),
            "measured_over_strict": asdict(self.pace_over(self.strict)),
            "measured_over_target": None if impossible else asdict(self.pace_over(self.target)),
            "modelled_over_target_interval": [self.modelled_low, self.modelled_high],
            "strict_same_as_target": self.same_as_target,
        }

    def to_json(self) -> str:
        facts = {each.name: getattr(self, each.name) for each in fields(self) if each.type in _KINDS}
        ways = {name: {each: getattr(getattr(self, name), each).tolist() for each in _COLUMNS} for name in WAYS}
        contents = {"format": FORMAT, "schema": SCHEMA, **facts, "ways": ways}
        return json_of(contents, indent=1, escaped=False) + "\n"

    @classmethod
    def from_json(cls, data: bytes) -> TimingCheck:
        """Read a check. Raises BadInput for other data and schemas."""
        contents, _ = headed(data, "It", "wall-clock", SCHEMA)
        try:
            ways: dict[str, Any] = {name: _way(name, contents["ways"][name]) for name in WAYS}
            kinds = {each.name: _KINDS[each.type] for each in fields(cls) if each.type in _KINDS}
            check = cls(**{name: kind(contents[name]) for name, kind in kinds.items()}, **ways)
            if len({way.seconds.shape for way in ways.values()}) != 1 or not math.isfinite(check.dial):
                raise ValueError("other measurements")
            return check
        except (ValueError, OverflowError, KeyError, TypeError, RecursionError) as error:
            raise RunFileError("it is damaged") from error


_KINDS: dict[Any, Callable[[Any], Any]] = {
    "str": str,
    "int": int,
    "float": lambda value: math.nan if value is None else float(value),
}
"""Readers of a check's facts by their type."""


def _way(name: str, found: Any) -> Way:
    way = Way(name, **{column: np.array(found[column], kind) for column, kind in _COLUMNS.items()})
    fits = way.seconds.ndim == 2 and way.tokens.shape == way.rounds.shape == way.seconds.shape[:1]
    positive = way.seconds.size and (np.isfinite(way.seconds) & (way.seconds > 0)).all()
    if not (fits and positive and (np.minimum(way.tokens, way.rounds) >= 0).all()):
        raise ValueError("no measurements")
    return way


_CHECKS = "checks"


@dataclass(frozen=True, slots=True)
class Checks:
    """The wall-clock checks of a sweep."""

    found: tuple[TimingCheck, ...] = ()  # the oldest first
    problems: tuple[str, ...] = ()  # a sentence with a remedy for each invalid file

    def latest(self, dial: float) -> TimingCheck | None:
        return next((check for check in reversed(self.found) if check.dial == dial), None)


def keep_check(folder: Path, check: TimingCheck) -> Path:
    """Store a check in the sweep's folder. Raises BadInput if the disk refuses, with no partial file."""
    moment = "".join(character for character in check.created if character.isdigit())[:14]
    path = folder / _CHECKS / f"{moment or 'check'}-{uuid.uuid4().hex[:8]}.json"
    with disk_refusals(folder, remedy="Make room or choose another place; the wall-clock check was not kept."):
        make_folder(path.parent)
        write_file(path, check.to_json().encode(), synced=True)
    return path


def kept_checks(folder: Path, plan: Plan) -> Checks:
    """Return the checks of this sweep. A damaged file is reported as a problem and raises nothing."""
    checks, problems, paths = list[TimingCheck](), list[str](), list[Path]()
    with suppress(OSError):
        paths = sorted(to_read(folder, _CHECKS).glob("[!.]*.json"))
    for path in paths:
        try:
            check = TimingCheck.from_json(to_read(path).read_bytes())
            if not check.is_of(plan):
                raise RunFileError("it is of another sweep")
            checks.append(check)
        except (BadInput, OSError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            problems.append(f"{path.name} in {path.parent} is no wall-clock check of this sweep ({reason}). Remove it.")
    return Checks(tuple(sorted(checks, key=lambda check: check.created)), tuple(problems))


Decode = tuple[Prefix, int, float]
"""Tokens, the target's passes, and seconds by the clock without the prompt's own pass."""


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
        over: str = "",
        modelled: Mapping[str, Any] | None = None,
    ):
        """Check `settings` against the rule's strict end or, `over` a controller's threshold, against uncut drafts.

        `modelled` has those fields of the check. Nothing is recorded, unless the rule needs the evidence. Raises
        BadInput without a prompt, for a rule without a dial (unless `over` a threshold), and for a prompt that does not
        fit.
        """
        rule = rule_named(settings.rule)
        if not prompts or repetitions < 1 or not (over or rule.dial):
            raise SettingError("A wall-clock check takes at least one prompt and repetition, and a rule with a dial.")
        self._backend, self._repetitions, self._modelled = backend, repetitions, modelled or {}
        self._axis = axis_of(rule, settings.gamma, over)
        chosen = replace(settings, dial=rule.checked_dial(settings.dial))
        strict = replace(chosen, controller=NONE) if over else self._axis.apply(chosen, self._axis.reference)
        self._settings = {"target": chosen, "strict": strict, "chosen": chosen}
        self._prompts = [backend.prompt_ids(each.prompt, settings, each.history, chat=chat) for each in prompts]
        self._found: dict[str, list[list[Decode]]] = {name: [[] for _ in prompts] for name in WAYS}
        self._lengths: dict[tuple[str, Prefix], dict[Prefix, int]] = {}

    @property
    def progress(self) -> tuple[int, int]:
        """The number of decodes so far, without warm-up, and of all decodes."""
        done = sum(len(each) for way in self._found.values() for each in way)
        return done, len(WAYS) * len(self._prompts) * self._repetitions

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """Decode to the end."""
        for name in WAYS:
            self._decode(name, self._prompts[0])  # warm up
        for prompt in self._prompts[1:]:
            for name in WAYS:
                if self._cut(name):
                    self._drafted(name, prompt)
                    yield self.progress
        turn = 0
        for _ in range(self._repetitions):
            for place, prompt in enumerate(self._prompts):
                for name in WAYS[turn % len(WAYS) :] + WAYS[: turn % len(WAYS)]:
                    self._found[name][place].append(self._decode(name, prompt))
                    yield self.progress
                turn += 1

    def finish(self) -> TimingCheck:
        for _ in self:
            pass
        return self.check()

    def check(self) -> TimingCheck:
        """Return the result; call it after the last iteration."""
        settings, over, ways = self._settings["chosen"], self._axis.over, {}
        for name, decodes in self._found.items():  # of a prompt's repetitions texts and rounds are equal
            tokens, rounds = np.array([(len(each[0][0]), each[0][1]) for each in decodes]).T
            ways[name] = Way(name, tokens, rounds, np.array([[seconds for *_, seconds in each] for each in decodes]))
        pairs = zip(self._found["strict"], self._found["target"], strict=True)
        return TimingCheck(
            device=self._backend.device,
            rule=settings.rule,
            dial=self._axis.value_of(settings),
            gamma=settings.gamma,
            target=ways["target"],
            strict=ways["strict"],
            chosen=ways["chosen"],
            same_as_target=sum(ours[0][0] == alone[0][0] for ours, alone in pairs),
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            over=over,
            controller=NONE if over else settings.controller,
            at=settings.dial if over and settings.dial is not None else math.nan,
            **self._modelled,
        )

    def _decode(self, name: str, prompt: Prefix) -> Decode:
        settings = self._settings[name]
        if name == "target":
            from mars_viz.speculators.backend import decode_alone

            token_ids, seconds = decode_alone(self._backend, prompt, settings)
            return token_ids, len(token_ids), seconds
        backend, control = self._backend, settings.control
        rule = rule_named(settings.rule)
        speculator = backend.speculator(replace(settings, controller=NONE), rule.needs)
        speculator.prefill(prompt)
        source: Speculator = speculator
        if control is not None:
            source = _Stopping(speculator, self._drafted(name, prompt), control.controller, settings.gamma)
        began = time.perf_counter()
        rounds = list(walk(source, rule, settings.dial, prompt, backend.ending(settings)))
        seconds = time.perf_counter() - began
        return emitted(rounds), len(rounds), seconds

    def _cut(self, name: str) -> bool:
        return name != "target" and self._settings[name].control is not None

    def _drafted(self, name: str, prompt: Prefix) -> dict[Prefix, int]:
        """Return the number of tokens that the controller leaves after each prefix, from a decode with full drafts."""
        if (name, prompt) not in self._lengths:
            settings, backend = self._settings[name], self._backend
            speculator = backend.speculator(settings)
            speculator.prefill(prompt)
            rounds = walk(speculator, rule_named(settings.rule), settings.dial, prompt, backend.ending(settings))
            answers = answers_through(prompt, rounds)
            self._lengths[name, prompt] = {prefix: len(each.speculation) for prefix, each in answers.items()}
        return self._lengths[name, prompt]


def clock_options(result: SweepResult, dial: float, count: int, repetitions: int) -> dict[str, Any]:
    """Return the options of `WallClock` that time this setting of a sweep on at most `count` of its prompts, with what
    the sweep models for them. Raises BadInput if the folder has lost its prompts."""
    timed, by_name, plan = to_time(result, count), measures(result), result.plan
    rows, unknown = np.array([*timed]), Interval(math.nan, math.nan, math.nan, DEFAULT.confidence, DEFAULT.method)
    strict, target = (
        value_at(result, by_name[name], dial, DEFAULT, rows) if name in by_name else unknown
        for name in ("speed_up_strict", "speed_up")
    )
    modelled = {"modelled_over_strict": strict.estimate, "modelled_over_target": target.estimate}
    modelled |= {"modelled_low": target.low, "modelled_high": target.high}
    options = {"prompts": [*timed.values()], "repetitions": repetitions, "modelled": modelled}
    return options | {"settings": plan.at(dial), "chat": plan.chat, "over": plan.over}


def to_time(result: SweepResult, count: int) -> dict[int, EncodedPrompt]:
    """Return at most `count` prompts with results, evenly spaced from the first to the last, task by task, by their row
    in the result.

    At most one turn of a conversation is taken, a later one from question to question, because turns of one question
    are no independent measurements. A turn has the same history as in the sweep.
    """
    store = open_store(result.folder)
    items = store.prompts().items
    numbered = [(row, index, items[index]) for row, index in enumerate(result.prompts["prompt"].tolist())]
    tasks = list(dict.fromkeys(item.category for *_, item in numbered))
    questions = [list(turns) for _, turns in groupby(numbered, key=lambda each: each[2].unit)]
    questions.sort(key=lambda turns: tasks.index(turns[0][2].category))  # or every n-th might be of one task
    places = np.linspace(0, len(questions) - 1, min(count, len(questions))).round().astype(int).tolist()
    timed = {}
    for row, index, item in (questions[place][n % len(questions[place])] for n, place in enumerate(places)):
        history = item.opening
        if item.turn > 1:
            begins = index - item.turn + 1
            answered = zip(items[begins:index], store.told(begins, index), strict=True)
            history = History(item.system, tuple(Exchange(before.prompt, answer) for before, (answer, _) in answered))
        timed[row] = EncodedPrompt(item.prompt, history)
    return timed


@dataclass(frozen=True, slots=True)
class _Stopping:
    """A speculator whose drafter stops at a controller's cut."""

    speculator: DraftAndScore
    lengths: Mapping[Prefix, int]  # number of drafted tokens after each prefix
    controller: Controller  # determines the number of passes
    gamma: int  # maximum number of tokens

    def speculate(self, prefixes: Sequence[Prefix]) -> list[Answer]:
        counts, steps = [self.lengths[prefix] for prefix in prefixes], self.controller.steps
        passes = [steps(count, self.gamma) for count in counts]
        return list(map(self.speculator.drafted, prefixes, passes, counts))
