"""A sweep's results as blocks, for the Tune page, the terminal and the evidence pack."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from mars_viz.analysis.engines import EngineRow, Within, synthetic_settings
from mars_viz.analysis.intervals import RESAMPLES
from mars_viz.analysis.recommendation import Recommendation, about
from mars_viz.controllers import CONTROLLERS
from mars_viz.costs import Cost, Costs, Factor, disturbance, position_cost, ratio, slower
from mars_viz.documents import BASES, Block, Code, Section, Sentence, Table
from mars_viz.escapes import visible
from mars_viz.rules import Rule, rule_named
from mars_viz.run import Settings
from mars_viz.shapes import CHAIN, shape_named
from mars_viz.sweep.columns import RANK_WORDS, SHARE_WORDS
from mars_viz.sweep.measures import EVEN, Terms, cell, spread, told
from mars_viz.sweep.plan import Plan, turns_words
from mars_viz.sweep.report import PACES, CachedSweep, GridTable, LoadTable, drawn, losing, missing, settings_of
from mars_viz.sweep.result import SweepResult, together
from mars_viz.sweep.wall_clock import Checks, TimingCheck, excluded
from mars_viz.words import (
    counted,
    decimals_within,
    exact_setting,
    exactly,
    number,
    ranged,
    setting,
    short_device,
    times,
)

COMPUTED = f"from {RESAMPLES:,} resamples that depend on the number of prompts alone: the same data, the same interval"
MOST_FAILURES = 10  # maximum number of failed prompts listed
COLUMNS = 5  # number of dial values of a grid's table, in addition to the chosen one
VARIED = ("tau", "answer", "answer_strict", "accuracy", "accuracy_change", "looping")
"""Figures that have a table in a grid."""


def lead(sweep: CachedSweep, dial: float) -> tuple[Sentence, ...]:
    """Return the parts of a sentence that compares the setting with strict or with fixed γ."""
    if sweep.plan.over:
        return _shortened(sweep, dial)
    plan = sweep.plan
    at = f"{plan.rule.title} at {exact_setting(plan.symbol, dial)}"
    if dial == plan.strict:
        tau = number(sweep.value("tau", dial).estimate)
        return (Sentence(f"{at} is strict: {tau} tokens per target pass.", "exact"),)
    if sweep.value("same", dial).estimate == 1:
        moved = _accuracy_change(sweep, dial) if sweep.graded else "."
        return (Sentence(f"{at} writes the same text as strict on every prompt{moved}", "exact"),)
    passes, strict_passes = (sweep.value("passes", value).estimate for value in (dial, plan.strict))
    end = f"; {ranged(sweep.value('same', dial).scaled(100), ' %')} of texts are identical to strict."
    return (
        *_loss(sweep, dial),
        _pace(sweep, dial, at),
        Sentence(f": {number(passes)} target passes per prompt, strict {number(strict_passes)}", "exact"),
        Sentence(_accuracy_change(sweep, dial) if sweep.graded else end, "exact"),
    )


def _pace(sweep: CachedSweep, dial: float, setting: str) -> Sentence:
    """Return the setting in words and its speed-up of answers, if known, with that per token if lengths differ."""
    if "answer_strict" not in sweep.measures:
        return Sentence(setting)
    answers, per_token, length = (sweep.value(name, dial) for name in ("answer_strict", "speed_up_strict", "length"))
    pace = f"{setting} answers {spread(answers)} as fast as {sweep.plan.against}"
    if times(length.estimate) != "1":
        pace += f", with answers {spread(length)} as long ({times(per_token.estimate)}× per token)"
    return Sentence(pace, "modelled")


def _loss(sweep: CachedSweep, dial: float) -> tuple[Sentence, ...]:
    """Return why speculation is slower than the target alone at this setting; empty if it is not, or not known."""
    costs, plan = sweep.result.costs, sweep.plan
    if costs is None or plan.cut_by is not None or "answer" not in sweep.measures:
        return ()
    why = slower(costs, plan.settings.gamma, sweep.value("tau", dial).estimate)
    return (Sentence(f"{why} ", "modelled"),) if why else ()


def _shortened(sweep: CachedSweep, dial: float) -> tuple[Sentence, ...]:
    plan, controller = sweep.plan, CONTROLLERS[sweep.plan.over]
    tau, drafted = (sweep.value(name, dial).estimate for name in ("tau", "drafted"))
    counts = f"{number(drafted)} drafted tokens per prompt, {number(tau)} tokens per target pass"
    if dial == plan.strict:
        return (Sentence(f"At {exact_setting(plan.symbol, dial)} nothing is cut: {counts}.", "exact"),)
    where = controller.advice(dial, "Drafting", "Stopping")
    full_drafted = sweep.value("drafted", plan.strict).estimate
    full = f": {counts}; {plan.against} drafts {number(full_drafted)}{'' if sweep.graded else '.'}"
    parts = _pace(sweep, dial, where), Sentence(full, "exact")
    return (*parts, Sentence(_accuracy_change(sweep, dial), "exact")) if sweep.graded else parts


def _accuracy_change(sweep: CachedSweep, dial: float) -> str:
    change, accuracy = (sweep.value(name, dial).scaled(100) for name in ("accuracy_change", "accuracy"))
    is_now = f"; accuracy is {number(accuracy[0], decimals_within(*accuracy[1:]))} %"
    grades = sweep.result.at("right", np.array([dial])), sweep.result.at("right", np.array([sweep.plan.strict]))
    if (grades[0] != grades[1]).any():
        return f"{is_now}, {ranged(change, ' points', signed=True)} vs {sweep.plan.against}."
    low, high = (number(end, decimals_within(*change[1:])) for end in change[1:])
    return f"{is_now}, and no prompt's grade changes ({low} to {high} points)."


def advice(sweep: CachedSweep, recommendation: Recommendation, dial: float, terms: Terms) -> str:
    """Return the recommendation, the next step, and the tasks that lose too much at this setting."""
    result, tasks = sweep.result, losing(sweep.tasks(dial), terms, sweep.plan.against)
    so_far = f"So far, from the first {number(result.finished)} of {number(sweep.plan.prompts)} prompts: "
    text = f"{'' if result.complete else so_far}{recommendation.sentence} {recommendation.next_step}".rstrip()
    return f"{text} At {exact_setting(sweep.plan.symbol, dial)}: {tasks[0].lower()}{tasks[1:]}" if tasks else text


def brackets(sweep: CachedSweep, terms: Terms) -> str:
    """Return sentences that define the brackets."""
    return terms.brackets(drawn(sweep.result), sweep.result.questions)


def reading(sweep: CachedSweep, terms: Terms) -> list[Block]:
    """Return how to read the numbers."""
    computed = (
        f"The intervals are computed {COMPUTED}. They are not simultaneous, and those of modelled figures include"
    )
    sentences = (brackets(sweep, terms), f"{computed} the intervals of the costs.", *BASES.values())
    return [Sentence(each) for each in sentences]


def coverage(sweep: CachedSweep) -> str:
    """Return the basis of all figures."""
    result, plan = sweep.result, sweep.plan
    left = f", {counted(len(result.failures), 'prompt')} without results" if result.failures else ""
    if not result.complete:
        left += f", {number(plan.prompts - result.finished)} not done yet"
    turns = "" if result.units is None else f", turns of {counted(result.questions, 'question')}"
    return (
        f"{counted(len(result), 'prompt')} of {plan.prompt_set}{turns}, "
        f"{number(int(result.graded.sum()))} graded{left}; "
        f"{counted(result.positions, 'drafted position')}; {plan.settings.draft}, temperature "
        f"{plan.settings.temperature:g}, max {number(plan.settings.max_new_tokens)} new tokens; "
        f"{plan.provenance.target} with {plan.provenance.drafter} on {short_device(plan.provenance.device)}. "
        f"{off(result)} {turns_words(plan)}"
    ).rstrip()


def off(result: SweepResult) -> str:
    """Return how many texts at the reference equal those of an independent walk."""
    same = f"{number(int(result.prompts['off_is_strict'].sum()))} of {number(len(result))} texts equal"
    if result.plan.over:
        return f"With drafts of full length {same} those of a walk without controller."
    return f"At the strict end {same} the lossless rule's token for token{result.compared}."


def failures(result: SweepResult) -> list[Block]:
    """Return a sentence for each prompt without results, for many only the first."""
    listed: list[Block] = [
        Sentence(f"{each.id} has no results: {each.reason}", small=True) for each in result.failures[:MOST_FAILURES]
    ]
    more = len(result.failures) - len(listed)
    return listed + ([Sentence(f"{number(more)} more have none.", small=True)] if more else [])


def figures(sweep: CachedSweep, dial: float) -> Table:
    """Return every figure at strict, at the setting and at the loosest one."""
    plan, columns = sweep.plan, settings_of(sweep.result, dial)
    names = {"strict": plan.against, "loosest": "shortest drafts" if plan.over else "loosest"}
    heads = [f"{names.get(name, name)}, {exact_setting(plan.symbol, at)}" for name, at in columns.items()]
    rows = [
        [each.title, *(cell(each, sweep.value(name, at)) for at in columns.values()), each.basis]
        for name, each in sweep.measures.items()
    ]
    alt = "All figures at strict, this setting and the loosest"
    return Table(["figure", *heads, "basis"], rows, "all-figures", alt)


def tasks(
    sweep: CachedSweep, dial: float, sides: Sequence[str] = ("strict", "chosen"), most: int | None = None
) -> list[Block]:
    """Return the figures of at most so many tasks and of all together; empty for a single task. Comparisons with strict
    have one column, other figures one for each of the `sides`."""
    results, against = sweep.tasks(dial), sweep.plan.against
    if not results:
        return []
    titles = {
        "accuracy_change": f"accuracy vs {against}",
        "accuracy": "accuracy",
        "tau": "τ",
        "answer_strict": f"× {against}, modelled",
        "answer": "× target alone, modelled",
        "looping": "loop",
    }
    alone = ("accuracy_change", "answer_strict")
    labels = {"strict": against, "chosen": exact_setting(sweep.plan.symbol, dial)}
    columns = [
        (side, name)
        for name in titles
        if name in results[-1].chosen
        for side in sides
        if side == "chosen" or name not in alone
    ]
    heads = [titles[name] if name in alone else f"{titles[name]}, {labels[side]}" for side, name in columns]
    rows = []
    for row in [*results[:-1][:most], results[-1]]:
        at = [getattr(row, side).get(name) for side, name in columns]
        cells = [
            "not graded" if found is None else cell(sweep.measures[name], found)
            for found, (_, name) in zip(at, columns, strict=True)
        ]
        rows.append([row.task, number(row.prompts), *cells])
    more = len(results) - len(rows)
    left = [Sentence(f"{counted(more, 'more task')} in tasks.csv.")] if more else []
    table = Table(["task", "prompts", *heads], rows, "tasks", "Results by task and together")
    return [Sentence(f"Each task at {against} and at {labels['chosen']}.", "exact"), table, *left]


def clock(sweep: CachedSweep, dial: float, checks: Checks) -> list[Block]:
    """Return the newest wall-clock check of the setting, and a table of all if there are more."""
    newest, blocks = checks.latest(dial), list[Block]()
    if newest is not None:
        blocks += timed(replace(newest, how=sweep.how))
    if note := excluded(sweep.plan.over or sweep.plan.settings.controller):
        blocks.append(Sentence(note, small=True))
    if len(checks.found) == (newest is not None):
        return blocks
    against = f"over {sweep.plan.against}"
    heads = ["measured, UTC", sweep.plan.symbol, against, "modelled", "over the target alone", "prompts", "repetitions"]
    rows = []
    for check in (replace(each, how=sweep.how) for each in checks.found[::-1]):
        alone = "disturbed" if check.objection else spread(check.pace_over(check.target))
        paces = [spread(check.pace_over(check.strict)), f"{times(check.modelled_over_strict)}×", alone]
        counts = map(str, check.chosen.seconds.shape)
        rows.append([check.created.replace("T", " ")[:16], exactly(check.dial), *paces, *counts, check.device])
    return [*blocks, Table([*heads, "device"], rows, "checks", "Every wall-clock check of this sweep")]


def timed(check: TimingCheck) -> list[Block]:
    """Return the results of a wall-clock check, measured and modelled."""
    prompts, repetitions = check.chosen.seconds.shape
    parts = []
    for other, label in ((check.strict, check.against), (check.target, "the target alone")):
        over = check.modelled_answers_over(other)
        modelled = "" if math.isnan(over) else f" (modelled {times(over)}×)"
        parts.append(f"{spread(check.answers_over(other))} as fast as {label}{modelled}")
    ways = (("the target alone", check.target), (check.against, check.strict), ("this setting", check.chosen))
    paces = ", ".join(f"{label} {ranged(check.pace(way).scaled(1))}" for label, way in ways)
    measured = f"Measured: answers {parts[0]}"
    per_token = f"Per token {spread(check.pace_over(check.strict))} as fast as {check.against}."
    done = (
        f"{counted(prompts, 'prompt')}, {counted(repetitions, 'repetition')} in turn, on {short_device(check.device)}."
    )
    return [
        Sentence(f"{measured}{f'. {check.objection}' if check.objection else f', and {parts[1]}.'}", "measured"),
        Sentence(f"{per_token} Tokens a second: {paces}. {done}", small=True, more=check.device),
    ]


def costs(found: Costs) -> list[Block]:
    """Return the costs of passes."""
    rows = [
        (f"target, a pass over {counted(place, 'position')}", each) for place, each in enumerate(found.target_pass, 1)
    ]
    drafted = "a block" if found.tree == CHAIN else "a tree of {}"
    rows += [(f"drafter, {drafted.format(counted(n, 'level'))}", each) for n, each in enumerate(found.drafting, 1)]
    rows += [] if found.drafting else [("drafter, a token", found.drafter_step)]
    rows += [(f"the rest of a round of {n} drafted", found.rest[n - 1]) for n in sorted({1, found.gamma})]
    mentioned = found.others is None or bool(disturbance(found))
    quiet = "" if mentioned else f" Other processes used {number(found.others or 0)} cores meanwhile."
    about_them = (
        f"Costs of passes on {found.device} in {found.dtype}, batch size 1, caches of {found.cache_length} positions: "
        f"the lower quartile of {found.repeats} repeats in turn, with its 95 % interval.{quiet}"
    )
    table = Table(["", "ms"], [[name, _ms(each)] for name, each in rows], "costs")
    return [Sentence(about_them, "measured"), of_one_position(found), table]


def of_one_position(costs: Costs) -> Sentence:
    """Return the cost of verifying one more position."""
    further = position_cost(costs)
    share = ranged([further.estimate, further.low, further.high])
    return Sentence(f"Verifying one more position costs {share} of a pass over one.", "measured")


def _ms(cost: Cost) -> str:
    return told("ms", [1000 * each for each in (cost.seconds, cost.low, cost.high)])


def positions(sweep: CachedSweep, dial: float) -> list[Block]:
    """Return up to which position drafting pays, if that is known, and the acceptance by position."""
    kinds = sweep.positions(dial)
    rows = [[str(n), *(each.percent for each in row)] for n, row in enumerate(zip(*kinds.values(), strict=True), 1)]
    about = {EVEN: "Conditional acceptance from which drafting a token at this position pays"}
    table = Table(["position", *kinds], rows, "positions-pay", "Acceptance by position", about)
    if EVEN not in kinds:
        return [table]
    pays = [each.estimate > even.estimate for each, even in zip(kinds["conditional"], kinds[EVEN], strict=True)]
    until = f"up to position {sum(pays)} of {len(pays)}" if any(pays) else "nowhere"
    least = ranged(kinds[EVEN][0].scaled(100), " %")
    return [Sentence(f"Drafting one more token pays if {least} of rounds accept it: here {until}.", "modelled"), table]


NO_LOAD = "not measured: measure rounds of several texts at once (--load)"


def load(table: LoadTable) -> list[Block]:
    """Return with how many texts at once speculation pays, and with which drafts."""
    costs, chosen, gamma = table.costs, [row[table.gamma] for row in table.speed_ups], table.gamma
    words = [f"{counted(n, 'text')} at once, {spread(each)}" for n, each in zip(costs.sizes, chosen, strict=True)]
    first = next((place for place, each in enumerate(chosen) if each.estimate <= 1), len(words))  # that does not pay
    pays = f"pays with up to {words[first - 1]}" if first else f"is slower than the target alone with {words[0]}"
    further = f", and no longer with {words[first]}" if 0 < first < len(words) else ", the most measured" * (first > 0)
    g = f"γ = {gamma}"
    heads = ["texts at once", "target alone, ms", f"round, {g}, ms", f"× target, {g}", "best γ", "× target, best γ"]
    rows = [
        [number(size), _ms(rounds[0]), _ms(rounds[gamma]), spread(each), str(best), spread(row[best])]
        for size, rounds, each, best, row in zip(
            costs.sizes, costs.rounds, chosen, table.best, table.speed_ups, strict=True
        )
    ]
    shorter = "" if table.counted else f" A shorter draft is taken to accept the first of the tokens that {g} does."
    about_it = (
        f"Tokens a second over the target alone with as many texts: this sweep's tokens per round, and rounds measured "
        f"on {costs.device} in {costs.dtype} with caches of {costs.cache_length} positions, the lower quartile of "
        f"{costs.repeats} repeats in turn.{shorter} If an interval includes 1, this is not sure. An engine's "
        "batches cost more or less; measure there, too."
    )
    return [
        Sentence(f"With {g} speculation {pays}{further}.", "modelled"),
        Table(heads, rows, "load", "Modelled speed-up by the number of texts at once"),
        *(Sentence(each, small=True) for each in (about_it, costs.left_out, disturbance(costs)) if each),
    ]


def load_settings(table: LoadTable | None) -> list[Block]:
    """Return the draft length by number of requests for engines that take one."""
    if table is None:
        return [Sentence(f"Draft length by number of requests: {NO_LOAD}.")]
    longest, lengths = max(1, *table.best), {first: length for first, _, length in table.schedule}
    vllm = {"num_speculative_tokens": longest, "num_speculative_tokens_per_batch_size": table.schedule}
    fits = f"takes it as draft_len_schedule={lengths}, with some drafters"
    return [
        Sentence("vLLM, draft length by number of requests (modelled), to merge into --speculative-config:"),
        Code(json.dumps(vllm)),
        Sentence(
            f"TensorRT-LLM {fits if lengths[1] == longest else 'takes only lengths of which the first is the longest'}."
        ),
        Sentence("SGLang, llama.cpp and MAX lack a draft length by number of requests."),
    ]


def grid(table: GridTable, names: Sequence[str], dial: float) -> list[Block]:
    """Return tables of the named figures of all variants (rows), at a few dial values and this one (columns)."""
    setting, symbol, dials = table.axis.setting, table.symbol, table.dials.tolist()
    shown = few_dials(dials, dial)
    about_it = (
        f"{table.axis.symbol}: {setting.meaning}; {setting.default:g} by default. Rows are values of "
        f"{table.axis.symbol}, columns of {symbol}. Each row is a sweep of its own, of the same prompts."
    )
    if dial not in shown:
        about_it += f" {exact_setting(symbol, dial)} is no column, because not all of these sweeps go as far."
    blocks: list[Block] = [Sentence(about_it)]
    for name in names:
        measure = table.variants[0].sweep.measures[name]
        rows = [
            [setting.written(value), *(cell(measure, each.sweep.value(name, at)) for at in shown)]
            for value, each in zip(table.values, table.variants, strict=True)
        ]
        heads = [table.axis.symbol, *(exact_setting(symbol, at) for at in shown)]
        title = f"{measure.title[0].upper()}{measure.title[1:]}, by {table.axis.symbol} and {symbol}."
        blocks += [Sentence(title, measure.basis), Table(heads, rows, f"grid-{name}", measure.title)]
    return blocks


def few_dials(values: Sequence[float], wanted: float) -> list[float]:
    """Return evenly spaced values, including the ends, and the wanted one if it is among the values."""
    places = np.linspace(0, len(values) - 1, COLUMNS).round().astype(int).tolist() if values else []
    return sorted({*(values[place] for place in places), *(each for each in values if each == wanted)})


def grid_advice(table: GridTable) -> list[Block]:
    """Return how far the dial can go for each variant; empty if no prompt is graded."""
    first = table.variants[0].sweep
    if not first.graded:
        return []
    axis, pace = table.axis, first.measures[next(name for name in PACES if name in table.titles)]
    rows, sentences = [], list[Block]()
    for value, each in zip(map(axis.setting.written, table.values), table.variants, strict=True):
        dial, needed, cells = each.found.dial, each.found.prompts_needed, ["not enough prompts", "–"]
        if dial is not None:
            cells = [exact_setting(table.symbol, dial), cell(pace, each.sweep.value(pace.name, dial))]
        rows.append([value, *cells, "–" if needed is None else f"about {about(needed)}"])
        sentences.append(Sentence(f"{axis.symbol} = {value}: {each.found.sentence}", small=True))
    heads = [axis.symbol, "loosest within the loss", pace.title, f"{drawn(first.result)} to test the next"]
    alt = f"How far {table.symbol} can go for each {axis.symbol}"
    tested = Sentence(together(first.how.confidence, len(rows)))
    return [tested, Table(heads, rows, "grid-advice", alt), *sentences]


def relaxed(sweep: CachedSweep, dial: float) -> list[Block]:
    """Return the relaxed tokens by the target's rank and by p(x)/p1."""
    tables: list[Block] = []
    heads = (("target's rank", RANK_WORDS), ("p(x)/p(v1)", SHARE_WORDS))
    for (head, kinds), (counts, shares) in zip(heads, sweep.relaxed(dial).values(), strict=True):
        rows = [
            [kinds[place], number(count), told("relaxed", shares.at(place).scaled(1))]
            for place, count in enumerate(counts.tolist())
            if count
        ]
        tables.append(Table([head, "tokens", "share of the relaxed"], rows, head))
    if not any(isinstance(each, Table) and each.rows for each in tables):
        return [Sentence("No token was relaxed at this setting.")]
    return [Sentence("Shares of all relaxed tokens at this setting.", "exact"), *tables]


