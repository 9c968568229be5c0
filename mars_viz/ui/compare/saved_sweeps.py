"""Saved sweeps on the Compare page: two settings of one sweep, or two sweeps paired by prompt, with intervals, and the
two texts of one prompt."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from mars_viz import default_folders
from mars_viz.analysis.alignment import Unit
from mars_viz.components.compare import text_pane, texts_payload
from mars_viz.components.compare import two_texts as show
from mars_viz.controllers import CONTROLLERS
from mars_viz.documents import Table
from mars_viz.errors import BadInput, SettingError
from mars_viz.escapes import markdown, visible
from mars_viz.sweep import SweepResult, document, pairing
from mars_viz.sweep.columns import GRADES, RIGHT, UNGRADED
from mars_viz.sweep.measures import DRAFTED, cell, told
from mars_viz.sweep.pairing import Change, Paired, Pairing, SweepSetting
from mars_viz.sweep.report import CachedSweep
from mars_viz.ui import faults, navigation, share, theme
from mars_viz.ui.compare import page_state
from mars_viz.ui.compare.page_state import SIDES, Comparison, Names
from mars_viz.ui.documents import draw, frame
from mars_viz.ui.session import bound
from mars_viz.ui.tune.catalogue import SweepCatalogue, shelf
from mars_viz.words import counted, exactly, number, setting

COMPARED = (
    *("tau", "accuracy", "speed_up", "drafted", "acceptance"),
    *("relaxed", "rolled_back", "passes", "tokens", "same"),
)
"""Figures of the table in order, if a sweep has them."""
DIALS = ("from_dial", "to_dial")  # fields of the view
PROMPT_LENGTH = 80  # maximum number of characters of a prompt in the table
_HUNDREDTHS = st.column_config.NumberColumn(format="%.2f")


def opened_sweep(catalog: SweepCatalogue, name: str) -> CachedSweep:
    """Return a sweep. Raises BadInput if it cannot be read or no prompt is finished."""
    if (sweep := catalog.opened(name)) is None:
        raise SettingError(f"No prompt of the sweep {catalog.labels[name]} is finished. Choose another.")
    return sweep


def setting_names(both: Pairing) -> Names:
    """Return the shortest distinct names: for one sweep by dial; otherwise by rule or controller and dial, draft,
    drafter or target, and folder."""
    settings = (both.left, both.right)
    plans = [each.result.plan for each in settings]
    if both.one_sweep:  # 'strict', for drafts of full length 'fixed γ', otherwise 'θ = 0.90'
        return Names(
            *(
                plan.against if each.dial == plan.strict else setting(plan.symbol, each.dial)
                for each, plan in zip(settings, plans, strict=True)
            )
        )
    same_rule = all(plan.over for plan in plans) and plans[0].judged == plans[1].judged
    same_target = plans[0].provenance.target == plans[1].provenance.target
    models = [plan.provenance.drafter if same_target else plan.provenance.target for plan in plans]
    more = [plan.settings.draft for plan in plans], [visible(name or "an unnamed model") for name in models]
    parts = [[_by_rule(each, alone=same_rule) for each in settings], *(part for part in more if part[0] != part[1])]
    names = [" with ".join(side) for side in zip(*parts, strict=True)]
    if names[0] == names[1]:
        names = [f"{name}, {visible(each.result.folder.name)}" for name, each in zip(names, settings, strict=True)]
    return Names(*names)


def _by_rule(one: SweepSetting, *, alone: bool) -> str:
    """Return 'MARS at θ = 0.90', or for a controller 'SVIP at λ = 0.30, MARS at θ = 0.9'. With `alone`, the rule is
    left out."""
    plan = one.result.plan
    at = f"{plan.axis.title} at {setting(plan.symbol, one.dial)}"
    if not plan.over:
        return at
    cut = plan.against if one.dial == plan.strict else at
    return cut if alone else f"{cut}, {plan.judged}"


def _controllers_basis(both: Pairing) -> str:
    stops, judges = [], []
    for side in (both.left, both.right):
        plan = side.result.plan
        if plan.over:
            stops.append(f"{plan.axis.title} stops where {CONTROLLERS[plan.over].formula}.")
            judges.append(f"{plan.judged} judges, of drafts of γ = {plan.settings.gamma} at most.")
        elif plan.settings.control is not None:
            stops.append(f"{plan.rule.title} judges {plan.settings.draft}.")
    return " ".join(dict.fromkeys(stops + judges))


def difference(row: Paired) -> str:
    return told(row.measure.name, row.change.scaled(1), change=True)


def sweep_finding(both: Pairing, table: Sequence[Paired], worse: int, better: int, called: Names) -> str:
    """Return the main result; `worse` and `better` are the numbers of changed answers."""
    tau, over = table[0], counted(len(both.ids), "prompt" if both.one_sweep else "shared prompt")
    if both.one_setting:
        return (
            f"Both are at {called.right}, so nothing differs: τ {number(tau.right.estimate)} over {over}. "
            "Choose another value for one of them."
        )
    sentence = (
        f"τ (tokens per target pass) over {over}: {number(tau.right.estimate)} ({called.right}) against "
        f"{number(tau.left.estimate)} ({called.left}), difference {difference(tau)}."
    )
    if (drafted := next((row for row in table if row.measure.name == DRAFTED.name), None)) is not None:
        ends = (number(side.estimate) for side in (drafted.right, drafted.left))
        sentence += f" Drafted tokens per prompt: {' against '.join(ends)}, difference {difference(drafted)}."
    if not both.graded.any():
        return sentence
    sentence += f" Of {counted(int(both.graded.sum()), 'graded answer')}, {number(worse)} "
    if both.one_sweep:
        return f"{sentence}{'becomes' if worse == 1 else 'become'} wrong and {number(better)} right."
    verb = "is" if worse == 1 else "are"
    return f"{sentence}{verb} wrong only with {called.right}, and {number(better)} only with {called.left}."


def costs_basis(both: Pairing) -> str:
    """Return a sentence about which sweep's costs the modelled speed-ups use; empty if both have the same."""
    own, used = (both.left.result.costs, both.right.result.costs), both.costs
    if None in own or own[0] == own[1]:
        return ""
    whose = "each sweep measured for itself, of other models or on another device"
    if used[0] == used[1]:
        whose = f"the {'reference' if used[0] is own[0] else 'other sweep'} measured"
    return f"Speed-ups over the target alone are modelled with the costs of passes that {whose}."


