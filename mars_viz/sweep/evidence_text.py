"""The evidence as Markdown, with tables to paste into a pull request."""

from __future__ import annotations

from typing import Any

from mars_viz.escapes import commonmark
from mars_viz.run import stop_words
from mars_viz.shapes import CHAIN
from mars_viz.sweep.by_task import FIGURES
from mars_viz.sweep.evidence_acceptance import acceptance, engine_settings, relaxed_tokens, synthetic
from mars_viz.sweep.evidence_tables import figure_cell, pairs, plain_number, table, with_ends
from mars_viz.sweep.grid import few_dials, left_out
from mars_viz.sweep.stretches import TOLD
from mars_viz.words import counted, exactly

STRICT = "strict"
"""Name of the reference setting, unless a controller's threshold is swept."""
VARIED = ("tau", "speed_up", "speed_up_strict", "accuracy", "accuracy_change", "rolled_back")
"""Figures that have a table in a grid."""
MOST_TASKS = 60
"""Maximum rows of the table by task; tasks.csv contains the rest."""


def markdown(found: dict[str, Any]) -> str:
    """Return the complete document."""
    rule, dial = found["rule"], found["settings"]["chosen"]
    parts = [
        f"# {rule['swept']} at {rule['dial']} = {exactly(dial)}, against {rule['against']}",
        _recommendation(found),
        "## To reproduce",
        _reproduction(found),
        "## What was run",
        pairs(_setup(found)),
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
        relaxed_tokens(found),
        "## Acceptance",
        acceptance(found),
        "## Settings for engines",
        engine_settings(found),
        "## Synthetic acceptance",
        synthetic(found),
        "## How to read the numbers",
        _reading(found),
        *_references(found),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _recommendation(found: dict[str, Any]) -> str:
    """Return the recommendation, the choice of the setting, and the terms."""
    advice, terms = found["recommendation"], found["terms"]
    advice_words = "No prompt is graded, so nothing is recommended." if advice is None else advice["sentence"]
    parts = [advice_words, found["losing_tasks"], found["chosen"]["words"]]
    parts += [terms["safe"] if advice is not None else "", terms["brackets"]]
    return "\n\n".join(map(commonmark, filter(None, parts)))


def _references(found: dict[str, Any]) -> list[str]:
    files = found.get("references")
    return ["## References", f"{commonmark(found['rule']['source'])}; as BibTeX in {files[0]}."] if files else []


def _reproduction(found: dict[str, Any]) -> str:
    reproduction = found["reproduction"]
    return "\n\n".join([f"```\n{reproduction['command']}\n```", *map(commonmark, reproduction["needs"])])


def _setup(found: dict[str, Any]) -> list[tuple[str, str]]:
    models, data, rule = found["models"], found["data_set"], found["rule"]
    versions = ", ".join(f"{name} {version}" for name, version in models["versions"].items())
    trees = rule["tree"] != CHAIN
    sampling = [*([] if trees else [rule["gamma"]]), *(models[each] for each in ("temperature", "top_p", "top_k"))]
    graded = f"{data['n']} of {data['prompts']} prompts, {data['graded']} graded"
    if data["turns"] == "all":
        graded += f", turns of {data['questions']} questions"
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
        *([("draft-length controller", _controller(rule["controller"]))] if rule["controller"] else []),
        *([("draft", rule["draft"])] if trees else []),
        (f"{'' if trees else 'γ, '}temperature, top-p, top-k", ", ".join(f"{value:g}" for value in sampling)),
        ("seed, max new tokens", f"{models['seed']}, {models['max_new_tokens']}"),
        *([("stop strings", stop_words(models["stop"]))] if models["stop"] else []),
        ("chat template", "yes" if models["chat"] else "no"),
        ("data set", f"{data['name']}: {graded}; SHA-256 {data['sha256'][:16]}"),
        *([("conversations", data["turns_are"])] if data["turns"] == "all" else []),
        ("left out", _left_out(data)),
    ]


def _controller(found: dict[str, Any]) -> str:
    at = "the threshold is swept" if found["threshold"] is None else f"at {exactly(found['threshold'])}"
    return f"{found['title']}: stops where {found['formula']}; {at} ({found['source']})"