def by_definition(rows: Sequence[EngineRow], *, short: bool = False) -> Table:
    """Return a row per definition of acceptance; a `short` table lacks remarks and sources."""
    heads = ["engine", "length", "length is", "rate", "rate is", "bonus", "requests", "note", "source"]
    lines = []
    for row in rows:
        of = row.definition
        length = [_within(row.length, row.length_within), of.length_formula or "not reported"]
        rate = [_within(row.rate, row.rate_within), of.rate_formula or "not reported"]
        lines.append([of.engine, *length, *rate, of.bonus, of.pooling.value, of.note, of.source])
    count = 5 if short else len(heads)
    alt = "Acceptance length and rate under every engine's definition"
    return Table(heads[:count], [line[:count] for line in lines], "engines", alt)


def _within(value: float, within: Within) -> str:
    if within.interval is None:
        return f"{number(value)} (no interval: {within.why})" if within.why else number(value)
    return ranged((value, within.interval.low, within.interval.high))


def by_position(rows: Sequence[EngineRow]) -> Table:
    """Return the acceptance at each position of the block; without rows if it is unknown."""
    plain = next(row.unconditional for row in rows if row.unconditional is not None)
    both = next(row for row in rows if row.conditional is not None)
    kinds = {"unconditional": plain, "conditional": both.conditional, "joint": both.joint}
    lines = [[name, *map(number, () if values is None else values.tolist())] for name, values in kinds.items()]
    heads = ["acceptance at position", *(str(place) for place in range(1, len(plain) + 1))]
    return Table(heads, lines if len(plain) else [], "positions", "Acceptance by position in the block")


