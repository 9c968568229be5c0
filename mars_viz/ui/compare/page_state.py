"""State of the Compare page in one tab: the reference, the other text, and cached data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from mars_viz.analysis.alignment import Alignment, align_runs
from mars_viz.components.compare import (
    Ask,
    Asked,
    Payload,
    lane_payload,
    pair_payload,
    run_pane,
    whole_payload,
)
from mars_viz.errors import BadInput, RunFileError, contained
from mars_viz.run import Run
from mars_viz.ui import links, tab_jobs
from mars_viz.ui.compare import compare_view, compare_words
from mars_viz.ui.compare.compare_view import Across, Candidate, Choice, Colour, CompareView, is_token
from mars_viz.ui.library import RunCatalogue
from mars_viz.ui.links import View
from mars_viz.ui.session import PageState, Session

MOST_LANES = 24  # maximum number of texts in the strip


@dataclass(slots=True)
class Comparison(PageState):
    """State of one tab's Compare page."""

    view: CompareView = field(default_factory=CompareView)
    run: str = ""  # id of the run that the view belongs to; empty at first
    turned: bool = False
    """True after a change of `across`: the reference stays, and so does the other text if it is still a choice."""
    known: dict[Choice, Candidate] = field(default_factory=dict)
    """Shown texts by their simplest choice; each holds its run."""
    alignments: dict[tuple[Choice, Choice], Alignment] = field(default_factory=dict)
    payloads: dict[Choice, Payload] = field(default_factory=dict)

    def arrive(self, session: Session, parameters: Mapping[str, str]) -> None:
        """Open the link if this page is the first of the tab; see `Session.arrive`."""
        if session.arrives_at_run(parameters):
            self.open_link(links.from_parameters(CompareView, parameters))

    def follow(self, run_id: str) -> None:
        """Reset the view if the tab has opened another run on any page."""
        if self.run and self.run != run_id:
            self.look(reference=None, shown=None, gamma=None)
        self.run = run_id

    def begin_at(self, shown: View | None, run: Run) -> None:
        """Compare the setting that a class is shown with the reference, if the user has chosen nothing and it is
        available."""
        chosen = (self.view.reference, self.view.shown) != (None, None) or self.view.across is not Across.SETTINGS
        if shown is None or shown.cuts or shown.dial is None or chosen or run.dial_map is None:
            return
        self.view = replace(self.view, shown=Choice(shown.run, shown.dial, shown.gamma))

    def look(self, **changes: object) -> None:
        """Change the view, and deselect the token."""
        self.notices.clear()
        self.view = replace(self.view, **{"token": "", **changes})  # type: ignore[arg-type]

    def contender(self, choice: Choice, catalog: RunCatalogue) -> Candidate:
        """Return the exact run of a choice. Raises BadInput as `compare_view.contender` does."""
        with contained(f"The run {choice.run}"):
            source = compare_view.source_of(choice, catalog)
            plain = compare_view.simplest(choice, source)
            candidate = self.known.get(plain)
            if candidate is None or candidate.source is not source:
                self.forget(plain)
                candidate = self.known[plain] = compare_view.contender(plain, catalog)
            return candidate

    def forget(self, choice: Choice) -> None:
        """Drop the cached data of a choice, because its run has changed."""
        if self.known.pop(choice, None) is not None:
            self._keep(set(self.known))

    def keep(self, shown: Lineup) -> None:
        """Drop cached data of texts that are no longer shown, which may be large."""
        choices = {one.choice for one in (shown.left, shown.right, *shown.lanes)}
        self.known = {choice: one for choice, one in self.known.items() if choice in choices}
        self._keep(choices)

    def _keep(self, choices: set[Choice]) -> None:
        self.payloads = {choice: data for choice, data in self.payloads.items() if choice in choices}
        self.alignments = {pair: alignment for pair, alignment in self.alignments.items() if choices.issuperset(pair)}

    def alignment(self, left: Candidate, right: Candidate) -> Alignment:
        """Return the alignment of two texts."""
        pair = left.choice, right.choice
        if pair not in self.alignments:
            self.alignments[pair] = align_runs(left.run, right.run)
        return self.alignments[pair]

    def payload(self, one: Candidate) -> Payload:
        """Return a text's data for the browser."""
        if one.choice not in self.payloads:
            self.payloads[one.choice] = run_pane(one.run)
        return self.payloads[one.choice]

    def pinned(self, reference: Choice, shown: Choice) -> CompareView:
        """Return the view with both texts named, so that a link does not depend on defaults. A single text is named
        once."""
        return replace(self.view, reference=reference, shown=None if shown == reference else shown)

    def answer(self, action: Asked, reference: Choice, shown: Choice) -> None:
        """Apply the user's action in the component; invalid values are ignored."""
        if action.what is Ask.COLOUR:
            if action.value in {each.value for each in Colour}:
                self.look(colour=Colour(action.value), token=self.view.token)
            return
        if action.what is Ask.TOKEN:
            if is_token(action.value):
                self.view = replace(self.view, token=action.value)
            return
        choice = Choice.read(action.value)
        if choice is None:
            return
        if action.what is Ask.PIN:
            self.look(reference=choice, shown=reference if choice == shown else shown)
        else:
            self.look(reference=reference, shown=choice)


