"""What the rules page remembers of one browser tab: the chosen rule, what all rules said of the run, their walks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import streamlit as st

from mars_viz.analysis.all_rules import AllRules
from mars_viz.components.session_cache import put_last
from mars_viz.multi_rule_walk import Prefix
from mars_viz.run import Run
from mars_viz.ui.jobs.walk_job import WalkJob
from mars_viz.ui.rule_lab.panels import panels
from mars_viz.ui.rule_lab.rule_view import RuleView, fitted, from_parameters
from mars_viz.ui.session import Session
from mars_viz.walk import Answer

_KEY = "mars_viz_rules"


MOST = 4
"""Runs of which a tab keeps what walks were answered: all of their laws."""


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
class RulesPageState:
    """The memory of one tab's rules page."""

    view: RuleView = field(default_factory=RuleView)
    """The chosen rule and its dial's value."""
    notices: list[str] = field(default_factory=list)
    """Sentences about the link, to show until another rule or run is chosen."""
    panel: AllRules | None = None
    """All rules before the run that was looked at last; asking them again for every move of a dial would take long."""
    walking: PendingWalks | None = None
    """The walks that this tab waits for."""
    known: dict[str, Known] = field(default_factory=dict)
    """What finished walks were answered, by the run's id."""

    def arrive(self, session: Session, parameters: Mapping[str, str]) -> None:
        """Open what the link asks for, when it is this page that opens the tab; see `Session.arrive`."""
        if not session.arrives_at_run(parameters):
            return
        opened = from_parameters(parameters)
        self.view = opened.view
        self.notices[:] = opened.complaints

    def fit(self, run: Run) -> None:
        """Set back what of the view this run does not have, and note it."""
        opened = fitted(self.view, run)
        self.view = opened.view
        self.notices.extend(opened.complaints)

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
    if _KEY not in st.session_state:
        st.session_state[_KEY] = RulesPageState()
    bench: RulesPageState = st.session_state[_KEY]
    return bench