def engine_options(sweep: CachedSweep, dial: float) -> list[Block]:
    """Return the rule's setting in each engine, engines with the same note together."""
    at = sweep.plan.at(dial).dial or 0.0
    names: dict[tuple[str, str], list[str]] = {}
    for each in engine_settings(sweep.plan.settings, at):
        names.setdefault((each.note, each.text), []).append(each.engine)
    blocks: list[Block] = []
    for (note, text), engines in names.items():
        blocks += [Sentence(f"{', '.join(engines)}: {note}"), *([Code(text)] if text else [])]
    return blocks


def synthetic(sweep: CachedSweep, dial: float) -> list[Block]:
    """Return the settings with which engines imitate the acceptance."""
    flags = synthetic_settings(sweep.result.paths(dial))
    engines = (
        ("vLLM, to merge into --speculative-config:", flags["vllm"]),
        ("SGLang, environment:", flags["sglang"]),
        ("TensorRT-LLM, environment:", flags["tensorrt_llm"]),
    )
    return [Sentence(flags["warning"]), *(block for name, text in engines for block in (Sentence(name), Code(text)))]


def summary(
    sweep: CachedSweep, dial: float, checks: Checks, terms: Terms, table: LoadTable | None = None
) -> list[Block]:
    """Return the summary of a finished sweep for a terminal."""
    result, plan = sweep.result, sweep.plan
    span = f"{plan.title}, {plan.symbol} from {exactly(plan.low)} to {exactly(plan.high)}."
    disturbed = "" if result.costs is None else disturbance(result.costs)
    loss = losing(sweep.tasks(dial), terms, plan.against)
    remarks = [Sentence(each) for each in (missing(result.costs, result.folder), disturbed, loss) if each]
    sections: dict[str, Sequence[Block]] = {
        "".join(each.text for each in lead(sweep, dial)): [figures(sweep, dial), *remarks],
        "Results by task": tasks(sweep, dial, ("chosen",)),
        "Acceptance by position": positions(sweep, dial),
        "Wall clock": clock(sweep, dial, checks) if checks.found else [],
        "Load": [] if table is None else [*load(table), *load_settings(table)],
        "How to read the numbers": reading(sweep, terms),
    }
    return [Sentence(span), Sentence(coverage(sweep)), *failures(result), *in_sections(sections)]


