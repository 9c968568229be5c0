"""The evidence as Markdown: tables to paste into a pull request. Knows the evidence's JSON; knows no files."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from mars_viz.escapes import commonmark
from mars_viz.figures.words import exactly, number
from mars_viz.run import stop_words
from mars_viz.shapes import CHAIN
from mars_viz.sweep.grid import few_dials, left_out
from mars_viz.sweep.report import told

STRICT = "strict"
"""What settings are compared with, but where a controller's threshold is swept."""
VARIED = ("tau", "speed_up", "speed_up_strict", "accuracy", "accuracy_change", "rolled_back")
"""Figures of which a grid has a table each."""
_GRID = (
    *("accuracy", "accuracy_change", "tau", "drafted_share", "acceptance", "speed_up", "speed_up_strict", "relaxed"),
    *("same", "length"),
)


def markdown(found: dict[str, Any]) -> str:
    """The whole document."""
    rule, dial = found["rule"], found["settings"]["chosen"]
    parts = [
        f"# {rule['swept']} at {rule['dial']} = {exactly(dial)}, against {rule['against']}",
        _recommendation(found),
        "## What was run",
        _pairs(_setup(found)),
        "## Results",
        _results(found),
        _speed(found),
        "## Off equals strict" if rule["against"] == STRICT else "## Full drafts",
        _off(found),
        f"## The dial, {rule['dial']}",
        _grid(found),
        *_variants(found),
        "## Relaxed tokens",
        _relaxed(found),
        "## Acceptance as each engine defines it",
        _engines(found),
        "## Settings for engines",
        _settings(found),
        "## Synthetic acceptance",
        _synthetic(found),
        "## How to read the numbers",
        _reading(found),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _recommendation(found: dict[str, Any]) -> str:
    return "" if found["recommendation"] is None else commonmark(found["recommendation"]["sentence"])


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
        ("dtype, device", f"{models['dtype']}, {models['device']}"),
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
        cells = [_cell(row["figure"], row["settings"][name]) for name in columns]
        rows.append([f"{row['title']} ({row['basis']})" if row["basis"] not in row["title"] else row["title"], *cells])
    said = f"No modelled speed-up over the target alone: {found['costs_objection']}" if found["costs_objection"] else ""
    beside = "\n\n".join(commonmark(each) for each in (said, found["costs_disturbance"]) if each)
    return _table(heads, rows) + (beside and f"\n\n{beside}") + _accuracy(found)


def _accuracy(found: dict[str, Any]) -> str:
    if found["accuracy"] is None:
        return "\n\nNo prompt is graded, so there is no accuracy."
    rows = []
    for name, each in found["accuracy"].items():
        against = found["rule"]["against"]
        label = {"target": "target alone", "strict": against, "relaxed": "the chosen setting"}[name]
        label = f"relaxed, {label}" if name == "relaxed" and against == STRICT else label
        shares = [_cell("accuracy", each[kind]) for kind in ("bootstrap", "wilson")]
        rows.append([label, f"{each['right']} of {each['n']}", *shares])
    return "\n\n" + _table(["accuracy", "right", "bootstrap", "Wilson"], rows)


def _speed(found: dict[str, Any]) -> str:
    timed = found["wall_clock"]
    others = _checks(found)
    if timed is None:
        return "\n\n".join(filter(None, [f"Tokens per second: {found['tokens_per_second']}.", others]))
    against = found["rule"]["against"]
    called = {STRICT: against}
    rows = [[called.get(name, name), _cell("pace", each)] for name, each in timed["tokens_per_second"].items()]
    for other, what in (("strict", against), ("target", "the target alone")):
        modelled = timed[f"modelled_over_{other}"]
        measured = timed[f"measured_over_{other}"]
        text = timed["objection"] if measured is None else _cell("ratio", measured)
        ends = [modelled, *timed["modelled_over_target_interval"]] if other == "target" else [modelled]
        rows.append([f"chosen over {what}", f"{text}, modelled {_with_ends(ends)}"])
    note = f"Measured on {timed['device']}: {timed['prompts']} prompts, {timed['repetitions']} repetitions, in turn."
    note = f"{note} {timed['note']}".rstrip()
    return "\n\n".join(filter(None, [commonmark(note), _table(["tokens per second", ""], rows), others]))


def _checks(found: dict[str, Any]) -> str:
    """Every wall-clock check of the sweep, where there is more than the one that is told of already."""
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
            _cell("ratio", each["measured_over_strict"]),
            _number(each["modelled_over_strict"]),
        ]
        for each in checks
    ]
    return _table(heads, rows)


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
    names = [name for name in _GRID if name in titles]
    rows = [[exactly(row["dial"]), *(_cell(name, row[name]) for name in names)] for row in found["grid"]]
    return _table([found["rule"]["dial"], *(titles[name] for name in names)], rows)


