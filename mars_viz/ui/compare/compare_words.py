"""What a comparison comes to, in sentences. Plain text: whoever shows it escapes it. Knows no Streamlit."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from mars_viz.analysis.alignment import Alignment, Unit
from mars_viz.analysis.differences import Difference, NumberFormat
from mars_viz.demo import BUILT_IN
from mars_viz.escapes import isolated
from mars_viz.run import Piece, Run
from mars_viz.ui.compare import candidates
from mars_viz.ui.compare.candidates import Candidate
from mars_viz.ui.compare.compare_view import Across
from mars_viz.words import THIN_SPACE, counted, number, setting, shown_token

QUOTED = 24
"""Characters of a token in a sentence."""
MODEL = 48
"""Characters of a model's name."""
MOST_IDS = 12
"""Prompts named in a line."""


@dataclass(frozen=True, slots=True)
class Names:
    """What two contenders are called beside each other."""

    left: str
    """The reference."""
    right: str
    """The other."""
    ruled: bool = field(default=False, kw_only=True)
    """True if both say rule and dial, which need not be said again."""


SIDES = Names("reference", "compared")
"""What they are called where there is no room for more."""


MEANING = {
    "exact": "Exact: counted on the text that its own setting generates.",
    "measured": "Measured: wall clock of the recorded decoding, on its device.",
    "modelled": "Modelled: counted passes times their measured costs on one device; not wall clock.",
}
"""What numbers stand on, by the word beside them."""
LONG = 24
"""Characters of a name that is not said with every number on a narrow screen."""


def short_names(names: Names) -> tuple[str, str]:
    """What they are called beside each number, where there is no room for columns."""
    short = SIDES if max(len(names.left), len(names.right)) > LONG else names
    return short.left, short.right


def named(left: Candidate, right: Candidate) -> Names:
    """As short as tells them apart: by dial, by rule, by models, by the line of their runs."""
    if left.choice == right.choice:
        return Names(_by_rule(left), _by_rule(left), ruled=True)
    for names in _ways(left, right):
        if names.left != names.right:
            return names
    same = _by_lines(left, right)
    return replace(same, right=_with_key(right, same.right))


def _ways(left: Candidate, right: Candidate) -> Iterator[Names]:
    """Names that say what differs, the shortest first; of texts that differ in their prompts their lines alone."""
    ours, theirs = left.run, right.run
    if candidates.same_prompt(ours, theirs):
        if _models(ours) != _models(theirs):
            yield _by_models(left, right)
        else:
            if _alike(ours, theirs):
                yield Names(_by_dial(left), _by_dial(right), ruled=left.dial is None)  # rules without one say their own
            yield Names(_by_rule(left), _by_rule(right), ruled=True)
            yield Names(ours.settings.draft, theirs.settings.draft)
    yield _by_lines(left, right)


def lane_names(left: Candidate, right: Candidate, lanes: Sequence[Candidate]) -> list[str]:
    """What the texts of the strip are called: the pair as its panes are, the others beside the reference; those that
    would be called alike get the line of their runs besides, and where that repeats the key of their choice."""
    pair = named(left, right)
    known = {left.choice: pair.left, right.choice: pair.right}
    names = [known.get(one.choice) or named(left, one).right for one in lanes]
    for more in (_with_line, _with_key):
        often = Counter(names)
        names = [
            name if often[name] == 1 or one.choice in known else more(one, name)
            for one, name in zip(lanes, names, strict=True)
        ]
    return names


def _with_line(one: Candidate, name: str) -> str:
    line = _by_line(one)
    return name if name == line else f"{name}, {line}"


def _with_key(one: Candidate, name: str) -> str:
    """A key is never cut: its end may be all that differs."""
    key = one.choice.key
    return f"{name} ({_isolated(key, len(key))})"


def _models(run: Run) -> tuple[str, str]:
    return run.provenance.target, run.provenance.drafter


def _alike(one: Run, other: Run) -> bool:
    """True if nothing but dial and γ tells their settings apart."""
    ours, theirs = one.settings, other.settings
    fields = ("rule", "temperature", "top_p", "top_k", "seed", "max_new_tokens", "stop", "tree")
    return all(getattr(ours, name) == getattr(theirs, name) for name in fields)


def _by_dial(one: Candidate) -> str:
    """'strict', 'θ = 0.90'; with γ where that is not its source's own."""
    alike = one.run.settings.drafts_like(one.source.settings)
    block = "" if alike else f", {one.run.settings.draft}"
    return setting_words(one) + block