def _prompt_by_prompt(both: Pairing) -> pd.DataFrame:
    """Draw and return the table of prompts."""
    table = pd.DataFrame({"prompt": both.ids, "text": [text[:PROMPT_LENGTH] for text in both.texts]})
    for side, name in enumerate(SIDES):
        grades, tokens, passes, drafted = (both.at(column)[side] for column in ("right", "tokens", "rounds", "drafted"))
        if both.graded.any():
            table[f"answer, {name}"] = [GRADES[int(value)] for value in grades]
        table[f"tokens, {name}"], table[f"drafted, {name}"] = tokens, drafted
        table[f"τ, {name}"] = np.divide(tokens, passes, out=np.full(len(table), np.nan), where=passes > 0)
    words = "The first difference of both texts is known for single prompts only: a sweep keeps no texts."
    if both.divergence is not None:
        table["first differs at token"] = ["never" if at < 0 else f"{at + 1}" for at in both.divergence.tolist()]
        same = int((both.divergence < 0).sum())
        verb = "is" if same == 1 else "are"
        words = f"{counted(same, 'text')} of {len(both.ids)} {verb} identical token for token."
    theme.section("Prompt by prompt")
    theme.small(words)
    st.dataframe(
        table, hide_index=True, key="compare-prompts", height=min(420, 38 + 35 * len(table)),
        column_config={name: _HUNDREDTHS for name in table.columns if name.startswith("τ")},
        alt="The answers of each sweep to each prompt that both hold",
    )  # fmt: skip
    return table


def figures(rows: Sequence[Paired], names: Names) -> Table:
    lines = []
    for row in rows:
        sides = [cell(row.measure, side) for side in (row.left, row.right)]
        lines.append([row.measure.title, *sides, difference(row), row.measure.basis])
    alt = "Both dial values over all prompts"
    return Table(["figure", names.left, names.right, "difference", "basis"], lines, "both-settings", alt)


LABEL_LENGTH = 60  # maximum number of characters of a prompt in the list
_LOOKED_AT = 8 * LABEL_LENGTH  # may include blanks


