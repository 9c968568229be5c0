"""The Compare page: its query parameters, the texts that can be compared, and its state in one tab."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property
from weakref import WeakKeyDictionary

from mars_viz.analysis.alignment import Alignment, align_runs
from mars_viz.analysis.intervals import plain_within
from mars_viz.components.compare import Ask, Payload, run_pane
from mars_viz.components.explorer.pins import Choice
from mars_viz.errors import BadInput, EvidenceError, RunFileError, contained
from mars_viz.prompts import grader_named, recognised
from mars_viz.rules import Rule, rule_named
from mars_viz.run import Run
from mars_viz.runfiles.manifest import Manifest
from mars_viz.ui import links, tab_jobs
from mars_viz.ui.library import RunCatalogue
from mars_viz.ui.links import View
from mars_viz.ui.session import PageState, Session


class Across(Enum):
    """Dimension in which the compared texts differ."""

    SETTINGS = "settings"  # dial values and block lengths of one run's dial map
    RULES = "rules"
    RUNS = "runs"
    SWEEP = "sweep"  # many prompts: two dial values of a saved sweep, or two sweeps


class Colour(Enum):
    """Colouring of tokens."""

    DIFFERENCE = "difference"  # whether the other text has the same token
    OUTCOME = "outcome"  # outcome of each token in its own run; includes rolled-back drafts


def _is_token(text: str) -> bool:
    return re.fullmatch("(left|right)-[0-9]{1,7}", text) is not None


@dataclass(frozen=True, slots=True)
class CompareView:
    """State of the Compare page."""

    across: Across = links.one_of("across", Across.SETTINGS)
    gamma: int | None = links.whole("gamma", 1000)  # block length of the settings to browse; None for the run's own
    reference: Choice | None = links.pin("reference", Choice)  # the reference text; None for the default
    shown: Choice | None = links.pin("shown", Choice)  # the compared text; None for the default
    colour: Colour = links.one_of("colour", Colour.DIFFERENCE)
    token: str = links.parameter("token", lambda text: text if _is_token(text) else None, str, "")
    """The selected token: 'left-' or 'right-' with its slot, numbered as in the explorer; empty for none."""
    sweep: str = links.text("sweep")  # id of the sweep; empty for the first
    beside: str = links.text("beside")  # id of the other sweep; empty to compare one sweep with itself
    from_dial: float | None = links.number("from")
    """Dial value of the reference; None for the strict end or drafts of full length, or with another sweep for the
    dial's default."""
    to_dial: float | None = links.number("to")  # None for the default
    prompt: str = links.text("prompt")  # name of the prompt whose texts are shown; empty for the first that changes


def to_parameters(run_id: str, view: CompareView) -> dict[str, str]:
    """Return the query parameters of a view, without defaults."""
    written, sweeps = links.to_parameters(view, run=run_id), ("sweep", "beside", "from", "to", "prompt")
    kept = ("across", *(name for name in written if (name in sweeps) == (view.across is Across.SWEEP)))
    return {name: text for name, text in written.items() if name in kept}


@dataclass(frozen=True, eq=False)
class Candidate:
    """Text to compare."""

    choice: Choice  # identifies the text; the run's own values are None
    source: Run
    run: Run  # the run at exactly this setting, without a dial map
    label: str  # label of its source in lists
    right: bool | None  # whether its answer is right by the built-in tasks; None for other prompts
    _alignments: WeakKeyDictionary[Candidate, Alignment] = field(default_factory=WeakKeyDictionary, init=False)

    @property
    def recorded(self) -> bool:
        """True if it was decoded at this setting. Otherwise it is from the map and has no timings."""
        return self.run.rounds is self.source.rounds

    @property
    def rule(self) -> Rule:
        """Its rule."""
        return rule_named(self.run.settings.rule)

    @property
    def dial(self) -> float | None:
        """Value of its dial; None if the rule has none."""
        return self.rule.checked_dial(self.run.settings.dial)

    @cached_property
    def pane(self) -> Payload:
        """Its data for the browser."""
        return run_pane(self.run)

    def aligned(self, reference: Candidate) -> Alignment:
        """Return the alignment of the reference, on the left, with this text."""
        if reference not in self._alignments:
            with contained(f"The run {self.choice.run}"):
                self._alignments[reference] = align_runs(reference.run, self.run)
        return self._alignments[reference]