def only_drafter_differs(one: Plan, other: Plan) -> bool:
    """Return True if both sweeps have the same prompts, target, settings, axis and device, and different drafters."""

    def shared(plan: Plan) -> tuple[object, ...]:
        made = plan.provenance
        models = made.target, made.target_revision, made.dtype, made.device
        return plan.prompt_set_sha256, plan.chat, plan.settings, plan.over, *models

    return shared(one) == shared(other) and one.provenance.drafter != other.provenance.drafter


def drafting_share(sweep: CachedSweep) -> Factor | None:
    """Return the time of a whole draft over that of the target's pass for one token; None without costs."""
    costs, gamma = sweep.result.costs, sweep.plan.settings.gamma
    if costs is None or not costs.cover(gamma, sweep.plan.settings.tree):
        return None
    step = costs.drafter_step
    whole = costs.drafting[-1] if costs.drafting else Cost(step.seconds * gamma, step.low * gamma, step.high * gamma)
    return ratio(whole, costs.passes[0])


def by_drafter(sweeps: Sequence[CachedSweep], dial: float) -> Table:
    """Return a row per drafter, the fastest first: τ, speed-up, acceptance, cost of a draft, and conditional acceptance
    by position at this setting, which all sweeps must cover."""
    ordered = sorted(sweeps, key=lambda sweep: -sweep.value(sweep.pace, dial).estimate)
    titles = {"tau": "τ", "answer": "× target alone, modelled", "acceptance": "accepted"}
    accepted = [sweep.positions(dial)["conditional"] for sweep in ordered]
    depth, rows = max(map(len, accepted)), []
    for sweep, shares in zip(ordered, accepted, strict=True):
        drafting = drafting_share(sweep)
        draft = "" if drafting is None else f"{drafting.estimate:.2f} ({drafting.low:.2f} to {drafting.high:.2f})"
        figures = [
            cell(sweep.measures[name], sweep.value(name, dial)) if name in sweep.measures else "" for name in titles
        ]
        positions = [number(each.estimate) for each in shares] + [""] * (depth - len(shares))
        rows.append([visible(sweep.plan.provenance.drafter or ""), *figures, draft, *positions])
    heads = ["drafter", *titles.values(), "draft, passes", *map(str, range(1, depth + 1))]
    about = {titles[name]: measure.title for name, measure in ordered[0].measures.items() if name in titles}
    about["draft, passes"] = "Time of a whole draft, in passes of the target over one token"
    return Table(heads, rows, "by-drafter", f"At {setting(sweeps[0].plan.symbol, dial)}", about)