@dataclass(frozen=True, slots=True)
class Lineup:
    """Texts shown on the page."""

    left: Candidate
    right: Candidate
    order: tuple[Choice, ...]  # all choices to browse, without the reference
    lanes: tuple[Candidate, ...]  # texts in the strip, the reference first
    unread: tuple[str, ...]  # why some texts are missing from the strip, a sentence each


def line_up(memory: Comparison, run_id: str, run: Run, catalog: RunCatalogue) -> Lineup:
    """Choose the texts to show. Raises BadInput if the reference or all other texts cannot be read."""
    view = memory.view
    choices = compare_view.field(view.across, run_id, run, view.gamma, catalog)
    if memory.turned and view.shown not in choices:
        view = memory.view = replace(view, shown=None)
    memory.turned = False
    if view.across is Across.SETTINGS:
        reference, default_shown = compare_view.first_pair(run_id, run)
    else:
        reference = Choice(run_id)
        default_shown = next((choice for choice in choices if choice != reference), reference)
    left = _requested(memory, view.reference, catalog, "reference") or memory.contender(reference, catalog)
    unread: list[str] = []
    right = _requested(memory, view.shown, catalog, "text")
    others = [choice for choice in dict.fromkeys((default_shown, reference, *choices)) if choice != left.choice]
    if others and right is not None and right.choice == left.choice:
        memory.notices.append("The text of the link is the reference itself; another one is shown next to it.")
    if right is None or right.choice == left.choice:
        right = _readable(memory, others, catalog, unread) if others else left
    order = _browsable(memory, left, right, choices, view.across)
    at = order.index(right.choice) if right.choice in order else 0
    lanes = [left]
    for place in compare_view.window(order, at, MOST_LANES):
        try:
            one = memory.contender(order[place], catalog)
            with contained(f"The run {one.choice.run}"):
                memory.alignment(left, one)
            lanes.append(one)
        except BadInput as error:
            unread.append(str(error))
    lineup = Lineup(left, right, order, tuple(lanes), tuple(dict.fromkeys(unread)))
    memory.keep(lineup)
    return lineup


def _requested(memory: Comparison, choice: Choice | None, catalog: RunCatalogue, noun: str) -> Candidate | None:
    """Return the requested text; None if there is no request, or with a notice if it cannot be read."""
    if choice is not None:
        try:
            return memory.contender(choice, catalog)
        except BadInput as error:
            memory.notices.append(f"The {noun} of the link cannot be shown: {error} Another one is shown instead.")
    return None


def _readable(memory: Comparison, choices: Sequence[Choice], catalog: RunCatalogue, unread: list[str]) -> Candidate:
    """Return the first readable text, and add the errors of those before to `unread`. Raises BadInput with all errors
    if there is none."""
    for choice in choices:
        try:
            return memory.contender(choice, catalog)
        except BadInput as error:
            unread.append(str(error))
    raise RunFileError(" ".join(dict.fromkeys(unread)))


def _browsable(
    memory: Comparison, left: Candidate, right: Candidate, choices: Sequence[Choice], across: Across
) -> tuple[Choice, ...]:
    """Return the choices to browse: without the reference, and with the requested setting in place of an equal text."""
    order = list(choices)
    for one in (left, right):
        if across is not Across.SETTINGS or one.choice in order or one.source.dial_map is None:
            continue
        dial_map, gamma = one.source.dial_map, one.run.settings.gamma
        for place, choice in enumerate(order):
            choice_gamma = choice.gamma or one.source.settings.gamma
            if choice.run != one.choice.run or choice_gamma != gamma or one.dial is None:
                continue
            dial = compare_view.dial_of(choice, one.source)
            if dial is not None and dial_map.segment(dial, gamma) is dial_map.segment(one.dial, gamma):
                order[place] = one.choice
    if right.choice not in order:
        order.insert(0, right.choice)
    return tuple(choice for choice in order if choice != left.choice)


def payload(memory: Comparison, shown: Lineup) -> Payload:
    """Return all data for the browser."""
    left, right = shown.left, shown.right
    names, lane_names = compare_words.named(left, right), compare_words.lane_names(left, right, shown.lanes)
    panes = (
        (left.choice.key, names.left, compare_words.detail(left, ruled=names.ruled), left.run),
        (right.choice.key, names.right, compare_words.detail(right, ruled=names.ruled), right.run),
    )
    pair = pair_payload(*panes, memory.alignment(left, right), (memory.payload(left), memory.payload(right)))
    lanes = [
        lane_payload(one.choice.key, name, one.run, memory.alignment(left, one).right, one.right)
        for one, name in zip(shown.lanes, lane_names, strict=True)
    ]
    order = [choice.key for choice in shown.order]
    return whole_payload(
        pair, lanes, order, left.choice.key, right.choice.key, memory.view.colour.value, memory.view.token
    )


def settle_decode(session: Session, memory: Comparison) -> None:
    """When this tab's decode has ended, compare its text with the reference. The opened run stays the same."""
    previous_view, waiting = session.view, session.job
    tab_jobs.settle(session)
    memory.notices.extend(session.notices)
    session.notices.clear()
    if waiting is not None and session.job is None and session.view.run != previous_view.run:
        memory.look(shown=Choice(session.view.run))
        session.view = previous_view