def right_answer(run: Run) -> bool | None:
    """Return whether a run's answer is right by the built-in tasks; None for other prompts."""
    item = recognised(run.prompt)
    if item is None or item.answer is None:
        return None
    return grader_named(item.grader).grade(item.answer, run.text)


def choices_across(
    across: Across, run_id: str, run: Run, gamma: int | None, catalog: RunCatalogue, *dials: float | None
) -> tuple[Choice, ...]:
    """Return the choices to browse, without reading their runs; settings are named as by `settings_of`."""
    if across is Across.SETTINGS:
        return settings_of(run_id, run, gamma, *dials)
    entries = {name: entry.facts for name, entry in catalog.recorded.items() if entry.facts is not None}
    runs: dict[str, Run | Manifest] = {**dict(reversed(list(catalog.own.items()))), **entries}
    return tuple(Choice(name) for name, each in runs.items() if across is Across.RUNS or same_prompt(run, each))


def same_prompt(run: Run, other: Run | Manifest) -> bool:
    """Return True if the texts of prompt and history are equal. Without texts, compare token ids."""
    if run.prompt and other.prompt:
        return (run.prompt, run.history) == (other.prompt, other.history)
    return run.prompt_ids == other.prompt_ids


def settings_of(run_id: str, run: Run, gamma: int | None = None, *dials: float | None) -> tuple[Choice, ...]:
    """Return a choice for every distinct text of the run's dial map at this γ, by increasing dial; without a map only
    its own. A text has the first of these `dials` that generates it, or else a plain value."""
    dial_map, rule = run.dial_map, rule_named(run.settings.rule)
    length = gamma or run.settings.gamma
    if dial_map is None or rule.dial is None or length not in dial_map.span.gammas:
        return (Choice(run_id),)
    named = (*dials, rule.dial.strict, rule.dial.checked(run.settings.dial), rule.dial.default)
    inside = [each for each in named if each is not None and dial_map.span.low <= each <= dial_map.span.high]
    by_segment = {dial_map.segment(each, length).low: each for each in reversed(inside)}
    segments = [segment for segment in dial_map.segments_for(length) if segment.complete]
    values = (by_segment.get(segment.low, plain_within(segment.low, segment.high)) for segment in segments)
    return tuple(_simplest(Choice(run_id, value, gamma), run) for value in values)


def _simplest(choice: Choice, run: Run) -> Choice:
    own_dial = rule_named(run.settings.rule).checked_dial(run.settings.dial)
    return Choice(
        choice.run,
        None if choice.dial == own_dial else choice.dial,
        None if choice.gamma == run.settings.gamma else choice.gamma,
    )


def first_pair(run_id: str, run: Run) -> tuple[Choice, Choice]:
    """Return the initial reference and text of a run: the strict end of its map and its own setting, or the rule's
    default if they are equal. Without a map, both are the run's own."""
    dial, own = rule_named(run.settings.rule).dial, Choice(run_id)
    if dial is None or run.dial_map is None:
        return own, own
    strict, default = (_simplest(Choice(run_id, value), run) for value in (dial.strict, dial.default))
    mapped, by_default = settings_of(run_id, run), settings_of(run_id, run, None, dial.default)
    reference = strict if strict in (own, *mapped) else mapped[0]
    others = (own, *[default] * (default in by_default), *mapped)
    return reference, next((each for each in others if each != reference), reference)


MOST_LANES = 24  # maximum number of texts in the strip


@dataclass(slots=True)
class Comparison(PageState):
    """State of one tab's Compare page."""

    view: CompareView = field(default_factory=CompareView)
    run: str = ""  # id of the run that the view belongs to; empty at first
    turned: bool = False
    """True after a change of `across`: the reference stays, and so does the other text if it is still a choice."""
    known: dict[Choice, Candidate] = field(default_factory=dict)  # the texts shown last

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

    def look(self, **parts: object) -> None:
        """Change parts of the view, clear the notices, and deselect the token."""
        PageState.look(self, **{"token": "", **parts})

    def contender(self, choice: Choice, catalog: RunCatalogue) -> Candidate:
        """Return the exact run of a choice. Raises BadInput if its run is missing or cannot be read, and if the setting
        was not mapped."""
        with contained(f"The run {choice.run}"):
            source = catalog.opened(choice.run)
            plain = _simplest(choice, source)
            known = self.known.get(plain)
            if known is None or known.source is not source:
                run = _at(choice, source)
                label = catalog.labels[choice.run]
                known = self.known[plain] = Candidate(plain, source, run, label, right_answer(run))
            return known

    def answer(self, what: Ask, value: str, reference: Choice, shown: Choice) -> None:
        """Apply the user's action in the component; invalid values are ignored."""
        choice = Choice.read(value)
        if what is Ask.COLOUR and value in {each.value for each in Colour}:
            self.look(colour=Colour(value), token=self.view.token)
        elif what is Ask.TOKEN and _is_token(value):
            self.view = replace(self.view, token=value)
        elif what is Ask.PIN and choice is not None:
            self.look(reference=choice, shown=reference if choice == shown else shown)
        elif what is Ask.SHOW and choice is not None:
            self.look(reference=reference, shown=choice)


