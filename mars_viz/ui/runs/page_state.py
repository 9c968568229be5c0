"""State of the Runs page in one tab, and its link: the search, and the run whose details are shown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from mars_viz.runlist import ListedRun, Order, Query, RunOrigin
from mars_viz.ui import links
from mars_viz.ui.live.page_state import current_desk
from mars_viz.ui.session import PageState, Session


class Whose(Enum):
    """Filter by origin."""

    ALL = "all"
    SAMPLES = "sample"
    SAVED = "saved"  # decoded on this server, or copied into the folder
    MINE = "mine"  # made by this browser, or open in this tab


ORIGINS = {Whose.SAMPLES: RunOrigin.SAMPLE, Whose.SAVED: RunOrigin.SAVED}


def _tags(text: str) -> tuple[str, ...] | None:
    return tuple(filter(None, (tag.strip() for tag in text.split(",")))) or None


@dataclass(frozen=True, slots=True)
class RunsView:
    """Search and details shown on the page."""

    run: str = links.text("run")  # id of the run whose details are shown; empty for the list
    words: str = links.text("search")
    rule: str = links.text("rule")  # name of a rule; empty for any, as in the next fields
    drafter: str = links.text("drafter")
    tree: str = links.text("tree")  # 'chains', 'trees' or a shape
    temperature: float | None = links.number("temperature", "The link's temperature {} is no number; any is listed.")
    """Exact value."""
    tags: tuple[str, ...] = links.said("tag", _tags, ",".join, ())  # runs must have all of these
    whose: Whose = links.chosen("from", Whose.ALL, "There are no runs from {}; all are listed.")
    order: Order = links.chosen("sort", Order.NEWEST, "There is no order {}; the newest come first.")

    @property
    def query(self) -> Query:
        """The search, except for `Whose.MINE`."""
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
        """Number of filters set, without the words."""
        chosen = (self.rule, self.drafter, self.tree, self.tags, self.whose is not Whose.ALL)
        return sum(map(bool, chosen)) + (self.temperature is not None)


@dataclass(slots=True)
class RunsPageState(PageState):
    """State of one tab's Runs page."""

    view: RunsView = field(default_factory=RunsView)
    listed: list[ListedRun] | None = None  # runs at the last reading of the folders
    deleted: set[str] = field(default_factory=set)
    """Runs deleted in this tab, by `Item.key`; can be restored above the list."""
    refused: dict[str, str] = field(default_factory=dict)  # why the last change of an item was refused, by `Item.key`

    def arrive(self, session: Session, parameters: Mapping[str, str]) -> None:
        """Open the link if this page is the first of the tab; see `Session.arrive`."""
        if session.arrives():
            self.open_link(links.from_parameters(RunsView, parameters))

    def look(self, **changes: object) -> None:
        """Change the view, and clear notices."""
        self.notices.clear()
        self.refused.clear()
        self.view = replace(self.view, **changes)  # type: ignore[arg-type]

    def forget(self, name: str) -> None:
        """Stop showing a deleted run, here and on Live."""
        current_desk().forget(name)
        if name == self.view.run:
            self.view = replace(self.view, run="")