def in_sections(blocks: Mapping[str, Sequence[Block]]) -> list[Block]:
    """Return sections by title, without empty ones."""
    return [Section(title, each) for title, each in blocks.items() if each]


ENGINES = ("vLLM", "SGLang", "TensorRT-LLM", "llama.cpp", "MAX")


@dataclass(frozen=True, slots=True)
class EngineSetting:
    """One engine's configuration for a rule."""

    engine: str
    text: str  # configuration; empty if the engine cannot draft like this
    note: str  # differences from the sweep, or a statement that the engine lacks the rule
    has_rule: bool = True  # False if it sets the draft alone


def engine_settings(settings: Settings, dial: float) -> tuple[EngineSetting, ...]:
    """Return the settings of each engine for the rule at this dial value, in the order of `ENGINES`."""
    rule = rule_named(settings.rule)
    known, drafts = _rule_settings(rule, dial, settings), _draft_settings(settings)
    alone = f"The rule {rule.title} does not exist there; this sets the draft alone."
    if rule.lossless:
        alone = f"{rule.title} keeps the target's law, as the engine does; this sets the draft."
    made = [EngineSetting(name, *known.get(name, (drafts[name], alone)), name in known) for name in ENGINES]
    if not settings.drafts_trees:
        return tuple(made)
    chains = f"It drafts chains, so there is nothing to set; swept was a {settings.draft}."
    return tuple(each if each.engine == "SGLang" else replace(each, text="", note=chains) for each in made)


