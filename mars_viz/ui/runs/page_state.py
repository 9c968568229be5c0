"""What the Runs page remembers of one browser tab, and how its link says it: what is looked for, and which run's
details are shown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from mars_viz.runlist import ListedRun, Order, Query, RunOrigin
from mars_viz.ui import links
from mars_viz.ui.live.page_state import current_desk
from mars_viz.ui.session import PageState, Session, remembered


class Whose(Enum):
    """Which runs are listed."""

    ALL = "all"
    """All there are."""
    SAMPLES = "sample"
    """Those that come with the product."""
    SAVED = "saved"
    """Those that were decoded here by anybody, or put into the folder."""
    MINE = "mine"
    """Those that this browser made, and those that are open in this tab."""


ORIGINS = {Whose.SAMPLES: RunOrigin.SAMPLE, Whose.SAVED: RunOrigin.SAVED}


def _tags(text: str) -> tuple[str, ...] | None:
    return tuple(filter(None, (tag.strip() for tag in text.split(",")))) or None


@dataclass(frozen=True, slots=True)
class RunsView:
    """What the page shows."""

    run: str = links.text("run")
    """Id of the run whose details are shown; empty for the list."""
    words: str = links.text("search")
    """Words that are looked for."""
    rule: str = links.text("rule")
    """Name of a rule; empty for any, as all that follow."""
    drafter: str = links.text("drafter")
    """Name of a drafter."""
    tree: str = links.text("tree")
    """'chains', 'trees' or a shape."""
    temperature: float | None = links.number("temperature", "The link's temperature {} is no number; any is listed.")
    """The very value."""
    tags: tuple[str, ...] = links.said("tag", _tags, ",".join, ())
    """All of these."""
    whose: Whose = links.chosen("from", Whose.ALL, "There are no runs from {}; all are listed.")
    """Where they come from."""
    order: Order = links.chosen("sort", Order.NEWEST, "There is no order {}; the newest come first.")
    """How they are sorted."""

    @property
    def query(self) -> Query:
        """What is looked for; what this browser made is not among it."""
        return Query(
            words=self.words,
            rule=self.rule,
            drafter=self.drafter,
            tree=self.tree,
            temperature=self.temperature,
            tags=self.tags,
            origin=ORIGINS.get(self.whose),
        )

    @property
    def filters(self) -> int:
        """How many are set, the words not counted."""
        chosen = (self.rule, self.drafter, self.tree, self.tags, self.whose is not Whose.ALL)
        return sum(map(bool, chosen)) + (self.temperature is not None)


@dataclass(slots=True)
class RunsPageState(PageState):
    """The memory of one tab's Runs page."""

    view: RunsView = field(default_factory=RunsView)
    """What it shows."""
    listed: list[ListedRun] | None = None
    """The runs of the folders as they were read last."""
    deleted: set[str] = field(default_factory=set)
    """What was deleted here, by `Item.key`: it can be brought back above the list."""
    refused: dict[str, str] = field(default_factory=dict)
    """By `Item.key`, why what was last asked of a run cannot be."""

    def arrive(self, session: Session, parameters: Mapping[str, str]) -> None:
        """Open what the link asks for, when it is this page that opens the tab; see `Session.arrive`."""
        if session.arrives():
            self.open_link(links.from_parameters(RunsView, parameters))

    def look(self, **changes: object) -> None:
        """Show something else."""
        self.notices.clear()
        self.refused.clear()
        self.view = replace(self.view, **changes)  # type: ignore[arg-type]

    def forget(self, name: str) -> None:
        """A run is deleted: its details are not shown any more, nor does Live show it."""
        current_desk().forget(name)
        if name == self.view.run:
            self.view = replace(self.view, run="")


def current_runs() -> RunsPageState:
    """This tab's memory of the page."""
    return remembered("mars_viz_runs", RunsPageState)
