"""The plan of a sweep: everything that determines its results, as a record that is stored with them."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, replace
from typing import Any

from mars_viz.axis import Axis, Span, axis_of
from mars_viz.bounds import headed, parsed
from mars_viz.chat import check_template
from mars_viz.controllers import CONTROLLERS, Controller
from mars_viz.costs import Costs, costs_from
from mars_viz.errors import RunFileError, SettingError
from mars_viz.prompts import PromptSet, Turns
from mars_viz.prompts.harness import names_score
from mars_viz.rules import Rule, rule_named
from mars_viz.run import Provenance, Settings, stop_words
from mars_viz.words import exact_setting, exactly, number

FORMAT = "mars-viz-sweep"
SCHEMA = 9  # raised when older sweeps can no longer be read; they are swept again

CHECKED_FIRST, CHECKED_EVERY = 8, 32
"""Prompts whose texts are compared with a plain pass of the target: the first ones, then every n-th."""
SCORES = 100  # maximum number of scores, far above any task's


@dataclass(frozen=True, slots=True)
class Plan:
    """The swept dial, a prompt set and two models."""

    settings: Settings
    """Rule, γ, sampling, seed and length limit. Its `dial` is the strict end; for a controller's threshold it is the
    rule's fixed dial."""
    low: float
    high: float
    chat: bool  # True if prompts went through the model's chat template
    prompt_set: str  # display name of the prompt set
    prompt_set_sha256: str  # hash of every prompt, answer and grader in it, in order
    prompts: int  # number of prompts
    graded: int  # number of graded prompts
    skipped: int  # number of omitted lines of its file
    provenance: Provenance  # models, revisions, dtype, device, versions, and the start of the sweep
    later_turns: int = 0  # number of omitted later turns of conversations
    turns: Turns = Turns.FIRST
    """ALL if later turns are decoded after the target's own answers, which are the same at every setting."""
    over: str = ""  # name of the controller whose threshold is swept; empty for the rule's dial
    scores: tuple[str, ...] = ()  # names of additional scores of every text; only for tasks of lm-evaluation-harness
    checked: bool = False
    """True if the target's own texts of sampled prompts are compared with a plain pass: at temperature 0."""

    def checks(self, index: int) -> bool:
        """Return True if the text of the prompt with this index is compared with a plain pass of the target."""
        return self.checked and (index < CHECKED_FIRST or index % CHECKED_EVERY == 0)

    @property
    def rule(self) -> Rule:
        return rule_named(self.settings.rule)

    @property
    def axis(self) -> Axis:
        return axis_of(self.rule, self.settings.gamma, self.over)

    @property
    def cut_by(self) -> Controller | None:
        """The controller that cuts drafts, at a swept or fixed threshold; None if all rounds draft alike."""
        control = self.settings.control
        return CONTROLLERS.get(self.over) if control is None else control.controller

    def length_at(self, value: float) -> int | None:
        """Return the number of tokens that every round drafts at a value of the axis; None if rounds differ in it, and
        for trees."""
        if self.settings.drafts_trees:
            return None
        if self.cut_by is None:
            return self.settings.gamma
        return int(value) if self.over and self.cut_by.counts else None

    @property
    def span(self) -> Span:
        return Span(self.low, self.high, (self.settings.gamma,), self.over)

    @property
    def strict(self) -> float:
        """The axis's reference: the dial's strict end, or the controller's end of full drafts. Always in the span."""
        return self.axis.reference

    @property
    def loosest(self) -> float:
        """The end of the span furthest from `strict`."""
        return self.axis.end(self.span, away=True)

    def at(self, value: float) -> Settings:
        return self.axis.apply(self.settings, value)

    @property
    def symbol(self) -> str:
        return self.axis.symbol

    @property
    def title(self) -> str:
        """The swept axis in words: 'MARS', or 'SVIP with MARS at θ = 0.9'."""
        return f"{self.axis.title} with {self.judged}" if self.over else self.rule.title

    @property
    def judged(self) -> str:
        """The judging rule and its dial value in words, for sweeps of a controller's threshold."""
        dial, at, title = self.rule.dial, self.settings.dial, self.rule.title
        return title if dial is None or at is None else f"{title} at {exact_setting(dial.symbol, at)}"

    @property
    def against(self) -> str:
        """The reference in words."""
        return self.axis.against


