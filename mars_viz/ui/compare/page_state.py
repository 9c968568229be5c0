"""The Compare page: its query parameters, the texts that can be compared, its state in one tab, and its sentences and
tables."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property
from typing import NamedTuple
from weakref import WeakKeyDictionary

from mars_viz.analysis.alignment import Alignment, Difference, Unit, Written, align_runs, written
from mars_viz.analysis.intervals import plain_within
from mars_viz.components.compare import Ask, Pane, Payload, lane_payload, pair_payload, run_pane, whole_payload
from mars_viz.components.explorer.pins import Choice
from mars_viz.demo import BUILT_IN
from mars_viz.documents import BASES, Sentence, Table
from mars_viz.errors import BadInput, EvidenceError, RunFileError, contained
from mars_viz.escapes import isolated
from mars_viz.prompts import grader_named, recognised
from mars_viz.rules import Rule, rule_named
from mars_viz.run import Piece, Run, Settings
from mars_viz.runfiles.manifest import Manifest
from mars_viz.ui import documents, links, tab_jobs
from mars_viz.ui.library import RunCatalogue
from mars_viz.ui.links import View
from mars_viz.ui.session import PageState, Session
from mars_viz.words import THIN_SPACE, counted, number, setting, shown_token


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


QUOTED = 24  # maximum number of characters of a token in a sentence
MODEL = 48  # maximum number of characters of a model's name
MOST_IDS = 12  # maximum number of prompts named in a line


class Names(NamedTuple):
    """Names of two compared texts."""

    left: str
    right: str


SIDES = Names("reference", "compared")
LONG = 24  # maximum length of a name that is repeated with every number on a narrow screen


def named(left: Candidate, right: Candidate) -> Names:
    """Return names by everything in which the texts differ: models, rule and dial, draft. If they continue different
    prompts or differ in nothing else, return the runs' labels, with the right one's key if these are equal."""
    if left.choice == right.choice:
        return Names(_by_rule(left), _by_rule(left))
    names = labels = Names(_by_line(left), _by_line(right))
    if same_prompt(left.run, right.run):
        names = _by_difference(left, right)
    if names.left == names.right:
        names = labels
    return names if names.left != names.right else Names(names.left, f"{names.right} {_key(right)}")


def _by_difference(left: Candidate, right: Candidate) -> Names:
    runs = left.run, right.run
    ours, theirs = (run.provenance for run in runs)
    targets = _distinct_models(ours.target, theirs.target, "an unnamed target")
    drafters = _distinct_models(ours.drafter, theirs.drafter, "an unnamed drafter")
    alike = all(getattr(runs[0].settings, name) == getattr(runs[1].settings, name) for name in _BUT_THE_DIAL)
    rules = [_setting_words(one) if alike else _by_rule(one) for one in (left, right)]
    drafted_by = [f"drafted by {name}" for name in drafters]
    parts = [targets, drafted_by, rules, [run.settings.draft for run in runs]]
    same_models = targets[0] == targets[1] and drafters[0] == drafters[1]
    told = [part for part in parts if part[0] != part[1] or (part is rules and same_models)]
    return Names(*(", ".join(side) for side in zip(*told, strict=True)))


def lane_names(left: Candidate, right: Candidate, lanes: Sequence[Candidate]) -> list[str]:
    """Return the names of the texts in the strip: the pair's names for the pair, the others relative to the reference.
    Equal names are extended by the runs' labels, and if necessary by the choices' keys."""
    pair = dict(zip((left.choice, right.choice), named(left, right), strict=True))
    names = [pair.get(lane.choice) or named(left, lane).right for lane in lanes]
    for more in (_by_line, _key):
        counts = Counter(names)
        names = [
            name if counts[name] == 1 or lane.choice in pair or more(lane) in name else f"{name}, {more(lane)}"
            for lane, name in zip(lanes, names, strict=True)
        ]
    return names


_BUT_THE_DIAL = {*Settings.__slots__} - {"dial", "gamma", "controller"}


def _setting_words(one: Candidate) -> str:
    """Return the dial, like 'strict' or 'θ = 0.90'."""
    dial = one.rule.dial
    if dial is None or one.dial is None:
        return one.rule.title
    return "strict" if one.dial == dial.strict else setting(dial.symbol, one.dial)


def _by_rule(one: Candidate) -> str:
    return one.rule.at(one.dial)


def _distinct_models(left: str, right: str, unnamed: str) -> list[str]:
    """Return the last parts of the models' names if they differ, otherwise the full names."""
    short = [
        f"the built-in {last}" if first == BUILT_IN else last
        for first, _, last in (name.rstrip("/").rpartition("/") for name in (left, right))
    ]
    model_names = short if short[0] != short[1] else [left, right]
    return [_isolated(name, MODEL) if name else unnamed for name in model_names]