def _at(choice: Choice, source: Run) -> Run:
    """Return the run at the setting of a choice, without its map. Raises BadInput if it was not mapped."""
    settings = source.settings
    if _simplest(choice, source) == Choice(choice.run):
        return source.unmapped
    dial = rule_named(settings.rule).checked_dial(settings.dial if choice.dial is None else choice.dial)
    if source.dial_map is None or dial is None:
        raise EvidenceError("This run carries no dial map, so only its own setting is known. Decode or map it again.")
    return source.dial_map.at(dial, choice.gamma or settings.gamma).unmapped


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
    view, unread = memory.view, list[str]()
    choices = choices_across(view.across, run_id, run, view.gamma, catalog)
    if memory.turned and view.shown not in choices:
        view = memory.view = replace(view, shown=None)
    memory.turned = False
    if view.across is Across.SETTINGS:
        reference, default_shown = first_pair(run_id, run)
    else:
        reference = Choice(run_id)
        default_shown = next((choice for choice in choices if choice != reference), reference)
    requested = list[Candidate | None]()
    for choice, noun in ((view.reference, "reference"), (view.shown, "text")):
        errors = list[str]()
        requested.append(None if choice is None else _tried(memory, choice, catalog, errors))
        words = f"The {noun} of the link cannot be shown: {' '.join(errors)} Another one is shown instead."
        memory.notices.extend([words] * len(errors))
    right = requested[1]
    left = requested[0] or memory.contender(reference, catalog)
    others = [choice for choice in dict.fromkeys((default_shown, reference, *choices)) if choice != left.choice]
    if others and right is not None and right.choice == left.choice:
        memory.notices.append("The text of the link is the reference itself; another one is shown next to it.")
    if right is None or right.choice == left.choice:
        readable = (_tried(memory, choice, catalog, unread) for choice in others)
        right = next(filter(None, readable), None) if others else left
    if right is None:
        raise RunFileError(" ".join(dict.fromkeys(unread)))
    own = (view.gamma or run.settings.gamma, run_id)  # settings of this run are named by the dial values shown
    dials = [one.dial for one in (right, left) if (one.run.settings.gamma, one.choice.run) == own]
    choices = choices_across(view.across, run_id, run, view.gamma, catalog, *dials)
    choices = choices if right.choice in choices else (right.choice, *choices)
    order = tuple(choice for choice in choices if choice != left.choice)
    at = order.index(right.choice) if right.choice in order else 0
    first = max(0, min(at - MOST_LANES // 2, len(order) - MOST_LANES))
    lanes = [left]
    for choice in order[first : first + MOST_LANES]:
        if one := _tried(memory, choice, catalog, unread, reference=left):
            lanes.append(one)
    memory.known = {one.choice: one for one in (left, right, *lanes)}  # others may be large
    return Lineup(left, right, order, tuple(lanes), tuple(dict.fromkeys(unread)))


def _tried(
    memory: Comparison, choice: Choice, catalog: RunCatalogue, errors: list[str], reference: Candidate | None = None
) -> Candidate | None:
    """Return the text of a choice, which can be aligned with a reference. If it cannot be read, add the error to
    `errors` and return None."""
    try:
        one = memory.contender(choice, catalog)
        if reference is not None:
            one.aligned(reference)
        return one
    except BadInput as error:
        errors.append(str(error))
    return None


def settle_decode(session: Session, memory: Comparison) -> None:
    """When this tab's decode has ended, compare its text with the reference. The opened run stays the same."""
    previous_view, waiting = session.view, session.job
    tab_jobs.settle(session)
    memory.notices.extend(session.notices)
    session.notices.clear()
    if waiting is not None and session.job is None and session.view.run != previous_view.run:
        memory.look(shown=Choice(session.view.run))
        session.view = previous_view