def _variants(found: dict[str, Any]) -> list[str]:
    """A table a figure, a row a variant, a column a dial value; none where there is no grid."""
    grid = found["setting_grid"]
    if grid is None:
        return []
    symbol, dial, rows = grid["setting"]["symbol"], grid["dial"], grid["rows"]
    dials, chosen = [row["dial"] for row in rows[0]["dials"]], found["settings"]["chosen"]
    shown, absent = few_dials(dials, (chosen,)), left_out(dial, dials, chosen)
    parts = [
        f"## The grid, {symbol} × {dial}",
        f"{symbol}: {grid['setting']['meaning']}; {grid['setting']['default']:g} unless said. Rows are values of "
        f"{symbol}, columns of {dial}; each row is a sweep of its own, of the same prompts. {absent}".rstrip(),
    ]
    heads = ["", *(f"{dial} = {exactly(value)}" for value in shown)]
    for name in (each for each in VARIED if each in grid["titles"]):
        lines = [
            [
                f"{symbol} = {exactly(row['value'])}",
                *(_cell(name, at[name]) for at in row["dials"] if at["dial"] in shown),
            ]
            for row in rows
        ]
        parts.append(f"{commonmark(grid['titles'][name])}:\n\n{_table(heads, lines)}")
    advised = [row for row in rows if row["recommendation"] is not None]
    lines = [[f"{symbol} = {exactly(row['value'])}", row["recommendation"]["sentence"]] for row in advised]
    return parts + ([_table(["", f"how far {dial} can go"], lines)] if lines else [])


def _relaxed(found: dict[str, Any]) -> str:
    relaxed = found["relaxed_tokens"]
    tables = [
        _table(
            [what, *relaxed[key]],
            [
                ["tokens", *map(str, relaxed[key].values())],
                ["share of them", *(_share(each) for each in relaxed[f"shares_{key}"].values())],
            ],
        )
        for what, key in (("target's rank", "by_target_rank"), ("p(x)/p(v1)", "by_p_over_p1"))
    ]
    return "\n\n".join(tables)


def _engines(found: dict[str, Any]) -> str:
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
    rates = next(row["unconditional"] for row in found["engines"] if row["unconditional"])
    joint = next(row for row in found["engines"] if row["conditional"])
    positions = [
        ["unconditional", *map(_number, rates)],
        *([name, *map(_number, joint[name])] for name in ("conditional", "joint")),
    ]
    places = [str(place) for place in range(1, len(rates) + 1)]
    heads = ["engine", "length", "formula", "rate", "formula"]
    return _table(heads, rows) + "\n\n" + _table(["by position", *places], positions)


def _within(value: float | None, found: dict[str, Any]) -> str:
    """'2.40 (2.31 to 2.50)', or why it has no interval."""
    if found["why_none"]:
        return f"{_number(value)} (no interval: {found['why_none']})"
    return (
        _number(value)
        if found["low"] is None
        else f"{_number(value)} ({number(found['low'])} to {number(found['high'])})"
    )


def _settings(found: dict[str, Any]) -> str:
    parts = []
    for each in found["engine_settings"]:
        code = f"\n\n```\n{each['text']}\n```" if each["text"] else ""
        parts.append(f"**{each['engine']}**: {commonmark(each['note'])}{code}")
    return "\n\n".join(parts)


def _synthetic(found: dict[str, Any]) -> str:
    made = found["synthetic_acceptance"]
    return (
        f"**{made['warning']}**\n\n"
        f"vLLM, to merge into --speculative-config:\n\n```\n{made['vllm']}\n```\n\n"
        f"SGLang, environment:\n\n```\n{made['sglang']}\n```\n\n"
        f"TensorRT-LLM, environment:\n\n```\n{made['tensorrt_llm']}\n```"
    )


def _reading(found: dict[str, Any]) -> str:
    made = found["intervals"]
    return (
        f"In brackets: {100 * made['confidence']:g} % intervals, {made['method']} bootstrap over "
        f"{made['unit']}, {made['computed']}. {made['where_all_agree']} *Exact*: counted on the texts that the setting "
        "generates, from every prompt's dial map. *Modelled*: counted passes times their measured costs. *Measured*: "
        "wall clock. τ: tokens per target pass, corrections and bonus tokens included, cut at the text's end; the "
        "prefill pass is not counted. The target's own text is that of strict matching, which keeps a token only where "
        "the target would have written it."
    )


def _share(found: dict[str, Any]) -> str:
    """A share of the relaxed tokens; where there are none there is nothing to take a share of."""
    return "none" if _unknown(found["estimate"]) else _cell("relaxed", found)


def _unknown(value: float | None) -> bool:
    return value is None or math.isnan(value)


def _cell(name: str, found: dict[str, Any]) -> str:
    return told(name, [math.nan if found[key] is None else found[key] for key in ("estimate", "low", "high")])


def _with_ends(found: Sequence[float | None]) -> str:
    """An estimate with the ends of its interval, where there are any."""
    if len(found) == 1 or any(map(_unknown, found)):
        return _number(found[0])
    return _cell("ratio", dict(zip(("estimate", "low", "high"), found, strict=True)))


def _number(value: float | None) -> str:
    return "–" if value is None else number(value)


def _pairs(rows: Iterable[tuple[str, str]]) -> str:
    return _table(["", ""], [[name, text] for name, text in rows])


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    first, *others = (f"| {' | '.join(commonmark(str(text)) for text in line)} |" for line in [heads, *rows])
    return "\n".join([first, f"|{' --- |' * len(heads)}", *others])
