"""The Compare page: its query parameters, the texts that can be compared, and its state in one tab."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from mars_viz.analysis.alignment import Alignment, align_runs
from mars_viz.components.compare import Ask, Payload, run_pane
from mars_viz.components.explorer.pins import Choice as Choice
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


def _choice(name: str) -> Any:
    return links.parameter(name, Choice.read, lambda choice: str(choice.key))


@dataclass(frozen=True, slots=True)
class CompareView:
    """State of the Compare page."""

    across: Across = links.one_of("across", Across.SETTINGS)
    gamma: int | None = links.whole("gamma", 1000)  # block length of the settings to browse; None for the run's own
    reference: Choice | None = _choice("reference")  # the reference text; None for the default
    shown: Choice | None = _choice("shown")  # the compared text; None for the default
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


OF_SWEEPS = ("sweep", "beside", "from", "to", "prompt")  # all others except `across` are for texts


def to_parameters(run_id: str, view: CompareView) -> dict[str, str]:
    """Return the query parameters of a view, without defaults."""
    written, of_sweeps = links.to_parameters(view, run=run_id), view.across is Across.SWEEP
    return {name: text for name, text in written.items() if name == "across" or (name in OF_SWEEPS) == of_sweeps}


@dataclass(frozen=True, slots=True)
class Candidate:
    """Text to compare."""

    choice: Choice  # identifies the text; the run's own values are None
    source: Run
    run: Run  # the run at exactly this setting, without a dial map
    label: str  # label of its source in lists
    right: bool | None  # whether its answer is right by the built-in tasks; None for other prompts

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
        return None if self.rule.dial is None else self.rule.dial.checked(self.run.settings.dial)


def source_of(choice: Choice, catalog: RunCatalogue) -> Run:
    """Return the run of a choice. Raises BadInput if it is missing or cannot be read."""
    if choice.run not in catalog.own and choice.run not in catalog.recorded:
        raise RunFileError("There is no run of that name here; choose another from the list.")
    return catalog.opened(choice.run)


def contender(choice: Choice, catalog: RunCatalogue) -> Candidate:
    """Return the exact run of a choice. Raises BadInput as `source_of` does, and if the setting was not mapped."""
    source = source_of(choice, catalog)
    settings, rule = source.settings, rule_named(source.settings.rule)
    gamma = choice.gamma or settings.gamma
    own_dial = _dial_of(Choice(choice.run), source)
    dial = own_dial if choice.dial is None else rule.checked_dial(choice.dial)
    if (dial, gamma) == (own_dial, settings.gamma):
        run = source.unmapped
    elif source.dial_map is None or dial is None:
        why = "This run carries no dial map, so only its own setting is known. Decode it again, or map it."
        raise EvidenceError(why)
    else:
        run = source.dial_map.at(dial, gamma).unmapped
    return Candidate(_simplest(choice, source), source, run, catalog.labels[choice.run], right_answer(run))


def right_answer(run: Run) -> bool | None:
    """Return whether a run's answer is right by the built-in tasks; None for other prompts."""
    item = recognised(run.prompt)
    if item is None or item.answer is None:
        return None
    return grader_named(item.grader).grade(item.answer, run.text)


def choices_across(
    across: Across, run_id: str, run: Run, gamma: int | None, catalog: RunCatalogue
) -> tuple[Choice, ...]:
    """Return the choices to browse, without reading their runs."""
    if across is Across.SETTINGS:
        return settings_of(run_id, run, gamma)
    entries = {name: entry.facts for name, entry in catalog.recorded.items() if entry.facts is not None}
    if across is Across.RUNS:
        return tuple(map(Choice, (*reversed(list(catalog.own)), *entries)))
    tab_runs = [name for name, each in reversed(list(catalog.own.items())) if same_prompt(run, each)]
    return tuple(map(Choice, (*tab_runs, *(n for n, e in entries.items() if same_prompt(run, e)))))


def same_prompt(run: Run, other: Run | Manifest) -> bool:
    """Return True if the texts of prompt and history are equal. Without texts, compare token ids."""
    if run.prompt and other.prompt:
        return (run.prompt, run.history) == (other.prompt, other.history)
    return run.prompt_ids == other.prompt_ids


def settings_of(run_id: str, run: Run, gamma: int | None = None) -> tuple[Choice, ...]:
    """Return a choice for every distinct text of the run's dial map at this γ, by increasing dial; without a map only
    its own."""
    dial_map, rule = run.dial_map, rule_named(run.settings.rule)
    length = gamma or run.settings.gamma
    if dial_map is None or rule.dial is None or length not in dial_map.span.gammas:
        return (Choice(run_id),)
    named = (rule.dial.strict, rule.dial.checked(run.settings.dial), rule.dial.default)
    choices = []
    for segment in dial_map.segments_for(length):
        if not segment.complete:
            continue
        inside = [
            dial for dial in named if segment.low <= dial < segment.high or dial == segment.high == dial_map.span.high
        ]
        dial = inside[0] if inside else roundest(segment.low, segment.high)
        choices.append(_simplest(Choice(run_id, dial, gamma), run))
    return tuple(choices)


def _simplest(choice: Choice, run: Run) -> Choice:
    gamma = None if choice.gamma == run.settings.gamma else choice.gamma
    is_own = choice.dial == _dial_of(Choice(choice.run), run)
    return Choice(choice.run, None if is_own else choice.dial, gamma)