def both_texts(memory: Comparison, both: Pairing, names: Names) -> None:
    theme.section("Both texts of one prompt")
    changes = pairing.changes(both)
    counts = Counter(changes.values())
    parts = [f"{kind.value} {number(counts[kind])}" for kind in Change if counts[kind]]
    theme.small(f"{counted(len(changes), 'prompt')}, changed ones first: {', '.join(parts)}.")
    place = _chosen(memory, both, changes)
    try:
        *pair, alignment = pairing.kept(both, place)
    except BadInput as error:
        theme.note(str(error))
        return
    ours, theirs = (None if at[place] == UNGRADED else bool(at[place] == RIGHT) for at in both.at("right"))
    sentences = [page_state.parting(alignment, names, *pair)]
    if alignment.unit is Unit.CHARACTERS:
        sentences.append("Their tokenizers differ, so they are compared by characters.")
    page_state.lead(" ".join([*sentences, *page_state.graded(ours, theirs, names)]))
    counts_of = zip(both.at("tokens"), both.at("rounds"), (ours, theirs), strict=True)
    details = [page_state.counts(int(tokens[place]), int(rounds[place]), right) for tokens, rounds, right in counts_of]
    left, right = map(text_pane, names, details, pair, (alignment.left, alignment.right))
    show(texts_payload(both.texts[place], left, right, alignment.unit), key="compare-texts")


def _chosen(memory: Comparison, both: Pairing, changes: Mapping[int, Change]) -> int:
    places = {both.ids[place]: place for place in changes}
    if memory.view.prompt not in ("", *places):
        words = _clipped(memory.view.prompt)
        theme.note(f"The prompt “{words}” is not among those compared; another one is shown instead.")
        memory.view = replace(memory.view, prompt="")
        navigation.write_link(page_state.to_parameters("", memory.view))
    chosen = memory.view.prompt or next(iter(places))
    # the labels outlive the page
    parts = {name: (name, changes[place].value, _clipped(both.texts[place])) for name, place in places.items()}
    labels = {name: visible(" · ".join(each).removesuffix(" · ")) for name, each in parts.items()}
    bound(
        st.selectbox, "Prompt", "compare-prompt", chosen, lambda name: memory.look(prompt=name),
        options=list(places), format_func=labels.__getitem__,
        help="Those whose answer changes come first; type to search",
    )  # fmt: skip
    return places[chosen]


def _clipped(text: str) -> str:
    end = text.rstrip()[-_LOOKED_AT:]  # prompts may be long, and there may be thousands
    line = " ".join(end.split())
    is_complete = len(line) <= LABEL_LENGTH and len(end) < _LOOKED_AT
    return line if is_complete else f"…{line[-LABEL_LENGTH + 1 :]}"


@faults.fragment
def over_a_sweep(memory: Comparison) -> None:
    catalog = shelf(default_folders.sweeps())
    theme.note(catalog.error, *memory.notices)
    if catalog.error:
        return
    if not catalog.entries:
        theme.note(
            "There is no saved sweep here yet. Make one on Tune, or with mars-viz sweep --out FOLDER; the variable "
            f"{default_folders.SWEEPS} names the folder that holds it."
        )
        return
    try:
        left, right = st.columns(2, gap="medium")
        chosen_sweep(memory, left, catalog)
        chosen_beside(memory, right, catalog)
        _over_both(memory, catalog)
    except BadInput as error:
        theme.note(str(error))


def _over_both(memory: Comparison, catalog: SweepCatalogue) -> None:
    sweeps = [opened_sweep(catalog, name) for name in (memory.view.sweep, memory.view.beside) if name]
    columns, settings = st.columns(2, gap="medium"), []
    for column, field, words, sweep in zip(columns, DIALS, SIDES, (sweeps[0], sweeps[-1]), strict=True):
        plan = sweep.plan
        default = plan.strict if len(sweeps) == 1 and field == DIALS[0] else plan.axis.dial.default
        label = words if len(sweeps) == 1 else f"{words}: {plan.title}"
        settings.append(SweepSetting(sweep.result, _dial_input(memory, column, sweep.result, field, default, label)))
    left, right = settings
    memory.view = replace(memory.view, from_dial=left.dial, to_dial=right.dial)
    navigation.write_link(page_state.to_parameters("", memory.view))

    def compared() -> tuple[Pairing, tuple[Paired, ...]]:
        with st.spinner("Computing the intervals"):
            return (both := pairing.pair(left, right)), pairing.compared(both, COMPARED)

    both, rows = sweeps[0].kept(("compared", sweeps[-1], left.dial, right.dial), compared)
    names, ids = setting_names(both), np.array(both.ids, object)
    worse, better = (ids[turned].tolist() for turned in pairing.turned(both))
    page_state.lead(sweep_finding(both, rows, len(worse), len(better), names))
    for sentence in filter(None, [_controllers_basis(both), "" if both.one_sweep else both.coverage]):
        theme.small(sentence)
    table = figures(rows, names)
    draw([table])
    confidence, turns, costs = rows[0].change.confidence, both.units is not None, costs_basis(both)
    st.caption(markdown(page_state.sweep_footnote(confidence, worse, better, turns=turns, costs=costs)))
    drafted = _by_drafter(catalog, memory.view.sweep, right.dial)
    both_texts(memory, both, names)
    what = "setting" if both.one_sweep else "sweep"
    tables = [share.Table(f"Both {what}s in numbers", f"{what}s-compared", lambda: frame(table))]
    if not both.one_sweep:
        prompts = _prompt_by_prompt(both)
        tables.append(share.Table("Prompt by prompt", "sweeps-by-prompt", lambda: prompts))
    if drafted is not None:
        tables.append(share.Table("Drafters", "drafters", lambda: frame(drafted)))
    rules = dict.fromkeys(side.result.plan.rule.name for side in (left, right))
    share.tables(tables, rules, "compare-sweep" if both.one_sweep else "compare-sweeps")


