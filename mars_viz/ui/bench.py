"""What the rules page remembers of one browser tab: the chosen rule, and what all rules said of the run in view."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import streamlit as st

from mars_viz.analysis.panel import Panel
from mars_viz.run import Run
from mars_viz.ui.links import View
from mars_viz.ui.rule_view import RuleView, fitted, from_parameters
from mars_viz.ui.session import Session

_KEY = "mars_viz_rules"


@dataclass(slots=True)
class Bench:
    """The memory of one tab's rules page."""

    view: RuleView = field(default_factory=RuleView)
    """The chosen rule and its dial's value."""
    notices: list[str] = field(default_factory=list)
    """Sentences about the link, to show until another rule or run is chosen."""
    panel: Panel | None = None
    """All rules before the run that was looked at last; asking them again for every move of a dial would take long."""

    def arrive(self, session: Session, parameters: Mapping[str, str]) -> None:
        """Open what the link asks for, when it is this page that opens the tab; see `Session.arrive`."""
        if session.arrived:
            return
        session.arrived = True
        session.view = View(run=parameters.get("run", ""))
        opened = from_parameters(parameters)
        self.view = opened.view
        self.notices[:] = opened.complaints

    def fit(self, run: Run) -> None:
        """Set back what of the view this run does not have, and note it."""
        opened = fitted(self.view, run)
        self.view = opened.view
        self.notices.extend(opened.complaints)

    def choose(self, rule: str) -> None:
        """Look at another rule, where it stands by itself."""
        self.notices.clear()
        self.view = RuleView(rule)

    def turn(self, dial: float) -> None:
        """Move the chosen rule's dial."""
        self.notices.clear()
        self.view = RuleView(self.view.rule, dial)

    def panel_of(self, run: Run) -> Panel:
        """All rules before this run."""
        if self.panel is None or self.panel.run is not run:
            self.panel = Panel(run)
        return self.panel


def current_bench() -> Bench:
    """This tab's memory of the page."""
    if _KEY not in st.session_state:
        st.session_state[_KEY] = Bench()
    bench: Bench = st.session_state[_KEY]
    return bench