def plan_of(settings: Settings, span: Span, chat: bool | None, prompts: PromptSet, provenance: Provenance) -> Plan:
    """Return the plan of a sweep; `chat` None is as in the provenance. Raises BadInput if the span lacks the strict
    end, and for a system prompt without a chat template."""
    chat = bool(provenance.chat if chat is None else chat)
    check_template(prompts.system, chat, provenance.target)
    check_span(settings, span)
    rule = rule_named(settings.rule)
    fixed = rule.checked_dial(settings.dial) if span.over else axis_of(rule, settings.gamma).reference
    return Plan(
        settings=replace(settings, dial=fixed),
        low=span.low,
        high=span.high,
        chat=chat,
        prompt_set=prompts.name,
        prompt_set_sha256=set_hash(prompts),
        prompts=len(prompts),
        graded=prompts.graded,
        skipped=len(prompts.skipped),
        provenance=replace(provenance, chat=chat),
        later_turns=prompts.later_turns,
        turns=prompts.turns,
        over=span.over,
        scores=prompts.scores,
        checked=settings.temperature == 0,
    )


def check_span(settings: Settings, span: Span) -> None:
    """Raise SettingError unless this span can be swept with these settings."""
    axis = axis_of(rule_named(settings.rule), settings.gamma, span.over)
    if settings.refused_draft:
        raise SettingError(settings.refused_draft)
    if span.over and settings.control is not None:
        raise SettingError("A controller's threshold is swept over drafts that no controller cuts; leave it out.")
    if span.over and settings.drafts_trees:
        raise SettingError(f"{axis.title} cuts chains; sweep drafts that are chains (--tree chain).")
    if not axis.dial.low <= span.low <= axis.reference <= span.high <= axis.dial.high:
        compared = "setting with the strict one; let the range reach the strict end,"
        if span.over:
            compared = "threshold with drafts of full length; let the range reach"
        raise SettingError(f"A sweep compares every {compared} {axis.symbol} = {axis.reference:g}.")
    if span.gammas != (settings.gamma,):
        raise SettingError(f"A sweep looks at one size of drafts, {settings.draft}; give the range that one alone.")


def with_prompts(plan: Plan, prompts: PromptSet) -> Plan:
    """Return the plan with these prompts if they start with all of its own, otherwise unchanged."""
    if len(prompts) <= plan.prompts or set_hash(prompts.first(plan.prompts)) != plan.prompt_set_sha256:
        return plan
    return replace(
        plan,
        prompt_set_sha256=set_hash(prompts),
        prompts=len(prompts),
        graded=prompts.graded,
        later_turns=prompts.later_turns,
    )


def set_hash(prompts: PromptSet) -> str:
    """Return the SHA-256 of the set's contents in hexadecimal; its name and omissions do not count."""
    digest = hashlib.sha256()
    for item in prompts.items:
        other = {"later_turns"} if item.question else {"later_turns", "question", "turn"}
        if not item.system:
            other.add("system")
        contents = {name: value for name, value in asdict(item).items() if name not in other}
        digest.update(json.dumps(contents, sort_keys=True).encode() + b"\n")
    return digest.hexdigest()


def turns_words(of: Plan | PromptSet) -> str:
    """Return a sentence about conversations; empty if every prompt is one turn."""
    if of.turns is Turns.ALL:
        plain = isinstance(of, Plan) and not of.chat
        return f"{ALL_TURNS} {AS_TEXT}" if plain else ALL_TURNS
    if not of.later_turns:
        return ""
    what = "later turn is" if of.later_turns == 1 else "later turns are"
    return f"Of conversations the first turn alone is decoded; {number(of.later_turns)} {what} left out."


def set_notes(prompts: PromptSet, listed: int | None = None) -> list[str]:
    """Return sentences about parts of a file that are not decoded as written. These are bad lines (at most `listed`;
    None: all), system messages and conversations."""
    notes = [*map(str, prompts.skipped[:listed])]
    if len(notes) < len(prompts.skipped):
        notes.append(f"{len(prompts.skipped) - len(notes)} more lines are left out.")
    if any(item.system for item in prompts.items) and not prompts.system:
        notes.append("System messages go through the chat template or, without it, stand first as plain text.")
    return [*notes, *filter(None, [turns_words(prompts)])]