def setting_words(one: Candidate) -> str:
    """Where its dial stands."""
    dial = one.rule.dial
    if dial is None or one.dial is None:
        return one.rule.title
    return "strict" if one.dial == dial.strict else setting(dial.symbol, one.dial)


def _by_rule(one: Candidate) -> str:
    dial = one.rule.dial
    at = "" if dial is None or one.dial is None else f" at {setting(dial.symbol, one.dial)}"
    return f"{one.rule.title}{at}"


def _by_models(left: Candidate, right: Candidate) -> Names:
    """By those of their models that differ, and by the rule where that differs too."""
    targets, drafters = zip(_models(left.run), _models(right.run), strict=True)
    parts = []
    if targets[0] != targets[1]:
        parts.append(_told_apart(*targets, "an unnamed target"))
    if drafters[0] != drafters[1]:
        drawn = _told_apart(*drafters, "an unnamed drafter")
        parts.append(Names(f"drafted by {drawn.left}", f"drafted by {drawn.right}"))
    if _by_rule(left) != _by_rule(right):
        parts.append(Names(_by_rule(left), _by_rule(right), ruled=True))
    said = [", ".join(names) for names in ([each.left for each in parts], [each.right for each in parts])]
    return Names(*said, ruled=parts[-1].ruled)


def _told_apart(left: str, right: str, unnamed: str) -> Names:
    """Models by the last part of their names where that tells them apart."""
    short = [
        f"the built-in {last}" if first == BUILT_IN else last
        for first, _, last in (name.rstrip("/").rpartition("/") for name in (left, right))
    ]
    shown = short if short[0] != short[1] else [left, right]
    return Names(*(_isolated(name, MODEL) if name else unnamed for name in shown))


def _by_lines(left: Candidate, right: Candidate) -> Names:
    return Names(_by_line(left), _by_line(right), ruled=not left.label and not right.label)


def _by_line(one: Candidate) -> str:
    if not one.label:
        return _by_rule(one)
    own = one.choice.dial is None and one.choice.gamma is None
    return f"“{_isolated(one.label.replace(' · ', ', '))}”" + ("" if own else f" at {setting_words(one)}")


def finding(left: Candidate, right: Candidate, found: Alignment, names: Names, across: Across) -> str:
    """The sentence first: what both write, where they part, and what that is worth; of a text that stands alone, in
    which other view there is more than in this one."""
    if left.choice == right.choice:
        return f"Nothing else here to compare {names.left} with. {_ELSEWHERE[across]}"
    parts = [
        parting(
            found, names, *(_piece(each.run, side.parts) for each, side in ((left, found.left), (right, found.right)))
        )
    ]
    if left.run.prompt_ids != right.run.prompt_ids and not candidates.same_prompt(left.run, right.run):
        parts.insert(0, "They continue different prompts.")
    if found.unit is Unit.CHARACTERS:
        parts.append(
            "Their tokenizers differ, so they are compared by characters, and τ counts tokens of different lengths."
        )
    if left.run.rounds and right.run.rounds:
        parts.append(f"τ (tokens per round): {number(right.run.tau)} against {number(left.run.tau)}.")
    return " ".join([*parts, *graded(left.right, right.right, names)])


_DECODE, _OTHERS = "Decode its prompt with another rule", "runs of other prompts are under All runs."
_RULES_VIEW = "under Rules or models on one prompt"
_ELSEWHERE = {
    Across.SETTINGS: f"{_DECODE} {_RULES_VIEW}; {_OTHERS}",
    Across.RULES: f"{_DECODE} here; {_OTHERS}",
    Across.RUNS: f"{_DECODE} {_RULES_VIEW}.",
}
"""Where there is more to compare a text with than in the view itself."""


def parting(found: Alignment, names: Names, left: Piece | None, right: Piece | None) -> str:
    """Where both part: `left` and `right` are what each says there, None where its text is over."""
    shared = counted(found.prefix, found.unit.value)
    if found.identical and not found.prefix:
        return "Both write nothing."
    if found.identical:
        return f"{_capital(names.right)} and {names.left} write the same text ({shared})."
    begin = (
        f"Same first {shared.removeprefix('1 ')}; then "
        if found.prefix
        else f"They differ from the first {found.unit.value} on: "
    )
    if not found.prefix and (left is None or right is None):
        silent, other, said = (names.right, names.left, left) if right is None else (names.left, names.right, right)
        return f"{_capital(silent)} writes nothing, {other} begins with {_said(said)}."
    if right is None:
        return f"{begin}{names.right} ends, and {names.left} goes on with {_said(left)}."
    if left is None:
        return f"{begin}{names.left} ends, and {names.right} goes on with {_said(right)}."
    return f"{begin}{names.right} writes {_said(right)}, {names.left} writes {_said(left)}."


