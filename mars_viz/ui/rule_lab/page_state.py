"""What the rules page looks at, and remembers of one browser tab: the chosen rule, what all rules said of the run,
their walks. Tabs that look at the same run share what all rules say of it."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from weakref import WeakValueDictionary

import streamlit as st

from mars_viz.analysis.all_rules import AllRules
from mars_viz.analysis.judgements import own_dial
from mars_viz.components.session_cache import put_last
from mars_viz.errors import BadInput
from mars_viz.multi_rule_walk import Prefix
from mars_viz.rules import RULES, Rule, rule_named, rules_and
from mars_viz.run import Run
from mars_viz.ui import links
from mars_viz.ui.jobs.walk_job import WalkJob
from mars_viz.ui.links import Opened, View, clipped, misplaced
from mars_viz.ui.session import PageState, Session, remembered
from mars_viz.walk import Answer


class Panels:
    """Panels that some tab holds, by their run."""

    def __init__(self) -> None:
        """None yet."""
        self._alive: WeakValueDictionary[int, AllRules] = WeakValueDictionary()
        self._lock = threading.Lock()

    def of(self, run: Run) -> AllRules:
        """The run's, with no answers but its own. It holds the run, so nothing else has that run's id meanwhile."""
        with self._lock:
            found = self._alive.get(id(run))
        if found is not None:
            return found
        made = AllRules(run)  # not under the lock: of a long run it takes seconds
        with self._lock:
            return self._alive.setdefault(id(run), made)


@st.cache_resource(show_spinner=False)
def panels() -> Panels:
    """The server's."""
    return Panels()


FIRST = (
    "strict",
    "rejection-sampling",
    "mars",
    "lenience",
    "typical",
    "sglang-acc",
    "tensorrt-llm",
    "vllm-fly",
)
"""The rules to compare first: both ways to be lossless, MARS, and what papers and engines are known for."""
EVERY = "all"
"""What a link says to list every rule."""
MOST = 4
"""Runs of which a tab keeps what walks were answered: all of their laws."""


def _rule(name: str) -> str | None:
    if name.partition(":")[0] not in RULES:
        return None
    with suppress(BadInput):  # what it names is refused by `fitted`
        return rule_named(name).name  # however it is spelt
    return name


@dataclass(frozen=True, slots=True)
class RuleView:
    """What the rules page looks at, besides the run."""

    rule: str = links.said(
        "rule", _rule, str, "", "There is no rule {}; the run's own is shown. Choose another from the list."
    )
    """Name of the chosen rule; empty for the run's own."""
    dial: float | None = links.number("dial", "The link's dial {} is no number, so it stands at its default.")
    """Its dial's value; None for the run's own where the rule is the run's, else the rule's default."""
    every: bool = links.flag("rules", EVERY)
    """True to list every rule; False for those that are compared first."""

    def rule_on(self, run: Run) -> Rule:
        """The chosen rule."""
        return rule_named(self.rule or run.settings.rule)

    def dial_on(self, run: Run) -> float | None:
        """The value of its dial; None for a rule without one."""
        return own_dial(run, self.rule_on(run)) if self.dial is None else self.dial

    def listed(self, rules: Iterable[str], run: Run) -> tuple[str, ...]:
        """Which of the rules the page lists: every one, or those compared first, the run's own and the chosen one."""
        first = {*FIRST, run.settings.rule, self.rule_on(run).name}
        return tuple(name for name in rules if self.every or name in first)


def from_parameters(parameters: Mapping[str, str]) -> Opened[RuleView]:
    """The view that a link asks for; parts that cannot be read take their default, with a complaint."""
    if parameters.get("rule") and _rule(parameters["rule"]) is None:  # whose dial is another's
        parameters = {name: text for name, text in parameters.items() if name != "dial"}
    return links.from_parameters(RuleView, parameters)