def _draft_settings(settings: Settings) -> dict[str, str]:
    """Return the draft's length in each engine's configuration. llama.cpp stops a draft after a token with less than
    p-min, as the controller 'confidence' does. SGLang counts the text's last token, the root of the verified tree."""
    gamma, control, shape = settings.gamma, settings.control, shape_named(settings.tree).within(settings.gamma)
    least = (
        f" --spec-draft-p-min {exactly(control.threshold)}"
        if control and control.controller.name == "confidence"
        else ""
    )
    return {
        "vLLM": _vllm(gamma),
        "SGLang": f"--speculative-num-steps {shape.depth or gamma} --speculative-eagle-topk {shape.children} "
        f"--speculative-num-draft-tokens {gamma + 1}",
        "TensorRT-LLM": f"MTPDecodingConfig(max_draft_len={gamma})",
        "llama.cpp": f"--spec-draft-n-max {gamma}{least}",
        "MAX": f"SpeculativeConfig(num_speculative_tokens={gamma})",
    }


def _vllm(gamma: int, **options: object) -> str:
    return f"--speculative-config '{json.dumps({'num_speculative_tokens': gamma, **options})}'"


def _rule_settings(rule: Rule, dial: float, settings: Settings) -> dict[str, tuple[str, str]]:
    """Return the configuration, with a note, of each engine that has the rule."""
    gamma, at, best = settings.gamma, exactly(dial), int(rule.values.get("k", 3))
    match rule.family:
        case "vllm-thinking":
            note = (
                "In no release: pull request 45229 (closed) has this one field, with r = 0.5 and the 3 best tokens "
                "fixed, and relaxes only while the model thinks, greedily. Here the rule applied to the whole text."
            )
            if changes := [f"r = {at}"] * (dial != 0.5) + [f"the {best} best tokens"] * (best != 3):
                note += f" For {' and '.join(changes)} its constant{'s' * (len(changes) > 1)} must be changed."
            return {"vLLM": (_vllm(gamma, relaxed_thinking=True), note)}
        case "vllm-fly" | "fly":
            return {"vLLM": _fly(rule, dial, settings)}
        case "sglang-single" | "sglang-acc":
            single, acc = (at, "1") if rule.family == "sglang-single" else ("1", at)
            thresholds = f"--speculative-accept-threshold-single {single} --speculative-accept-threshold-acc {acc}"
            text = f"{_draft_settings(settings)['SGLang']} {thresholds}"
            return {"SGLang": (text, "Without effect on greedy requests.")}
        case "tensorrt-llm":
            relaxed = f"use_relaxed_acceptance_for_thinking=True, relaxed_topk={best}, relaxed_delta={at}"
            note = (
                "Relaxes only while the model thinks (set begin_thinking_phase_token and end_thinking_phase_token), "
                "greedily, and with its MTP drafter. Here the rule applied to the whole text."
            )
            maximum = "Relaxes only while the model thinks. Here the rule applied to the whole text."
            return {
                "TensorRT-LLM": (f"MTPDecodingConfig(max_draft_len={gamma}, {relaxed})", note),
                "MAX": (f"SpeculativeConfig(num_speculative_tokens={gamma}, {relaxed})", maximum),
            }
    return {}