def _piece(run: Run, index: int | None) -> Piece | None:
    """The token at an index of the text; None where the text is over."""
    return None if index is None or index >= len(run.token_ids) else run.pieces[run.token_ids[index]]


def _said(piece: Piece | None) -> str:
    """A token in quotation marks."""
    return "the end of the text" if piece is None or piece.special else f"“{quoted(piece)}”"


def quoted(piece: Piece) -> str:
    """A token for a sentence: without the blanks around a word, what cannot be seen spelled out, isolated from what
    stands around it."""
    return _isolated(piece.text.strip() or piece.text)


def _isolated(text: str, most: int = 0) -> str:
    shown = shown_token(text, most or (QUOTED if len(text.split()) == 1 else 60))
    return isolated(shown.replace("·", " ") if text.strip() else shown)


def graded(left: bool | None, right: bool | None, names: Names) -> list[str]:
    """Which of them has the answer right, where that is known of both."""
    if left is None or right is None:
        return []
    if left == right:
        return [f"Both get the answer {'right' if left else 'wrong'}."]
    good, bad = (names.left, names.right) if left else (names.right, names.left)
    return [f"{_capital(good)} gets the answer right, {bad} wrong."]


def _capital(name: str) -> str:
    return name[:1].upper() + name[1:] if name == "strict" else name


def written(value: float, scale: NumberFormat) -> str:
    """A number of the table."""
    return (
        f"{number(100 * value)}{THIN_SPACE}%" if scale is NumberFormat.SHARE and math.isfinite(value) else number(value)
    )


def change(row: Difference) -> str:
    """Its difference, with a sign; shares in percentage points."""
    if not math.isfinite(row.change):
        return "–"
    value = 100 * row.change if row.scale is NumberFormat.SHARE else row.change
    unit = f"{THIN_SPACE}points" if row.scale is NumberFormat.SHARE else ""
    return ("+" if value > 0 else "") + number(value) + unit


def detail(one: Candidate, *, ruled: bool) -> str:
    """What a contender is and came to, in a line; `ruled` where its name says rule and dial."""
    run = one.run
    made = run.settings.draft if ruled else f"{_by_rule(one)}, {run.settings.draft}"
    said = f"τ {number(run.tau)}, {counted(len(run.token_ids), 'token')}, {counted(len(run.rounds), 'round')}"
    return f"{made}: {said}{answer(one.right)}"


def answer(right: bool | None) -> str:
    """Whether an answer is right, after a comma; empty where that is not known."""
    return {True: ", answer right", False: ", answer wrong", None: ""}[right]


def footnote(left: Candidate, right: Candidate) -> str:
    """What the table's numbers stand on, and what they cannot say."""
    if not (left.recorded and right.recorded):
        clock = " No speeds: at least one of these settings comes from the dial map and was not timed."
    else:
        devices = [one.run.provenance.device or "an unnamed device" for one in (left, right)]
        clock = " Measured: one decoding each, without an interval"
        clock += f", and on different devices: {devices[0]} and {devices[1]}." if devices[0] != devices[1] else "."
    trees = " Of a tree one path at most is kept, and acceptance and what is rolled back count all of its nodes."
    branched = any(one.run.settings.drafts_trees for one in (left, right))
    return (
        f"Exact: each text is the one that its setting generates.{trees if branched else ''}{clock} One prompt: no "
        "conclusion for others."
    )


def sweep_footnote(
    confidence: float, worse: Sequence[str], better: Sequence[str], *, turns: bool = False, costs: str = ""
) -> str:
    """What the intervals are, and which prompts turned; `turns` where prompts are turns of questions, `costs` a
    sentence on what modelled figures stand on."""
    drawn = "questions, each with all of its turns" if turns else "prompts"
    said = (
        f"Exact unless called modelled. In brackets: {number(100 * confidence)} % intervals, paired bootstrap over "
        f"{drawn}."
    )
    said += f" {costs}" if costs else ""
    for ids, turn in ((worse, "wrong"), (better, "right")):
        if ids:
            more = f" and {number(len(ids) - MOST_IDS)} more" if len(ids) > MOST_IDS else ""
            said += f" Became {turn}: {', '.join(ids[:MOST_IDS])}{more}."
    return said
