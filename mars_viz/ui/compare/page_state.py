"""What the compare page remembers of one browser tab: the pinned text, the one beside it, and what it looked up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from mars_viz.analysis.alignment import Alignment, align_runs
from mars_viz.components.compare import Ask, Asked
from mars_viz.components.compare.payload import (
    Pane,
    Payload,
    StripLane,
    lane_payload,
    pair_payload,
    run_pane,
    whole_payload,
)
from mars_viz.errors import BadInput, RunFileError, contained
from mars_viz.run import Run
from mars_viz.ui import links, tab_jobs
from mars_viz.ui.compare import candidates, compare_words
from mars_viz.ui.compare.candidates import Candidate
from mars_viz.ui.compare.compare_view import Across, Choice, Colour, CompareView, is_token
from mars_viz.ui.library import RunCatalogue
from mars_viz.ui.links import View
from mars_viz.ui.session import PageState, Session, remembered

MOST_LANES = 24
"""Texts of the strip at once; more are leafed through in parts."""


@dataclass(slots=True)
class Comparison(PageState):
    """The memory of one tab's compare page."""

    view: CompareView = field(default_factory=CompareView)
    """What is compared."""
    run: str = ""
    """Id of the run that the view was chosen for; empty before the first."""
    turned: bool = False
    """True where another tab was chosen: the reference stays, and the text beside it where the new tab has it too."""
    known: dict[Choice, Candidate] = field(default_factory=dict)
    """Those that are shown, by their choice in its simplest form; each holds its run."""
    alignments: dict[tuple[Choice, Choice], Alignment] = field(default_factory=dict)
    """Of pairs of them."""
    payloads: dict[Choice, Payload] = field(default_factory=dict)
    """Of those that were side by side."""

    def arrive(self, session: Session, parameters: Mapping[str, str]) -> None:
        """Open what the link asks for, when it is this page that opens the tab; see `Session.arrive`."""
        if session.arrives_at_run(parameters):
            self.open_link(links.from_parameters(CompareView, parameters))

    def follow(self, run_id: str) -> None:
        """Start anew where the tab looks at another run by now, on whichever page it chose that."""
        if self.run and self.run != run_id:
            self.look(reference=None, shown=None, gamma=None)
        self.run = run_id

    def begin_at(self, shown: View | None, run: Run) -> None:
        """Where nobody has chosen a text, the setting of the run at which the class is `shown` it stands beside the
        reference, if that can be had."""
        chosen = (self.view.reference, self.view.shown) != (None, None) or self.view.across is not Across.SETTINGS
        if shown is None or shown.cuts or shown.dial is None or chosen or run.dial_map is None:
            return
        self.view = replace(self.view, shown=Choice(shown.run, shown.dial, shown.gamma))

    def look(self, **changes: object) -> None:
        """Compare something else; a token that was selected belongs to what was shown before."""
        self.notices.clear()
        self.view = replace(self.view, **{"token": "", **changes})  # type: ignore[arg-type]

    def contender(self, choice: Choice, shelf: RunCatalogue) -> Candidate:
        """The exact run of a choice. Raises BadInput as `candidates.contender` does."""
        with contained(f"The run {choice.run}"):
            return self._contender(choice, shelf)

    def _contender(self, choice: Choice, shelf: RunCatalogue) -> Candidate:
        source = candidates.source_of(choice, shelf)
        plain = candidates.simplest(choice, source)
        found = self.known.get(plain)
        if found is None or found.source is not source:
            self.forget(plain)
            found = self.known[plain] = candidates.contender(plain, shelf)
        return found

    def forget(self, choice: Choice) -> None:
        """Drop what was remembered of a choice, since its run is another one now."""
        if self.known.pop(choice, None) is not None:
            self._keep(set(self.known))

    def keep(self, shown: Lineup) -> None:
        """Drop what is not shown any more: a run may be large, and there may be many to leaf through."""
        kept = {one.choice for one in (shown.left, shown.right, *shown.lanes)}
        self.known = {choice: one for choice, one in self.known.items() if choice in kept}
        self._keep(kept)

    def _keep(self, kept: set[Choice]) -> None:
        self.payloads = {choice: made for choice, made in self.payloads.items() if choice in kept}
        self.alignments = {pair: found for pair, found in self.alignments.items() if kept.issuperset(pair)}

    def alignment(self, left: Candidate, right: Candidate) -> Alignment:
        """The two texts side by side."""
        pair = left.choice, right.choice
        if pair not in self.alignments:
            self.alignments[pair] = align_runs(left.run, right.run)
        return self.alignments[pair]

    def payload(self, one: Candidate) -> Payload:
        """Its run for the browser."""
        if one.choice not in self.payloads:
            self.payloads[one.choice] = run_pane(one.run)
        return self.payloads[one.choice]

    def pinned(self, reference: Choice, shown: Choice) -> CompareView:
        """The view with both texts named, so that its link shows the same whatever the defaults are by then; a text
        that stands alone is named once."""
        return replace(self.view, reference=reference, shown=None if shown == reference else shown)

    def answer(self, asked: Asked, reference: Choice, shown: Choice) -> None:
        """Do what the reader asked for; what is no choice, colour or token is not heeded."""
        if asked.what is Ask.COLOUR:
            if asked.value in {each.value for each in Colour}:
                self.look(colour=Colour(asked.value), token=self.view.token)
            return
        if asked.what is Ask.TOKEN:
            if is_token(asked.value):
                self.view = replace(self.view, token=asked.value)
            return
        choice = Choice.read(asked.value)
        if choice is None:
            return
        if asked.what is Ask.PIN:
            self.look(reference=choice, shown=reference if choice == shown else shown)
        else:
            self.look(reference=reference, shown=choice)