def roundest(low: float, high: float) -> float:
    """Return the value with the fewest decimals in low <= value < high; `low` if there is none."""
    for decimals in range(17):
        value = math.ceil(low * 10**decimals) / 10**decimals
        if low <= value < high:
            return value
    return low


def first_pair(run_id: str, run: Run) -> tuple[Choice, Choice]:
    """Return the initial reference and text of a run: the strict end of its map and its own setting, or the rule's
    default if they are equal. Without a map, both are the run's own."""
    dial, dial_map, own_choice = rule_named(run.settings.rule).dial, run.dial_map, Choice(run_id)
    if dial is None or dial_map is None:
        return own_choice, own_choice
    strict, default = (_reachable(Choice(run_id, value), run) for value in (dial.strict, dial.default))
    mapped = settings_of(run_id, run)
    reference = strict or mapped[0]
    return reference, next(
        (each for each in (own_choice, default, *mapped) if each is not None and each != reference), reference
    )


def _reachable(choice: Choice, run: Run) -> Choice | None:
    """Return the simplest choice; None if the map lacks its complete text."""
    dial_map, dial = run.dial_map, choice.dial
    plain = _simplest(choice, run)
    if plain == Choice(choice.run):
        return plain
    if dial_map is None or dial is None or not dial_map.span.low <= dial <= dial_map.span.high:
        return None
    gamma = choice.gamma or run.settings.gamma
    return plain if gamma in dial_map.span.gammas and dial_map.segment(dial, gamma).complete else None


def _dial_of(choice: Choice, run: Run) -> float | None:
    rule = rule_named(run.settings.rule)
    if rule.dial is None:
        return None
    return rule.dial.checked(run.settings.dial) if choice.dial is None else choice.dial


def window(choices: Sequence[Choice], at: int, most: int) -> range:
    """Return the indices of the visible part of a long list around a position."""
    first = max(0, min(at - most // 2, len(choices) - most))
    return range(first, min(first + most, len(choices)))


MOST_LANES = 24  # maximum number of texts in the strip


@dataclass(slots=True)
class Comparison(PageState):
    """State of one tab's Compare page."""

    view: CompareView = field(default_factory=CompareView)
    run: str = ""  # id of the run that the view belongs to; empty at first
    turned: bool = False
    """True after a change of `across`: the reference stays, and so does the other text if it is still a choice."""
    known: dict[Choice, Candidate] = field(default_factory=dict)  # by their simplest choice; each holds its run
    alignments: dict[tuple[Choice, Choice], Alignment] = field(default_factory=dict)
    payloads: dict[Choice, Payload] = field(default_factory=dict)

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
        """Return the exact run of a choice. Raises BadInput as `contender` does."""
        with contained(f"The run {choice.run}"):
            source = source_of(choice, catalog)
            plain = _simplest(choice, source)
            candidate = self.known.get(plain)
            if candidate is None or candidate.source is not source:
                self.keep(self.known.keys() - {plain})  # its run has changed
                candidate = self.known[plain] = contender(plain, catalog)
            return candidate

    def keep(self, choices: Collection[Choice]) -> None:
        """Drop cached data of all other texts, which may be large."""
        self.known = {choice: one for choice, one in self.known.items() if choice in choices}
        self.payloads = {choice: data for choice, data in self.payloads.items() if choice in choices}
        self.alignments = {pair: found for pair, found in self.alignments.items() if set(pair) <= set(choices)}

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

    def answer(self, what: Ask, value: str, reference: Choice, shown: Choice) -> None:
        """Apply the user's action in the component; invalid values are ignored."""
        if what is Ask.COLOUR:
            if value in {each.value for each in Colour}:
                self.look(colour=Colour(value), token=self.view.token)
            return
        if what is Ask.TOKEN:
            if _is_token(value):
                self.view = replace(self.view, token=value)
            return
        choice = Choice.read(value)
        if choice is None:
            return
        if what is Ask.PIN:
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
    choices = choices_across(view.across, run_id, run, view.gamma, catalog)
    if memory.turned and view.shown not in choices:
        view = memory.view = replace(view, shown=None)
    memory.turned = False
    if view.across is Across.SETTINGS:
        reference, default_shown = first_pair(run_id, run)
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
    for place in window(order, at, MOST_LANES):
        try:
            one = memory.contender(order[place], catalog)
            with contained(f"The run {one.choice.run}"):
                memory.alignment(left, one)
            lanes.append(one)
        except BadInput as error:
            unread.append(str(error))
    lineup = Lineup(left, right, order, tuple(lanes), tuple(dict.fromkeys(unread)))
    memory.keep({one.choice for one in (left, right, *lanes)})
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
            dial = _dial_of(choice, one.source)
            if dial is not None and dial_map.segment(dial, gamma) is dial_map.segment(one.dial, gamma):
                order[place] = one.choice
    if right.choice not in order:
        order.insert(0, right.choice)
    return tuple(choice for choice in order if choice != left.choice)


def settle_decode(session: Session, memory: Comparison) -> None:
    """When this tab's decode has ended, compare its text with the reference. The opened run stays the same."""
    previous_view, waiting = session.view, session.job
    tab_jobs.settle(session)
    memory.notices.extend(session.notices)
    session.notices.clear()
    if waiting is not None and session.job is None and session.view.run != previous_view.run:
        memory.look(shown=Choice(session.view.run))
        session.view = previous_view