def _fly(rule: Rule, dial: float, settings: Settings) -> tuple[str, str]:
    """Return vLLM's setting for its own rule or the paper's. vLLM's window excludes the mismatch, the paper's includes
    it."""
    gamma, window, best, note = settings.gamma, int(rule.values["w"]), 3, "vLLM 0.33.0 or later."
    if rule.family == "vllm-fly":
        best = int(rule.values["k"])
        if window >= gamma:
            return "", (
                f"vLLM refuses a window of {window} with {gamma} drafted tokens: it must be smaller. The rule "
                "relaxes nothing then, as the engine does when nothing is set."
            )
    else:
        window -= 1
        if not 0 < window < gamma:
            note = f"vLLM's window is from 1 to γ − 1; W = {window + 1} with γ = {gamma} would need {window}."
            return "", note
        swept = rule_named(f"vllm-fly:w={window}").name
        note = (
            "The nearest setting of vLLM 0.33.0 or later, not the same rule: it also forgives a rejection that exactly "
            f"{window} drafted tokens follow, and above temperature 0 it verifies by rejection sampling and takes the "
            f"entropy after temperature, top-k and top-p. The rule {swept} is vLLM's; sweep that one."
        )
    options: dict[str, object] = {"fly_window_size": window, "fly_entropy_threshold": dial, "fly_entropy_top_k": best}
    options |= {"draft_sample_method": "probabilistic"} if settings.temperature > 0 else {}
    return _vllm(gamma, rejection_sample_method="fly", **options), note