def _left_out(data: dict[str, Any]) -> str:
    counts = (
        (data["skipped_lines"], "lines that are no prompts"),
        (data["later_turns"], "later turns of conversations, of which the first turn alone was decoded"),
        (len(data["failures"]), "prompts without results"),
        (data["not_finished"], "prompts not finished yet"),
    )
    return ", ".join(f"{count} {what}" for count, what in counts if count) or "nothing"


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
    return table(heads, rows) + (remarks and f"\n\n{remarks}") + _right(found)


def _right(found: dict[str, Any]) -> str:
    if found["accuracy"] is None:
        return "\n\nNo prompt is graded, so there is no accuracy."
    rows = []
    for name, each in found["accuracy"].items():
        against = found["rule"]["against"]
        label = {"target": "target alone", "strict": against, "relaxed": "the chosen setting"}[name]
        label = f"relaxed, {label}" if name == "relaxed" and against == STRICT else label
        rows.append([label, f"{each['right']} of {each['n']}", figure_cell("accuracy", each["wilson"])])
    return "\n\n" + table(["right texts", "", "accuracy (Wilson's interval)"], rows)


def _by_task(found: dict[str, Any]) -> list[str]:
    """Return a row per task and one for all together; empty for a single task."""
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
    """Return the costs of passes with their intervals, on which the modelled figures are based."""
    costs = found["costs"]
    if costs is None:
        return "What a pass costs was not measured, so nothing over the target alone is modelled."
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
    """Return every wall-clock check of the sweep if there are others than the one already shown."""
    checks = found["wall_clock_checks"]
    if len(checks) == (found["wall_clock"] is not None):
        return ""
    over = f"over {found['rule']['against']}"
    heads = ["every wall-clock check, UTC", found["rule"]["dial"], "prompts × repetitions", over, "modelled"]
    rows = [
        [
            each["created"],
            exactly(each["dial"]),
            f"{each['prompts']} × {each['repetitions']}",
            figure_cell("ratio", each["measured_over_strict"]),
            plain_number(each["modelled_over_strict"]),
        ]
        for each in checks
    ]
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
    """Return a row per stretch; settings with equal results share one."""
    titles = {row["figure"]: row["title"] for row in found["figures"]}
    names = [name for name in TOLD if name in titles]
    rows = [[_from_to(row), *(figure_cell(name, row[name]) for name in names)] for row in found["grid"]]
    about = (
        f"Each row holds exactly from one {found['rule']['dial']} to the other: what it says reads the same at every "
        f"setting between. The texts change at {counted(found['stretches'] - 1, 'place')} of the dial; rows are those "
        "around evenly spaced settings, strict and the chosen one, and stretches.csv has all."
    )
    return f"{about}\n\n{table([found['rule']['dial'], *(titles[name] for name in names)], rows)}"


def _from_to(row: dict[str, Any]) -> str:
    low, high = row["shown"]
    return exactly(low) if low == high else f"from {exactly(low)} to {exactly(high)}"


def _variants(found: dict[str, Any]) -> list[str]:
    """Return, for a grid, a table per figure with a row per variant and a column per dial value."""
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
        lines = [
            [
                f"{symbol} = {exactly(row['value'])}",
                *(figure_cell(name, at[name]) for at in row["dials"] if at["dial"] in columns),
            ]
            for row in rows
        ]
        parts.append(f"{commonmark(grid['titles'][name])}:\n\n{table(heads, lines)}")
    advised = [row for row in rows if row["recommendation"] is not None]
    lines = [[f"{symbol} = {exactly(row['value'])}", row["recommendation"]["sentence"]] for row in advised]
    return parts + ([table(["", f"how far {dial} can go"], lines)] if lines else [])


def _reading(found: dict[str, Any]) -> str:
    how = found["intervals"]
    return (
        f"The intervals are computed {how['computed']}; they are not simultaneous. *Exact*: counted on the texts that "
        "the setting generates, from every prompt's dial map. *Modelled*: counted passes times their measured costs. "
        "*Measured*: wall clock. The target's own text is that of strict matching, which keeps a token only where the "
        "target would have written it."
    )