def _by_line(one: Candidate) -> str:
    is_own = one.choice.dial is None and one.choice.gamma is None
    return f"“{_isolated(one.label.replace(' · ', ', '))}”" + ("" if is_own else f" at {_setting_words(one)}")


def _key(one: Candidate) -> str:
    """Return the key in brackets, which is never shortened because only its end may differ."""
    return f"({_isolated(one.choice.key, len(one.choice.key))})"


def finding(left: Candidate, right: Candidate, alignment: Alignment, names: Names, across: Across) -> str:
    """Return the main result: the common text, the first difference and the acceptance lengths. For a single text,
    return which view has more to compare."""
    if left.choice == right.choice:
        where = "here" if across is Across.RULES else "under Rules or models on one prompt"
        others = "" if across is Across.RUNS else "; runs of other prompts are under All runs"
        return f"Nothing else here to compare {names.left} with. Decode its prompt with another rule {where}{others}."
    parts = [parting(alignment, names, written(left.run), written(right.run))]
    if left.run.prompt_ids != right.run.prompt_ids and not same_prompt(left.run, right.run):
        parts.insert(0, "They continue different prompts.")
    if alignment.unit is Unit.CHARACTERS:
        characters = "Their tokenizers differ, so they are compared by characters"
        parts.append(f"{characters}, and τ counts tokens of different lengths.")
    if left.run.rounds and right.run.rounds:
        parts.append(f"τ (tokens per round): {number(right.run.tau)} against {number(left.run.tau)}.")
    return " ".join([*parts, *graded(left.right, right.right, names)])


def parting(alignment: Alignment, names: Names, *texts: Written) -> str:
    """Return a sentence about the first difference of both texts."""
    sides, end = (alignment.left.parts, alignment.right.parts), "the end of the text" if alignment.prefix else "nothing"
    left, right = (end if at is None else _quoted_token(text.pieces[at]) for text, at in zip(texts, sides, strict=True))
    shared = counted(alignment.prefix, alignment.unit.value)
    if alignment.identical and not alignment.prefix:
        return "Both write nothing."
    if alignment.identical:
        return f"{_capital(names.right)} and {names.left} write the same text ({shared})."
    begin = (
        f"Same first {shared.removeprefix('1 ')}; then "
        if alignment.prefix
        else f"They differ from the first {alignment.unit.value} on: "
    )
    return f"{begin}{names.right} writes {right}, {names.left} writes {left}."


def _quoted_token(piece: Piece) -> str:
    return "the end of the text" if piece.special else f"“{quoted(piece)}”"


def quoted(piece: Piece) -> str:
    """Return a token for a sentence: without surrounding blanks, with invisible characters spelled out, and isolated
    from the text direction around it."""
    return _isolated(piece.text.strip() or piece.text)


def _isolated(text: str, most: int = 0) -> str:
    visible_text = shown_token(text, most or (QUOTED if len(text.split()) == 1 else 60))
    return isolated(visible_text.replace("·", " ") if text.strip() else visible_text)


def graded(left: bool | None, right: bool | None, names: Names) -> list[str]:
    """Return a sentence about which answers are right, if both are known."""
    if left is None or right is None:
        return []
    if left == right:
        return [f"Both get the answer {'right' if left else 'wrong'}."]
    good, bad = (names.left, names.right) if left else (names.right, names.left)
    return [f"{_capital(good)} gets the answer right, {bad} wrong."]


def _capital(name: str) -> str:
    return "Strict" if name == "strict" else name


