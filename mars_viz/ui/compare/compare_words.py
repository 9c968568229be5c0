"""A comparison in words and tables. Sentences are plain text that the caller escapes; tables are escaped here."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from mars_viz.analysis.alignment import Alignment, Difference, Unit, Written, written
from mars_viz.components.compare import Pane, Payload, lane_payload, pair_payload, whole_payload
from mars_viz.demo import BUILT_IN
from mars_viz.documents import BASES, Sentence, Table
from mars_viz.escapes import isolated
from mars_viz.run import Piece, Settings
from mars_viz.ui import documents
from mars_viz.ui.compare import page_state
from mars_viz.ui.compare.page_state import Across, Candidate, CompareView, Lineup
from mars_viz.words import THIN_SPACE, counted, number, setting, shown_token

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
    if page_state.same_prompt(left.run, right.run):
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
    if left.run.prompt_ids != right.run.prompt_ids and not page_state.same_prompt(left.run, right.run):
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