ALL_TURNS = (
    "Every turn of a conversation is decoded; later turns follow the target's own answers, the same at every setting."
)
"""Note for sweeps of later turns."""
AS_TEXT = "Without a chat template they stand one after the other as plain text, a blank line between any two."
"""How turns and answers are then joined."""


def differences(one: Plan, other: Plan) -> list[str]:
    """Return the reasons why results of the second plan cannot join those of the first: 'γ was 6 and is 4'."""
    before, now = _identity(one), _identity(other)
    return [f"{name} was {value} and is {now[name]}" for name, value in before.items() if now[name] != value]


_OF_THE_RULE = ("rule", "dial", "gamma", "tree", "controller", "threshold swept", "low end", "high end")


def comparable(one: Plan, other: Plan) -> bool:
    """Return True if only rule, dial and drafts may differ: same prompts, models, sampling, length, device."""
    before, now = _identity(one), _identity(other)
    return all(now[name] == value for name, value in before.items() if name not in _OF_THE_RULE)


_OF_THE_DRAFTS = (*_OF_THE_RULE, "drafter", "drafter's revision")
_OF_THE_SET = ("turns", "number of prompts", "contents of the prompt set")
_DRAWING = ("seed", "top k", "top p")


def same_answers(one: Plan, other: Plan) -> bool:
    """Return True if both plans give the same target's own texts, which later turns follow."""
    free = (*_OF_THE_DRAFTS, *_OF_THE_SET, *(_DRAWING if one.settings.temperature == 0 else ()))
    before, now = ({name: fact for name, fact in _identity(plan).items() if name not in free} for plan in (one, other))
    return before == now


def _identity(plan: Plan) -> dict[str, Any]:
    provenance = plan.provenance
    settings = {name.replace("_", " "): getattr(plan.settings, name) for name in Settings.__slots__}
    settings["stop"] = stop_words(plan.settings.stop) or "nothing"
    models = {name: getattr(provenance, name) for name in ("target", "drafter", "dtype")}
    revisions = {"target's revision": provenance.target_revision, "drafter's revision": provenance.drafter_revision}
    device = {"device": provenance.device.partition(",")[0]}  # how many threads it may use does not count
    versions = {f"version of {name}": version for name, version in sorted(provenance.versions.items())}
    span = {"threshold swept": plan.over or "none", "low end": plan.low, "high end": plan.high}
    span |= {"chat template": plan.chat}
    prompts = dict(zip(_OF_THE_SET, (plan.turns, plan.prompts, plan.prompt_set_sha256[:12]), strict=True))
    facts = {**settings, **span, **prompts, **models, **revisions, **device, **versions}
    return {name: exactly(value) if isinstance(value, float) else str(value) for name, value in facts.items()}


def to_json(plan: Plan, costs: Costs | None) -> bytes:
    """Return the contents of sweep.json."""
    facts = asdict(plan)
    contents = {"format": FORMAT, "schema": SCHEMA, "plan": facts, "costs": None if costs is None else asdict(costs)}
    return (json.dumps(contents, ensure_ascii=False, allow_nan=False, indent=1) + "\n").encode()


def from_json(data: bytes) -> tuple[Plan, Costs | None]:
    """Return the plan and the measured costs. Raises BadInput for other data and other schemas."""
    contents, _ = headed(data, "sweep.json", "sweep", SCHEMA)
    if contents.keys() != {"plan", "costs"}:
        raise RunFileError("sweep.json does not hold exactly costs, plan. Choose a folder written by MARS Viz.")
    try:
        plan = parsed(Plan, contents["plan"], "sweep.json")
        if not plan.prompts or not len(set(filter(names_score, plan.scores))) == len(plan.scores) <= SCORES:
            raise ValueError("no prompt, or impossible scores")
        check_span(plan.settings, plan.span)
        plan.rule.checked_dial(plan.settings.dial)
        return plan, None if contents["costs"] is None else costs_from(contents["costs"])
    except (SettingError, ValueError, OverflowError, KeyError, TypeError, RecursionError) as error:
        raise RunFileError("sweep.json is damaged. Take a fresh copy, or sweep again into a new folder.") from error
