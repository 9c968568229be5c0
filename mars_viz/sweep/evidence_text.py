"""The evidence as Markdown, with tables to paste into a pull request."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from mars_viz.escapes import commonmark
from mars_viz.run import LAW, stop_words
from mars_viz.shapes import CHAIN
from mars_viz.sweep.grid import few_dials, left_out
from mars_viz.sweep.report import FIGURES, TOLD, told
from mars_viz.words import counted, exactly, number, ranged

STRICT = "strict"  # name of the reference setting, unless a controller's threshold is swept
VARIED = ("tau", "speed_up", "speed_up_strict", "accuracy", "accuracy_change", "rolled_back")
"""Figures that have a table in a grid."""
MOST_TASKS = 60  # maximum rows of the table by task; tasks.csv contains the rest


def markdown(found: dict[str, Any]) -> str:
    """Return the complete document."""
    rule, dial = found["rule"], found["settings"]["chosen"]
    advice, terms, reproduction = found["recommendation"], found["terms"], found["reproduction"]
    advice_words = "No prompt is graded, so nothing is recommended." if advice is None else advice["sentence"]
    recommendation = [advice_words, found["losing_tasks"], found["chosen"]["words"]]
    recommendation += ["" if advice is None else terms["safe"], terms["brackets"]]
    references, source = found.get("references"), commonmark(rule["source"])
    parts = [
        f"# {rule['swept']} at {rule['dial']} = {exactly(dial)}, against {rule['against']}",
        *map(commonmark, filter(None, recommendation)),
        "## To reproduce",
        f"```\n{reproduction['command']}\n```",
        *map(commonmark, reproduction["needs"]),
        "## What was run",
        table(["", ""], _setup(found)),
        "## Results",
        _results(found),
        *_by_task(found),
        "## Speed",
        _speed(found),
        _costs(found),
        "## Off equals strict" if rule["against"] == STRICT else "## Full drafts",
        _off(found),
        f"## The dial, {rule['dial']}",
        _grid(found),
        *_variants(found),
        "## Relaxed tokens",
        _relaxed_tokens(found),
        "## Acceptance",
        _acceptance(found),
        "## Settings for engines",
        _engine_settings(found),
        "## Synthetic acceptance",
        _synthetic(found),
        "## How to read the numbers",
        _reading(found),
        *(["## References", f"{source}; as BibTeX in {references[0]}."] if references else []),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _setup(found: dict[str, Any]) -> list[tuple[str, str]]:
    models, data, rule = found["models"], found["data_set"], found["rule"]
    versions = ", ".join(f"{name} {version}" for name, version in models["versions"].items())
    trees = rule["tree"] != CHAIN
    sampling = [*([] if trees else [rule["gamma"]]), *(models[each.name] for each in LAW)]
    graded = f"{data['n']} of {data['prompts']} prompts, {data['graded']} graded"
    if data["turns"] == "all":
        graded += f", turns of {data['questions']} questions"
    controller = ""
    if cut := rule["controller"]:
        at = "the threshold is swept" if cut["threshold"] is None else f"at {exactly(cut['threshold'])}"
        controller = f"{cut['title']}: stops where {cut['formula']}; {at} ({cut['source']})"
    left_out_counts = (
        (data["skipped_lines"], "lines that are no prompts"),
        (data["later_turns"], "later turns of conversations, of which the first turn alone was decoded"),
        (len(data["failures"]), "prompts without results"),
        (data["not_finished"], "prompts not finished yet"),
    )
    return [
        ("target", f"{models['target']}, revision {models['target_revision'] or 'unknown'}"),
        ("drafter", f"{models['drafter']}, revision {models['drafter_revision'] or 'unknown'}"),
        ("swept", f"{models['created'].replace('T', ' ')[:16]} UTC" if models["created"] else "unknown when"),
        ("dtype, device", f"{models['dtype']}, {models['device']}"),
        (
            "batch size",
            "1: costs and wall clock are those of one text at a time; counts hang on it by ties within rounding alone",
        ),
        ("versions", f"MARS Viz {found['version']}, {versions}"),
        ("rule", f"{rule['title']}: {rule['formula']} ({rule['source']})"),
        ("fixed settings", ", ".join(f"{name} = {value:g}" for name, value in rule["fixed"].items()) or "none"),
        *([] if rule["at"] is None else [("judged at", exactly(rule["at"]))]),
        *([("draft-length controller", controller)] if controller else []),
        *([("draft", rule["draft"])] if trees else []),
        (f"{'' if trees else 'γ, '}temperature, top-p, top-k", ", ".join(f"{value:g}" for value in sampling)),
        ("seed, max new tokens", f"{models['seed']}, {models['max_new_tokens']}"),
        *([("stop strings", stop_words(models["stop"]))] if models["stop"] else []),
        ("chat template", "yes" if models["chat"] else "no"),
        ("data set", f"{data['name']}: {graded}; SHA-256 {data['sha256'][:16]}"),
        *([("conversations", data["turns_are"])] if data["turns"] == "all" else []),
        ("left out", ", ".join(f"{count} {what}" for count, what in left_out_counts if count) or "nothing"),
    ]


def _results(found: dict[str, Any]) -> str:
    columns = found["settings"]
    names = {STRICT: found["rule"]["against"]}
    heads = ["", *(f"{names.get(name, name)}, {found['rule']['dial']} = {exactly(at)}" for name, at in columns.items())]
    rows = []
    for row in found["figures"]:
        cells = [figure_cell(row["figure"], row["settings"][name]) for name in columns]
        rows.append([f"{row['title']} ({row['basis']})" if row["basis"] not in row["title"] else row["title"], *cells])
    objection = (
        f"No modelled speed-up over the target alone: {found['costs_objection']}" if found["costs_objection"] else ""
    )
    remarks = "\n\n".join(commonmark(each) for each in (objection, found["costs_disturbance"]) if each)
    results = table(heads, rows) + (remarks and f"\n\n{remarks}")
    if found["accuracy"] is None:
        return f"{results}\n\nNo prompt is graded, so there is no accuracy."
    against, rows = found["rule"]["against"], []
    chosen = "relaxed, the chosen setting" if against == STRICT else "the chosen setting"
    for name, each in found["accuracy"].items():
        label = {"target": "target alone", "strict": against, "relaxed": chosen}[name]
        rows.append([label, f"{each['right']} of {each['n']}", figure_cell("accuracy", each["wilson"])])
    return f"{results}\n\n" + table(["right texts", "", "accuracy (Wilson's interval)"], rows)


def _by_task(found: dict[str, Any]) -> list[str]:
    rows, rule = found["by_task"], found["rule"]
    if not rows:
        return []
    titles = {row["figure"]: row["title"] for row in found["figures"]}
    names, against = [name for name in FIGURES if name in rows[-1]["chosen"]], rule["against"]
    alone = ("accuracy_change", "speed_up_strict")  # which compare the setting with strict themselves
    columns = [(side, name) for name in names for side in ("strict", "chosen") if side == "chosen" or name not in alone]
    labels = {"strict": against, "chosen": f"{rule['dial']} = {exactly(found['settings']['chosen'])}"}
    heads = ["task", "prompts", *(titles[n] if n in alone else f"{titles[n]}: {labels[s]}" for s, n in columns)]
    listed = [*rows[:-1][:MOST_TASKS], rows[-1]]
    cells = [
        [row["task"], str(row["prompts"])]
        + [figure_cell(n, row[s][n]) if n in row[s] else "not graded" for s, n in columns]
        for row in listed
    ]
    more = len(rows) - len(listed)
    left = [f"{counted(more, 'more task')} in tasks.csv."] if more else []
    return ["## Results by task", table(heads, cells), *left]


def _costs(found: dict[str, Any]) -> str:
    costs = found["costs"]
    if costs is None:
        return "The cost of a pass was not measured, so no speed-up over the target alone is modelled."
    rows = [
        [f"target, a pass over {counted(place, 'position')}", _ms(each)]
        for place, each in enumerate(costs["target_pass"], 1)
    ]
    rows += [[f"drafter, a tree of {counted(n, 'level')}", _ms(each)] for n, each in enumerate(costs["drafting"], 1)]
    rows += [] if costs["drafting"] else [["drafter, a token", _ms(costs["drafter_step"])]]
    gamma = len(costs["rest"])
    rows += [[f"the rest of a round of {n} drafted", _ms(costs["rest"][n - 1])] for n in sorted({1, gamma})]
    others = costs["others"]
    mentioned = others is None or bool(found["costs_disturbance"])  # that is beside the figures
    quiet = "" if mentioned else f" Other processes used {plain_number(others)} cores meanwhile."
    about = (
        f"What a pass costs on {costs['device']} in {costs['dtype']}, batch size 1, caches of {costs['cache_length']} "
        f"positions: the lower quartile of {costs['repeats']} repeats in turn, with its 95 % interval.{quiet}"
    )
    return f"{commonmark(about)}\n\n{table(['', 'ms'], rows)}"


def _ms(cost: dict[str, float]) -> str:
    return figure_cell("ms", {"estimate" if n == "seconds" else n: 1000 * each for n, each in cost.items()})


def _speed(found: dict[str, Any]) -> str:
    timed = found["wall_clock"]
    others = _checks(found)
    if timed is None:
        return "\n\n".join(filter(None, [f"Tokens per second: {found['tokens_per_second']}.", others]))
    against = found["rule"]["against"]
    labels = {STRICT: against}
    rows = [[labels.get(name, name), figure_cell("pace", each)] for name, each in timed["tokens_per_second"].items()]
    for other, what in (("strict", against), ("target", "the target alone")):
        modelled = timed[f"modelled_over_{other}"]
        measured = timed[f"measured_over_{other}"]
        text = timed["objection"] if measured is None else figure_cell("ratio", measured)
        ends = [modelled, *timed["modelled_over_target_interval"]] if other == "target" else [modelled]
        rows.append([f"chosen over {what}", f"{text}, modelled {with_ends(ends)}"])
    note = f"Measured on {timed['device']}: {timed['prompts']} prompts, {timed['repetitions']} repetitions, in turn."
    note = f"{note} {timed['note']}".rstrip()
    return "\n\n".join(filter(None, [commonmark(note), table(["tokens per second", ""], rows), others]))


def _checks(found: dict[str, Any]) -> str:
    checks = found["wall_clock_checks"]
    if len(checks) == (found["wall_clock"] is not None):
        return ""
    over = f"over {found['rule']['against']}"
    heads = ["every wall-clock check, UTC", found["rule"]["dial"], "prompts × repetitions", over, "modelled"]
    rows = []
    for each in checks:
        count, measured = f"{each['prompts']} × {each['repetitions']}", each["measured_over_strict"]
        modelled = plain_number(each["modelled_over_strict"])
        rows.append([each["created"], exactly(each["dial"]), count, figure_cell("ratio", measured), modelled])
    return table(heads, rows)


def _off(found: dict[str, Any]) -> str:
    off = found["off_is_strict"]
    text = f"{off['same']} of {off['n']} prompts: {off['what']}."
    if off["different"]:
        text += f" Different: {', '.join(map(commonmark, off['different']))}."
    alone = off["decoded_by_the_target_alone"]
    if alone is not None:
        text += f" Decoded again: {alone['same']} of {alone['n']} strict texts equal the target's own."
    return text


def _grid(found: dict[str, Any]) -> str:
    titles = {row["figure"]: row["title"] for row in found["figures"]}
    names = [name for name in TOLD if name in titles]
    rows = []
    for row in found["grid"]:
        low, high = map(exactly, row["shown"])
        ends = low if low == high else f"from {low} to {high}"
        rows.append([ends, *(figure_cell(name, row[name]) for name in names)])
    about = (
        f"Each row holds exactly from one {found['rule']['dial']} to the other: what it says reads the same at every "
        f"setting between. The texts change at {counted(found['stretches'] - 1, 'place')} of the dial; rows are those "
        "around evenly spaced settings, strict and the chosen one, and stretches.csv has all."
    )
    return f"{about}\n\n{table([found['rule']['dial'], *(titles[name] for name in names)], rows)}"


def _variants(found: dict[str, Any]) -> list[str]:
    grid = found["setting_grid"]
    if grid is None:
        return []
    symbol, dial, rows = grid["setting"]["symbol"], grid["dial"], grid["rows"]
    dials, chosen = [row["dial"] for row in rows[0]["dials"]], found["settings"]["chosen"]
    columns, omitted = few_dials(dials, (chosen,)), left_out(dial, dials, chosen)
    parts = [
        f"## The grid, {symbol} × {dial}",
        f"{symbol}: {grid['setting']['meaning']}; {grid['setting']['default']:g} unless said. Rows are values of "
        f"{symbol}, columns of {dial}; each row is a sweep of its own, of the same prompts. {omitted}".rstrip(),
    ]
    heads = ["", *(f"{dial} = {exactly(value)}" for value in columns)]
    for name in (each for each in VARIED if each in grid["titles"]):
        lines = []
        for row in rows:
            cells = [figure_cell(name, at[name]) for at in row["dials"] if at["dial"] in columns]
            lines.append([f"{symbol} = {exactly(row['value'])}", *cells])
        parts.append(f"{commonmark(grid['titles'][name])}:\n\n{table(heads, lines)}")
    advised = [row for row in rows if row["recommendation"] is not None]
    lines = [[f"{symbol} = {exactly(row['value'])}", row["recommendation"]["sentence"]] for row in advised]
    return parts + ([table(["", f"how far {dial} can go"], lines)] if lines else [])


def _relaxed_tokens(found: dict[str, Any]) -> str:
    relaxed = found["relaxed_tokens"]
    if not any(relaxed["by_target_rank"].values()):
        return "No token was relaxed at this setting."
    tables = []
    for what, key in (("target's rank", "by_target_rank"), ("p(x)/p(v1)", "by_p_over_p1")):
        names = [name for name, count in relaxed[key].items() if count]
        shares = [figure_cell("relaxed", relaxed[f"shares_{key}"][name]) for name in names]
        rows = [[name, number(relaxed[key][name]), share] for name, share in zip(names, shares, strict=True)]
        tables.append(table([what, "tokens", "share of the relaxed"], rows))
    return "\n\n".join(tables)


def _acceptance(found: dict[str, Any]) -> str:
    rows = [
        [
            row["engine"],
            _within(row["length"], row["length_within"]),
            row["length_formula"] or "not reported",
            _within(row["rate"], row["rate_within"]),
            row["rate_formula"] or "not reported",
        ]
        for row in found["engines"]
    ]
    heads = ["engine", "length", "formula", "rate", "formula"]
    return "\n\n".join([_two_lengths(found), table(heads, rows), _positions(found)])


def _two_lengths(found: dict[str, Any]) -> str:
    counts = found["acceptance"]
    tokens, rounds, past = (counts[name] for name in ("tokens", "rounds", "past_the_end"))
    vllm = next(row for row in found["engines"] if row["engine"] == "vLLM")["length"]
    tau = tokens / rounds if rounds else None
    words = (
        f"τ, everywhere in this document, is tokens per target pass: the texts hold {number(tokens)} tokens, made in "
        f"{number(rounds)} passes, corrections and bonus tokens included and the prefill left out: {plain_number(tau)}."
    )
    if not past:
        return words
    return (
        f"{words} vLLM's mean acceptance length counts what verification accepted before a text is cut at its end, "
        f"{number(past)} tokens more: {plain_number(vllm)}. Hold that one against vLLM's log, and τ against tokens "
        "that a user gets."
    )


def _positions(found: dict[str, Any]) -> str:
    """Return acceptance by position; joint rates are omitted if they equal the unconditional ones, as for chains."""
    rates = next(row["unconditional"] for row in found["engines"] if row["unconditional"])
    conditional_row = next(row for row in found["engines"] if row["conditional"])
    kinds = {"unconditional": rates, "conditional": conditional_row["conditional"]}
    if list(map(plain_number, conditional_row["joint"])) != list(map(plain_number, rates)):
        kinds["joint"] = conditional_row["joint"]
    places = [str(place) for place in range(1, len(rates) + 1)]
    rows = [[name, *map(plain_number, values)] for name, values in kinds.items()]
    return table(["accepted at position", *places], rows)


def _within(value: float | None, found: dict[str, Any]) -> str:
    if found["why_none"]:
        return f"{plain_number(value)} (no interval: {found['why_none']})"
    if found["low"] is None:
        return plain_number(value)
    return "–" if value is None else ranged((value, found["low"], found["high"]))


def _engine_settings(found: dict[str, Any]) -> str:
    names: dict[tuple[str, str], list[str]] = {}
    for each in found["engine_settings"]:
        names.setdefault((each["note"], each["text"]), []).append(each["engine"])
    parts = []
    for (note, text), engines in names.items():
        code = f"\n\n```\n{text}\n```" if text else ""
        parts.append(f"**{', '.join(engines)}**: {commonmark(note)}{code}")
    return "\n\n".join(parts)


def _synthetic(found: dict[str, Any]) -> str:
    settings = found["synthetic_acceptance"]
    return (
        f"**{settings['warning']}**\n\n"
        f"vLLM, to merge into --speculative-config:\n\n```\n{settings['vllm']}\n```\n\n"
        f"SGLang, environment:\n\n```\n{settings['sglang']}\n```\n\n"
        f"TensorRT-LLM, environment:\n\n```\n{settings['tensorrt_llm']}\n```"
    )


def _reading(found: dict[str, Any]) -> str:
    how = found["intervals"]
    return (
        f"The intervals are computed {how['computed']}; they are not simultaneous. *Exact*: counted on the texts that "
        "the setting generates, from every prompt's dial map. *Modelled*: counted passes times their measured costs. "
        "*Measured*: wall clock. The target's own text is that of strict matching, which keeps a token only where the "
        "target would have written it."
    )


def figure_cell(name: str, found: dict[str, Any]) -> str:
    """Return a figure with its interval, '12.3 (10.1 to 14.0)', if it has one."""
    return told(name, [math.nan if found[key] is None else found[key] for key in ("estimate", "low", "high")])


def with_ends(found: Sequence[float | None]) -> str:
    """Return an estimate with the ends of its interval, if it has any."""
    if len(found) == 1 or any(value is None or math.isnan(value) for value in found):
        return plain_number(found[0])
    return figure_cell("ratio", dict(zip(("estimate", "low", "high"), found, strict=True)))


def plain_number(value: float | None) -> str:
    """Return a number with three digits, or a dash if it is unknown."""
    return "–" if value is None else number(value)


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table; every cell is escaped text."""
    first, *others = (f"| {' | '.join(commonmark(str(text)) for text in line)} |" for line in [heads, *rows])
    return "\n".join([first, f"|{' --- |' * len(heads)}", *others])