def cells(row: Difference) -> tuple[str, ...]:
    """Format a row of the table: name, both numbers, the difference with a sign (shares in points), and the basis."""
    factor, unit, points = (100, f"{THIN_SPACE}%", f"{THIN_SPACE}points") if row.is_share else (1, "", "")
    left, right = (number(factor * each) + unit * math.isfinite(each) for each in (row.left, row.right))
    sign = "+" * (row.change > 0)
    change = f"{sign}{number(factor * row.change)}{points}" if math.isfinite(row.change) else number(row.change)
    return row.name, left, right, change, row.stands


def detail(one: Candidate, name: str) -> str:
    """Return a line about a text, without rule and dial if its name contains them."""
    run, rule = one.run, _by_rule(one)
    setting = run.settings.draft if rule in name else f"{rule}, {run.settings.draft}"
    return f"{setting}: {counts(len(run.token_ids), len(run.rounds), one.right)}"


def counts(tokens: int, rounds: int, right: bool | None) -> str:
    """Return a text's numbers, and whether its answer is right if that is known."""
    answer = {True: ", answer right", False: ", answer wrong", None: ""}[right]
    tau = number(tokens / rounds if rounds else math.nan)
    return f"τ {tau}, {counted(tokens, 'token')}, {counted(rounds, 'round')}{answer}"


def footnote(left: Candidate, right: Candidate) -> str:
    """Return the basis and the limits of the table's numbers."""
    if not (left.recorded and right.recorded):
        clock = " No speeds: at least one of these settings comes from the dial map and was not timed."
    else:
        devices = [one.run.provenance.device or "an unnamed device" for one in (left, right)]
        clock = " Measured: one decoding each, without an interval"
        clock += f", and on different devices: {devices[0]} and {devices[1]}." if devices[0] != devices[1] else "."
    trees = " At most one path of a tree is kept; acceptance and rollbacks count all of its nodes."
    branched = any(one.run.settings.drafts_trees for one in (left, right))
    return (
        f"Exact: each text is the one that its setting generates.{trees if branched else ''}{clock} One prompt: no "
        "conclusion for others."
    )


def sweep_footnote(confidence: float, worse: Sequence[str], better: Sequence[str], *, turns: bool, costs: str) -> str:
    """Return a footnote about the intervals and the prompts whose answers changed. `turns` is True if prompts are turns
    of questions; `costs` is a sentence on the basis of modelled figures."""
    drawn = "questions, each with all of its turns" if turns else "prompts"
    sentence = f"Exact unless called modelled. In brackets: {number(100 * confidence)} % intervals, paired bootstrap"
    sentence += f" over {drawn}. {costs}".rstrip()
    for ids, turn in ((worse, "wrong"), (better, "right")):
        if ids:
            more = f" and {number(len(ids) - MOST_IDS)} more" if len(ids) > MOST_IDS else ""
            sentence += f" Became {turn}: {', '.join(ids[:MOST_IDS])}{more}."
    return sentence


def panes(left: Candidate, right: Candidate) -> list[Pane]:
    """Return the heads of both panes."""
    sides = zip((left, right), named(left, right), strict=True)
    return [(one.choice.key, name, detail(one, name)) for one, name in sides]


def payload(view: CompareView, shown: Lineup) -> Payload:
    """Return all data for the browser."""
    left, right = shown.left, shown.right
    pair = pair_payload(panes(left, right), right.aligned(left), (left.pane, right.pane))
    lanes = [
        lane_payload(one.choice.key, name, one.run, one.aligned(left).right, one.right)
        for one, name in zip(shown.lanes, lane_names(left, right, shown.lanes), strict=True)
    ]
    order = [choice.key for choice in shown.order]
    return whole_payload(pair, lanes, order, left.choice.key, right.choice.key, view.colour.value, view.token)


def lead(sentence: str) -> None:
    """Draw the main result, which is exact."""
    documents.lead([Sentence(sentence, "exact")])


def table(rows: Sequence[Difference], names: Names) -> Table:
    """Return the numbers of both texts."""
    heads, label = ("number", names.left, names.right, "difference", "basis"), "Both texts in numbers"
    meanings = "; ".join(f"{row.name}: {row.meaning}" for row in rows if row.meaning)
    bases = " ".join(BASES[basis] for basis in dict.fromkeys(row.stands for row in rows))
    return Table(heads, list(map(cells, rows)), label, label, {"number": meanings, "basis": bases})