def _by_drafter(catalog: SweepCatalogue, name: str, dial: float) -> Table | None:
    """Draw a row per drafter of the same target on the same prompts, if there are several finished sweeps of them."""
    base, names = catalog.entries[name].plan, [name]
    for other, entry in catalog.entries.items():
        within = entry.complete and entry.plan is not None and entry.plan.low <= dial <= entry.plan.high
        if within and base is not None and entry.plan is not None and document.only_drafter_differs(base, entry.plan):
            names.append(other)
    if len(names) < 2:
        return None
    theme.section("Every drafter on these prompts")
    table = document.by_drafter([opened_sweep(catalog, each) for each in names], dial)
    theme.small(
        f"{table.alt}. Columns 1 to γ: acceptance at this position of the draft, if all before it are accepted."
    )
    draw([table])
    return table


def chosen_sweep(memory: Comparison, column: DeltaGenerator, catalog: SweepCatalogue) -> None:
    """Draw the picker of sweeps; a missing one is replaced by the newest."""
    if memory.view.sweep not in catalog.entries:
        if memory.view.sweep:
            theme.note("There is no sweep of the link's name here; the newest is shown.")
        memory.view = replace(memory.view, sweep=next(iter(catalog.entries)))

    def choose(sweep: str) -> None:
        memory.look(sweep=sweep, beside="", from_dial=None, to_dial=None, prompt="")

    options, words = list(catalog.entries), catalog.labels.__getitem__
    bound(column.selectbox, "Sweep", "compare-sweep", memory.view.sweep, choose, options=options, format_func=words)


def chosen_beside(memory: Comparison, column: DeltaGenerator, catalog: SweepCatalogue) -> None:
    """Draw the picker of the other sweep, empty for the same; one that cannot be opened is left out with a note."""
    others = [name for name in catalog.entries if name != memory.view.sweep]
    try:
        if memory.view.beside and memory.view.beside not in others:
            raise SettingError("There is no other sweep of the link's second name here.")
        if memory.view.beside:
            opened_sweep(catalog, memory.view.beside)
    except BadInput as error:
        theme.note(f"{error} Two settings of one sweep are shown instead.")
        memory.view = replace(memory.view, beside="")
    words = {"": "the same sweep at another setting", **catalog.labels}

    def choose(name: str) -> None:
        memory.look(beside=name, from_dial=None, to_dial=None)

    bound(
        column.selectbox, "Compare with", "compare-beside", memory.view.beside, choose,
        options=["", *others], format_func=words.__getitem__, disabled=not others,
        help="Another rule, controller, drafter or target over the same prompts, paired prompt by prompt",
    )  # fmt: skip


def _dial_input(
    memory: Comparison, column: DeltaGenerator, result: SweepResult, name: str, default: float, words: str
) -> float:
    plan, value, key = result.plan, getattr(memory.view, name), f"compare-{name}"
    dial = plan.axis.dial
    if value is not None and not plan.low <= value <= plan.high:
        theme.note(
            f"{dial.symbol} = {exactly(value)} is not among what this sweep covers, {exactly(plan.low)} to "
            f"{exactly(plan.high)}; the nearest value is shown instead."
        )
    value = min(max(default if value is None else value, plan.low), plan.high)
    how = {"min_value": plan.low, "max_value": plan.high, "step": dial.step, "format": "%g"}
    return float(
        bound(
            column.number_input, markdown(f"{dial.symbol}, {words}"), key, value,
            lambda turned: memory.look(**{name: turned}), **how,
        )
    )  # fmt: skip