def fitted(view: RuleView, run: Run) -> Opened[RuleView]:
    """The view with a dial value that its rule does not have set back to the default, and a complaint about it."""
    if view.rule and view.rule not in rules_and(rule_named(run.settings.rule)):
        said = f"The link's rule “{clipped(view.rule)}” is not in the list, and the run was made with another; "
        return Opened(RuleView(every=view.every), (said + "the run's own is shown. Choose another from the list.",))
    rule = view.rule_on(run)
    wrong = misplaced(rule, view.dial, f"the rule {rule.title}", "the dial stands at its default")
    return Opened(replace(view, dial=None), (wrong,)) if wrong else Opened(view)


@dataclass(frozen=True, slots=True)
class PendingWalks:
    """Walks that this tab waits for."""

    run_id: str
    """From whose prompt."""
    job: WalkJob
    """Their job."""


@dataclass(frozen=True, slots=True)
class Known:
    """What walks from a run's prompt were answered."""

    run: Run
    """The run they were walked for."""
    answers: Mapping[Prefix, Answer]
    """By prefix."""

    def fits(self, run: Run) -> bool:
        """True if the same models, prompt and settings would give this run the same answers."""
        return _asked(self.run) == _asked(run)


@dataclass(slots=True)
class RulesPageState(PageState):
    """The memory of one tab's rules page."""

    view: RuleView = field(default_factory=RuleView)
    """The chosen rule and its dial's value."""
    panel: AllRules | None = None
    """All rules before the run that was looked at last; asking them again for every move of a dial would take long."""
    walking: PendingWalks | None = None
    """The walks that this tab waits for."""
    known: dict[str, Known] = field(default_factory=dict)
    """What finished walks were answered, by the run's id."""

    def arrive(self, session: Session, parameters: Mapping[str, str]) -> None:
        """Open what the link asks for, when it is this page that opens the tab; see `Session.arrive`."""
        if session.arrives_at_run(parameters):
            self.open_link(from_parameters(parameters))

    def fit(self, run: Run) -> None:
        """Set back what of the view this run does not have, and note it."""
        self.settle_on(fitted(self.view, run))

    def begin_at(self, shown: View | None, run: Run) -> None:
        """Where nobody has chosen a rule or moved a dial, the run's own dial stands where that of the class does, if it
        is `shown` this run."""
        if shown is not None and not shown.cuts and self.view == RuleView(every=self.view.every):
            self.settle_on(fitted(replace(self.view, dial=shown.dial), run))

    def choose(self, rule: str) -> None:
        """Look at another rule, at the run's own dial or its default."""
        self.notices.clear()
        self.view = replace(self.view, rule=rule, dial=None)

    def turn(self, dial: float) -> None:
        """Move the chosen rule's dial."""
        self.notices.clear()
        self.view = replace(self.view, dial=dial)

    def list_every(self, every: bool) -> None:
        """List every rule, or those that are compared first."""
        self.view = replace(self.view, every=every)

    def panel_of(self, run_id: str, run: Run) -> AllRules:
        """All rules before this run."""
        if self.panel is None or self.panel.run is not run:
            known = self.known.get(run_id)
            told = known is not None and known.fits(run)
            self.panel = AllRules(run, known.answers) if known is not None and told else panels().of(run)
        return self.panel

    def learn(self, run_id: str, run: Run, answers: Mapping[Prefix, Answer]) -> None:
        """Keep what walks from the run's prompt were answered, beside what earlier ones were."""
        before = self.known.get(run_id)
        old = before.answers if before is not None and before.fits(run) else {}
        put_last(self.known, run_id, Known(run, {**answers, **old}), MOST)
        self.panel = None


def _asked(run: Run) -> object:
    """All that decides what a speculator answers at a prefix of the run."""
    made_with = run.provenance
    weights = made_with.target_revision, made_with.drafter_revision
    return weights, run.prompt_ids, replace(run.settings, rule="", dial=None)


def current_bench() -> RulesPageState:
    """This tab's memory of the page."""
    return remembered("mars_viz_rules", RulesPageState)