@dataclass(frozen=True, slots=True)
class Lineup:
    """What the page shows at one moment."""

    left: Candidate
    """The pinned reference."""
    right: Candidate
    """The text beside it."""
    order: tuple[Choice, ...]
    """What can be leafed through: all choices but the reference."""
    lanes: tuple[Candidate, ...]
    """Those of them that the strip shows, the reference first."""
    unread: tuple[str, ...]
    """Why some are not in the strip, a sentence each."""


def line_up(memory: Comparison, run_id: str, run: Run, shelf: RunCatalogue) -> Lineup:
    """Settle what stands side by side. Raises BadInput where there is no reference, or nothing beside it that can be
    read, though there are others."""
    view = memory.view
    choices = candidates.field(view.across, run_id, run, view.gamma, shelf)
    if memory.turned and view.shown not in choices:
        view = memory.view = replace(view, shown=None)
    memory.turned = False
    reference, shown = _defaults(view, run_id, run, choices)
    left = _asked(memory, view.reference, shelf, "reference") or memory.contender(reference, shelf)
    unread: list[str] = []
    right = _asked(memory, view.shown, shelf, "text")
    others = [choice for choice in dict.fromkeys((shown, reference, *choices)) if choice != left.choice]
    if others and right is not None and right.choice == left.choice:
        memory.notices.append("The text of the link is the reference itself; another one is shown beside it.")
    if right is None or right.choice == left.choice:
        right = _readable(memory, others, shelf, unread) if others else left
    order = _without(memory, left, right, choices, view.across)
    at = order.index(right.choice) if right.choice in order else 0
    lanes = [left]
    for place in candidates.window(order, at, MOST_LANES):
        try:
            one = memory.contender(order[place], shelf)
            with contained(f"The run {one.choice.run}"):
                memory.alignment(left, one)
            lanes.append(one)
        except BadInput as error:
            unread.append(str(error))
    shown_now = Lineup(left, right, order, tuple(lanes), tuple(dict.fromkeys(unread)))
    memory.keep(shown_now)
    return shown_now


def _defaults(view: CompareView, run_id: str, run: Run, choices: Sequence[Choice]) -> tuple[Choice, Choice]:
    if view.across is Across.SETTINGS:
        return candidates.first_pair(run_id, run)
    reference = Choice(run_id)
    return reference, next((choice for choice in choices if choice != reference), reference)


def _asked(memory: Comparison, wanted: Choice | None, shelf: RunCatalogue, noun: str) -> Candidate | None:
    """The contender asked for; None where none is, and with a notice where it is not to be had."""
    if wanted is not None:
        try:
            return memory.contender(wanted, shelf)
        except BadInput as error:
            memory.notices.append(f"The {noun} of the link cannot be shown: {error} Another one is shown instead.")
    return None


def _readable(memory: Comparison, choices: Sequence[Choice], shelf: RunCatalogue, unread: list[str]) -> Candidate:
    """The first that can be read; `unread` gets why those before it cannot. Raises BadInput, and says all of that,
    where none can."""
    for choice in choices:
        try:
            return memory.contender(choice, shelf)
        except BadInput as error:
            unread.append(str(error))
    raise RunFileError(" ".join(dict.fromkeys(unread)))


def _without(
    memory: Comparison, left: Candidate, right: Candidate, choices: Sequence[Choice], across: Across
) -> tuple[Choice, ...]:
    """What is leafed through: not the reference, and of settings with one text the one that is asked for."""
    order = list(choices)
    for one in (left, right):
        if across is not Across.SETTINGS or one.choice in order or one.source.dial_map is None:
            continue
        made, gamma = one.source.dial_map, one.run.settings.gamma
        for place, choice in enumerate(order):
            theirs = choice.gamma or one.source.settings.gamma
            if choice.run != one.choice.run or theirs != gamma or one.dial is None:
                continue
            dial = candidates.dial_of(choice, one.source)
            if dial is not None and made.segment(dial, gamma) is made.segment(one.dial, gamma):
                order[place] = one.choice
    if right.choice not in order:
        order.insert(0, right.choice)
    return tuple(choice for choice in order if choice != left.choice)


def payload(memory: Comparison, shown: Lineup) -> Payload:
    """All that the browser needs."""
    left, right = shown.left, shown.right
    names, called = compare_words.named(left, right), compare_words.lane_names(left, right, shown.lanes)
    panes = (
        Pane(left.choice.key, names.left, compare_words.detail(left, ruled=names.ruled), left.run),
        Pane(right.choice.key, names.right, compare_words.detail(right, ruled=names.ruled), right.run),
    )
    pair = pair_payload(*panes, memory.alignment(left, right), (memory.payload(left), memory.payload(right)))
    lanes = [
        lane_payload(
            StripLane(
                one.choice.key,
                name,
                one.run,
                memory.alignment(left, one).right,
                one.right,
            )
        )
        for one, name in zip(shown.lanes, called, strict=True)
    ]
    order = [choice.key for choice in shown.order]
    return whole_payload(
        pair, lanes, order, left.choice.key, right.choice.key, memory.view.colour.value, memory.view.token
    )


def settle_decode(session: Session, memory: Comparison) -> None:
    """If this tab's decode is finished, put its text beside the reference; the run in view stays."""
    before, waiting = session.view, session.job
    tab_jobs.settle(session)
    memory.notices.extend(session.notices)
    session.notices.clear()
    if waiting is not None and session.job is None and session.view.run != before.run:
        memory.look(shown=Choice(session.view.run))
        session.view = before


def current_comparison() -> Comparison:
    """This tab's memory of the page."""
    return remembered("mars_viz_compare", Comparison)
