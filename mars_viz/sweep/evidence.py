"""The evidence for a setting: everything that engine maintainers ask for, with intervals, and the command that repeats
the sweep. Facts that a sweep does not store are described in words: the path of a prompt file or model, the machine.

Plain data, and files in Markdown, CSV and JSON, written completely or not at all, or as a zip.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from mars_viz import __version__
from mars_viz.analysis.engines import EngineRow, synthetic_settings
from mars_viz.analysis.intervals import DEFAULT, wilson
from mars_viz.analysis.recommendation import Recommendation
from mars_viz.controllers import NONE
from mars_viz.costs import BatchCosts, disturbance, objection
from mars_viz.demo import is_built_in
from mars_viz.documents import Block, Code, Section, Sentence, Table, markdown
from mars_viz.errors import BadInput
from mars_viz.options import options_of
from mars_viz.prompts import PromptItem, Turns, harness, kinds_of, per_task
from mars_viz.reproduce import Options, command_line
from mars_viz.run import Settings, stop_words
from mars_viz.runfiles import packed
from mars_viz.sweep import document
from mars_viz.sweep.columns import RANK_WORDS, RIGHT, SHARE_WORDS
from mars_viz.sweep.document import engine_settings
from mars_viz.sweep.grid import chosen_dial
from mars_viz.sweep.measures import Terms, band_at, told
from mars_viz.sweep.plan import Plan, turns_words
from mars_viz.sweep.report import (
    TOLD,
    Advised,
    CachedSweep,
    cells_at,
    grid_table,
    load_table,
    losing,
    settings_of,
    stretches,
    stretches_csv,
)
from mars_viz.sweep.result import SweepResult
from mars_viz.sweep.store import open_store
from mars_viz.sweep.wall_clock import Checks, TimingCheck
from mars_viz.words import counted, exact_setting, exactly, number
from mars_viz.writer import csv_of, json_of, picked, plain

FORMAT = "mars-viz-evidence"
GRID = 21  # number of dial values of a grid of variants if none are given
ROWS = 11  # number of rows of the table along the dial if none are given
ENDS = ("estimate", "low", "high")
DEFAULT_TERMS = Terms()  # one point, 95 %, BCa
BATCH = "Batch size 1. A larger one changes times, and counts only through ties within rounding."
MOST_TASKS = 60  # maximum rows of the table by task; tasks.csv contains the rest
NOT_MEASURED = "not measured: run the wall-clock check (--wall-clock)"


def dial_grid(result: SweepResult, dial: float, count: int = GRID) -> np.ndarray:
    """Return `count` evenly spaced values from end to end plus the chosen one, ascending, float64."""
    low, high = result.plan.low, result.plan.high
    return np.unique(np.append(np.linspace(low, high, count).round(6).clip(low, high), dial))


def table_of(sweep: CachedSweep, dial: float) -> list[dict[str, Any]]:
    """Return a row per figure with estimate and interval at each setting."""
    columns = settings_of(sweep.result, dial)
    return [
        {
            "figure": measure.name,
            "title": measure.title,
            "basis": measure.basis,
            "settings": {name: {"dial": at} | asdict(sweep.value(measure.name, at)) for name, at in columns.items()},
        }
        for measure in sweep.measures.values()
    ]


class Evidence:
    """The evidence for a setting of a sweep.

    `grid` are dial values of the table; None for evenly spaced ones. `recommendation` is None for the sweep's own.
    `checks` are the sweep's wall-clock checks, the oldest first; the newest of this setting is used. `batches` are
    rounds measured for several texts at once. `beside` are sweeps of the rule with another fixed setting, which form a
    grid with this one. `terms` are those of the recommendation and of all intervals. `by_hand` is True if a user chose
    the setting (None: if it is not the sweep's own choice). `references` are BibTeX entries.
    """

    def __init__(
        self,
        result: SweepResult,
        dial: float,
        *,
        grid: Sequence[float] | np.ndarray | None = None,
        recommendation: Recommendation | None = None,
        checks: Sequence[TimingCheck] = (),
        batches: BatchCosts | None = None,
        beside: Sequence[Advised] = (),
        terms: Terms = DEFAULT_TERMS,
        by_hand: bool | None = None,
        references: str = "",
    ) -> None:
        self.result, self.dial, self.terms, self.references = result, dial, terms, references
        self.sweep = CachedSweep(result, terms.how)
        self.recommendation = recommendation or self.sweep.recommendation(terms)
        self.checks = Checks(tuple(replace(check, how=terms.how) for check in checks))
        self.timing = self.checks.latest(dial)
        self.load = None if batches is None else load_table(self.sweep, dial, batches)
        values = dial_grid(result, dial) if grid is None else np.append(grid, dial)
        own = Advised(self.sweep, self.recommendation)
        self.variants = grid_table([own, *beside], values) if beside else None
        self.chosen, words = _chosen(result, dial, self.recommendation, by_hand)
        self.chosen_words, requested = words, dial if self.chosen == "by_hand" else None
        varied = ""  # the value of --grid
        if self.variants is not None:
            setting = self.variants.axis.setting
            varied = f"{setting.key}={','.join(map(setting.written, self.variants.values))}"
        most = 0 if batches is None else batches.sizes[-1]
        self.reproduction = reproduction(result, terms, dial=requested, timing=self.timing, grid=varied, load=most)
        values = dial_grid(result, dial, ROWS) if grid is None else np.unique(values)
        self.rows = _along(self.sweep, [*values.tolist(), result.plan.strict, dial])
        self.accuracy, self.acceptance = _accuracy(result, dial, terms.confidence), _acceptance(result, dial)

    def facts(self) -> dict[str, Any]:
        """Return everything as JSON values (with NaN)."""
        result, sweep, dial, terms, how = self.result, self.sweep, self.dial, self.terms, self.terms.how
        plan, timing, tasks = result.plan, self.timing, sweep.tasks(dial)
        at = plan.at(dial).dial or 0.0
        return {
            "format": FORMAT,
            "version": __version__,
            "terms": terms.facts() | {"safe": terms.safe, "brackets": document.brackets(sweep, terms)},
            "chosen": {"dial": dial, "how": self.chosen, "words": self.chosen_words},
            "reproduction": self.reproduction,
            "models": _models(result),
            "data_set": _data_set(result),
            "rule": _rule(result),
            "settings": settings_of(result, dial),
            "accuracy": self.accuracy,
            "by_task": [asdict(row) for row in tasks],
            "losing_tasks": losing(tasks, terms, plan.against),
            "figures": table_of(sweep, dial),
            "tokens_per_second": NOT_MEASURED if timing is None else timing.facts()["tokens_per_second"],
            "wall_clock": None if timing is None else timing.facts(),
            "wall_clock_checks": [check.facts() for check in self.checks.found],
            "costs": None if result.costs is None else asdict(result.costs),
            "costs_objection": objection(result.costs),
            "costs_disturbance": "" if result.costs is None else disturbance(result.costs),
            "by_position": {name.split()[0]: list(map(asdict, kind)) for name, kind in sweep.positions(dial).items()},
            "load": document.NO_LOAD if self.load is None else asdict(self.load),
            "off_is_strict": _off(result, timing),
            "grid": self.rows,
            "stretches": len(result.edges) - 1,
            "setting_grid": None if self.variants is None else self.variants.facts(),
            "relaxed_tokens": _relaxed(sweep, dial),
            "engines": [_engine(row) for row in sweep.engines(dial)],
            "acceptance": self.acceptance,
            "engine_settings": [asdict(each) for each in engine_settings(plan.settings, at)],
            "synthetic_acceptance": synthetic_settings(result.paths(dial)),
            "recommendation": asdict(self.recommendation),
            "intervals": {
                "confidence": how.confidence,
                "method": how.method.value,
                "computed": document.COMPUTED,
                "unit": f"{'prompts' if result.units is None else 'questions, each with all of its turns'}, paired "
                "where settings are compared; the intervals are not simultaneous",
            },
        }

    def files(self) -> dict[str, bytes]:
        """Return the files by name.

        evidence.md, evidence.json, summary.csv (the target alone, strict and the setting), grid.csv (a line per stretch
        of the table), stretches.csv (every stretch, sums only), engines.csv (a line per definition of acceptance) and
        prompts.csv (a line per prompt). With several tasks also tasks.csv, with `beside` setting_grid.csv (a line per
        variant and dial value), and with `references` references.bib.
        """
        references = {"references.bib": self.references} if self.references else {}
        evidence = plain(self.facts()) | {"references": [*references]}
        along = [((row["from"], row["to"], row["dial"]), _figures_at(row)) for row in evidence["grid"]]
        files = {
            "evidence.md": markdown([self.blocks()], 1) + "\n",
            "evidence.json": json_of(evidence, indent=1, escaped=False) + "\n",
            "summary.csv": summary_csv(evidence),
            "grid.csv": figures_csv(("dial_from", "dial_to", "dial"), along),
            "stretches.csv": stretches_csv(self.result),
            "engines.csv": engines_csv(evidence["engines"]),
            "prompts.csv": prompts_csv(self.result, self.dial),
        }
        if (grid := evidence["setting_grid"]) is not None:
            dials = [((each["value"], row["dial"]), _figures_at(row)) for each in grid["rows"] for row in each["dials"]]
            files["setting_grid.csv"] = figures_csv((grid["setting"]["key"], "dial"), dials)
        if tasks := evidence["by_task"]:
            names = dict.fromkeys(name for row in tasks for name in row["chosen"])
            sides = [(side, name) for name in names for side in ("strict", "chosen")]
            heads = ("task", "prompts", "graded")
            by_task = [
                ([row[head] for head in heads], {f"{side}_{name}": row[side].get(name) for side, name in sides})
                for row in tasks
            ]
            files["tasks.csv"] = figures_csv(heads, by_task)
        return {name: text.encode() for name, text in (files | references).items()}

    def blocks(self) -> Section:
        """Return everything as a document, with tables to paste into a pull request."""
        sweep, dial, plan = self.sweep, self.dial, self.result.plan
        finding = "".join(each.text for each in document.lead(sweep, dial))
        advice = document.advice(sweep, self.recommendation, dial, self.terms)
        begin = (finding, advice, self.chosen_words, self.terms.safe)
        cited = Sentence(f"{plan.rule.source}; as BibTeX in references.bib.")
        sections: dict[str, Sequence[Block]] = {
            "To reproduce": [Code(self.reproduction["command"]), *map(Sentence, self.reproduction["needs"])],
            "What was run": self._plan(),
            "Results": self._results(),
            "Results by task": document.tasks(sweep, dial, most=MOST_TASKS),
            "Speed": self._speed(),
            "Acceptance by position": document.positions(sweep, dial),
            "Load": [] if self.load is None else document.load(self.load),
            "Full drafts" if plan.over else "Off equals strict": [Sentence(self._same_texts())],
            f"The dial, {plan.symbol}": self._dial(),
            f"The grid with {plan.symbol}": self.grid_blocks(),
            "Relaxed tokens": document.relaxed(sweep, dial),
            "Acceptance": self._counts(),
            "Settings for engines": [*document.engine_options(sweep, dial), *document.load_settings(self.load)],
            "Synthetic acceptance": document.synthetic(sweep, dial),
            "How to read the numbers": document.reading(sweep, self.terms),
            "References": [cited] if self.references else [],
        }
        title = f"{plan.title} at {exact_setting(plan.symbol, dial)}, against {plan.against}"
        return Section(title, [*map(Sentence, begin), *document.in_sections(sections)])

    def _plan(self) -> list[Block]:
        result = self.result
        return [
            Section("Rule", _listed(_rule(result))),
            Section("Models and sampling", [*_listed({"MARS Viz": __version__} | _models(result)), Sentence(BATCH)]),
            Section("Prompts", [*_listed(_data_set(result)), *document.failures(result)]),
        ]

    def _results(self) -> list[Block]:
        result, blocks = self.result, [document.figures(self.sweep, self.dial)]
        why = objection(result.costs)
        remarks = [why and f"No modelled speed-up over the target alone: {why}"]
        remarks += [] if result.costs is None else [disturbance(result.costs)]
        sentences = [Sentence(each) for each in remarks if each]
        if self.accuracy is None:
            return [*blocks, *sentences]
        labels = {"target": "the target alone", "strict": result.plan.against, "relaxed": "this setting"}
        rows = []
        for name, each in self.accuracy.items():
            ends = [each["wilson"][end] for end in ENDS]
            rows.append([labels[name], f"{each['right']} of {each['n']}", told("accuracy", ends)])
        target = (
            "The target alone writes the text of strict matching, which keeps a token only if it is the target's own."
        )
        table = Table(["right texts", "", "accuracy (Wilson's interval)"], rows)
        return [*blocks, *sentences, table, Sentence(target)]

    def _speed(self) -> list[Block]:
        clock = document.clock(self.sweep, self.dial, self.checks)
        if self.timing is None:
            clock.insert(0, Sentence(f"Tokens per second: {NOT_MEASURED}."))
        return clock if self.result.costs is None else [*clock, *document.costs(self.result.costs)]

    def _same_texts(self) -> str:
        found = _off(self.result, self.timing)
        text, alone = document.off(self.result), found["decoded_by_the_target_alone"]
        text += f" Different: {', '.join(found['different'])}." if found["different"] else ""
        if alone is None:
            return text
        return f"{text} Decoded again: {alone['same']} of {alone['n']} strict texts equal the target's own."

    def _dial(self) -> list[Block]:
        symbol, measures = self.result.plan.symbol, self.sweep.measures
        names = [name for name in TOLD if name in measures]
        rows = []
        for row in self.rows:
            low, high = map(exactly, row["shown"])
            cells = [told(name, [row[name][end] for end in ENDS]) for name in names]
            rows.append([low if low == high else f"from {low} to {high}", *cells])
        about = (
            f"The figures of a row are those of every setting from one {symbol} to the other. The texts change at "
            f"{counted(len(self.result.edges) - 2, 'place')} of the dial. The rows are those around evenly spaced "
            "settings, strict and the chosen one; stretches.csv has all."
        )
        return [Sentence(about), Table([symbol, *(measures[name].title for name in names)], rows)]

    def grid_blocks(self) -> list[Block]:
        """Return the tables of the grid, and how far the dial can go for each variant; empty without a grid."""
        if self.variants is None:
            return []
        names = [name for name in document.VARIED if name in self.variants.titles]
        return [*document.grid(self.variants, names, self.dial), *document.grid_advice(self.variants)]

    def _counts(self) -> list[Block]:
        rows = self.sweep.engines(self.dial)
        tokens, rounds, _, past = self.acceptance.values()
        words = (
            f"τ, everywhere in this document, is tokens per target pass. The texts have {number(tokens)} tokens, made "
            f"in {number(rounds)} passes, with corrections and bonus tokens and without the prefill: "
            f"{number(tokens / rounds) if rounds else '–'}."
        )
        if past:
            vllm = next(row.length for row in rows if row.definition.engine == "vLLM")
            words += (
                " vLLM's mean acceptance length counts accepted tokens before a text is cut at its end, "
                f"{number(past)} tokens more: {number(vllm)}. Compare that one with vLLM's log, and τ with tokens that "
                "a user gets."
            )
        return [Sentence(words), document.by_definition(rows, short=True), document.by_position(rows)]


def _chosen(result: SweepResult, dial: float, found: Recommendation, by_hand: bool | None) -> tuple[str, str]:
    """Return how this setting was chosen, as a word and as a sentence; `by_hand` as in `Evidence`."""
    at, recommended = exact_setting(result.plan.symbol, dial), found.dial
    if dial == recommended:
        return "recommended", f"{at} is the recommended setting; no user chose another."
    if not (dial != chosen_dial(result, found) if by_hand is None else by_hand):
        return "default", f"{at} is the default: nothing is recommended, and no user chose a setting."
    other = "nothing is recommended"
    if recommended is not None:
        other = f"recommended is {exact_setting(result.plan.symbol, recommended)}"
    return "by_hand", f"{at} was chosen by hand; {other}."


def _along(sweep: CachedSweep, dials: Sequence[float]) -> list[dict[str, Any]]:
    found = stretches(sweep.result, dials, TOLD)
    values = np.array([each.dial for each in found])
    bands = {name: band_at(sweep.result, measure, values, sweep.how) for name, measure in sweep.measures.items()}
    return [
        {"dial": each.dial, "from": each.low, "to": each.high, "shown": list(each.shown)} | cells_at(bands, place)
        for place, each in enumerate(found)
    ]


def _accuracy(result: SweepResult, dial: float, confidence: float) -> dict[str, Any] | None:
    """Return target, strict and relaxed accuracy with Wilson's intervals, which are valid for few prompts."""
    if not result.graded.any():
        return None
    rows = {"target": result.prompts["target_right"][result.graded]}
    for name, at in (("strict", result.plan.strict), ("relaxed", dial)):
        rows[name] = result.at("right", np.array([at]), result.graded)[:, 0]
    facts, units = {}, result.units_of(result.graded)
    for name, values in rows.items():
        right = values == RIGHT
        count = len(right) if units is None else len(np.unique(units))  # turns of one question count as one
        interval = wilson(float(right.mean()) * count, count, confidence)
        facts[name] = {"right": int(right.sum()), "n": len(right), "wilson": asdict(interval)}
    return facts


def _acceptance(result: SweepResult, dial: float) -> dict[str, int]:
    """Return sums over all prompts that relate τ to a count of accepted tokens. Tokens past a text's end were accepted,
    and cut off with it."""
    where = np.array([dial])
    tokens, rounds = (int(result.at(name, where).sum(dtype=np.int64)) for name in ("tokens", "rounds"))
    histogram = result.at("accepted", where)[:, 0].sum(axis=0, dtype=np.int64)
    accepted = int(histogram @ np.arange(len(histogram)))
    return {"tokens": tokens, "rounds": rounds, "accepted": accepted, "past_the_end": accepted + rounds - tokens}


def _listed(facts: Mapping[str, Any]) -> list[Block]:
    """Return a table of all facts but empty ones; lists of records are left out."""
    rows = []
    for name, value in facts.items():
        if isinstance(value, dict):
            value = "; ".join(f"{key} {each}" for key, each in value.items())
        elif isinstance(value, list | tuple):
            value = stop_words(value) if all(isinstance(each, str) for each in value) else ""
        elif isinstance(value, bool):
            value = "yes" if value else "no"
        if value not in ("", None):
            rows.append([name.replace("_", " "), exactly(value) if isinstance(value, float) else str(value)])
    return [Table(["", ""], rows)]


def _models(result: SweepResult) -> dict[str, Any]:
    settings = result.plan.settings
    models = picked(result.plan.provenance, *_MODELS, "versions", "created")
    decoding = picked(settings, *(name for name in options_of(Settings) if name != "gamma"), "stop")
    return models | decoding | {"chat": result.plan.chat}


def _data_set(result: SweepResult) -> dict[str, Any]:
    plan = result.plan
    return {
        "name": plan.prompt_set,
        "sha256": plan.prompt_set_sha256,
        "prompts": plan.prompts,
        "n": len(result),
        "graded": int(result.graded.sum()),
        "skipped_lines": plan.skipped,
        "turns": plan.turns,
        "turns_are": turns_words(plan),
        "questions": result.questions,
        "later_turns": plan.later_turns,
        "not_finished": plan.prompts - result.finished,
        "failures": [asdict(failure) for failure in result.failures],
        "drafted_positions": result.positions,
    }


def _rule(result: SweepResult) -> dict[str, Any]:
    rule, plan, controller = result.plan.rule, result.plan, None
    if plan.cut_by is not None:  # its threshold is None if it is swept
        control = plan.settings.control
        threshold = None if control is None else control.threshold
        controller = picked(plan.cut_by, "name", "title", "formula", "source") | {"threshold": threshold}
    facts = picked(rule, "name", "title", "formula", "source", "lossless")
    facts |= {"swept": plan.title, "against": plan.against, "at": plan.settings.dial if plan.over else None}
    facts |= {"dial": plan.symbol, **picked(plan, "low", "high", "strict")}
    facts |= picked(plan.settings, "gamma", "tree", "draft")
    return facts | {"controller": controller, "fixed": {each.symbol: rule.values[each.key] for each in rule.fixed}}


def _off(result: SweepResult, timing: TimingCheck | None) -> dict[str, Any]:
    same = result.prompts["off_is_strict"]
    what = "the text at the strict end is, token for token, the lossless rule's, from the same speculations"
    what += result.compared
    if result.plan.over:
        what = "the text of drafts of full length is, token for token, that of a walk without controller"
    alone = None if timing is None else {"same": timing.same_as_target, "n": len(timing.target.tokens)}
    return {
        "same": int(same.sum()),
        "n": len(result),
        "different": result.prompts["id"][~same].tolist()[:100],
        "what": what,
        "decoded_by_the_target_alone": alone,
    }


def _relaxed(sweep: CachedSweep, dial: float) -> dict[str, Any]:
    counts, shares = dict[str, Any](), dict[str, Any]()
    kinds = (("target_rank", RANK_WORDS), ("p_over_p1", SHARE_WORDS))
    for (name, words), (count, band) in zip(kinds, sweep.relaxed(dial).values(), strict=True):
        counts[f"by_{name}"] = dict(zip(words, count.tolist(), strict=True))
        shares[f"shares_by_{name}"] = {word: picked(band.at(place), *ENDS) for place, word in enumerate(words)}
    return counts | shares


def _engine(row: EngineRow) -> dict[str, Any]:
    facts = picked(row.definition, "engine", "length_formula", "rate_formula", "bonus", "source", "note")
    facts |= {"pooling": row.definition.pooling.value} | picked(row, "length", "rate")
    for name, within in (("length_within", row.length_within), ("rate_within", row.rate_within)):
        ends = {end: None if within.interval is None else getattr(within.interval, end) for end in ("low", "high")}
        facts[name] = ends | {"why_none": within.why}
    for name, values in picked(row, "unconditional", "conditional", "joint").items():
        facts[name] = None if values is None else values.tolist()
    return facts


_MODELS = ("target", "target_revision", "drafter", "drafter_revision", "dtype", "device")
_PROMPT = ("id", "category", "prompt_tokens", "off_is_strict", "target_right")
_SETTING = ("tokens", "rounds", "drafted", "kept", "rolled_back", "relaxed", "right")
_AGAINST = ("first_divergence", "edit_distance")


def figures_csv(heads: Sequence[str], rows: Sequence[tuple[Sequence[Any], Mapping[str, Any]]]) -> str:
    """Return a line per row: its first cells under `heads`, then every figure with the ends of its interval. Undefined
    values are empty."""
    names = list(dict.fromkeys(name for _, figures in rows for name in figures))
    heads = [*heads, *(f"{name}{end}" for name in names for end in ("", "_low", "_high"))]
    lines = [
        [*cells, *((figures.get(name) or {}).get(end) for name in names for end in ENDS)] for cells, figures in rows
    ]
    return csv_of(heads, lines)


def _figures_at(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: each for name, each in row.items() if isinstance(each, dict)}


def engines_csv(rows: list[dict[str, Any]]) -> str:
    """Return a line per definition of acceptance, with length, rate and the ends of their intervals. Values that are
    not reported or not defined are empty."""
    whats = ("length", "rate")
    heads = [f"{what}{end}" for what in whats for end in ("", "_low", "_high", "_formula")]
    lines = []
    for row in rows:
        cells = [
            [row[what], *(row[f"{what}_within"][end] for end in ("low", "high")), row[f"{what}_formula"]]
            for what in whats
        ]
        lines.append([row["engine"], *cells[0], *cells[1], row["bonus"], row["pooling"]])
    return csv_of(["engine", *heads, "bonus", "pooling"], lines)


def summary_csv(found: Mapping[str, Any]) -> str:
    """Return a line each for the target alone, strict and the chosen setting, with models and data set."""
    models, rule, data, timing = (found[name] for name in ("models", "rule", "data_set", "wall_clock"))
    where = {name: models[name] for name in (*_MODELS, *options_of(Settings)) if name != "gamma"}
    where["versions"] = "; ".join(f"{name} {version}" for name, version in sorted(models["versions"].items()))
    where |= {"data_set": data["name"], "n": data["n"], "graded": data["graded"]}
    rows = []
    for name, at in (("target", None), *((way, found["settings"][way]) for way in ("strict", "chosen"))):
        row = {"setting": name, "rule": rule["name"] if at is not None else "", "dial": at, "gamma": rule["gamma"]}
        row |= {"tree": rule["tree"]} | where
        figures = {each["figure"]: each["settings"][name] for each in found["figures"]} if at is not None else {}
        if at is None and found["accuracy"] is not None:
            figures["accuracy"] = found["accuracy"]["target"]["wilson"]
        if timing is not None:
            figures["tokens_per_second"] = timing["tokens_per_second"][name]
            if name == "chosen":
                figures |= {what: timing[what] for what in ("measured_over_target", "measured_over_strict")}
        rows.append(([*row.values()], figures))
    return figures_csv(list(row), rows)


def prompts_csv(result: SweepResult, dial: float) -> str:
    """Return a line per prompt with its counts at the strict end and at the setting."""
    heads: list[str] = list(_PROMPT)
    columns = [result.prompts[name].tolist() for name in _PROMPT]
    for label, at in (("strict", result.plan.strict), ("chosen", dial)):
        rows = result.rows(np.array([at]))[:, 0]
        for name in _SETTING + (_AGAINST if label == "chosen" else ()):
            heads.append(f"{label}_{name}")
            columns.append(result.lines[name][rows].tolist())
    return csv_of(heads, list(zip(*columns, strict=True)))


def evidence_zip(result: SweepResult, *, dial: float, **options: Any) -> bytes:
    """Return the files as a zip with one folder; equal evidence gives equal bytes."""
    files = Evidence(result, dial, **options).files()
    return packed((f"evidence/{name}", data) for name, data in files.items())


def reproduction(
    result: SweepResult,
    terms: Terms,
    *,
    dial: float | None = None,
    timing: TimingCheck | None = None,
    grid: str = "",
    load: int = 0,
) -> dict[str, Any]:
    """Return the shell `command` for this sweep on these terms, and a sentence for everything else that it `needs`.

    OUT and PACK in the command are placeholders of new folders. `dial` is a setting chosen by hand, `timing` its
    wall-clock check, `grid` the value of `--grid` for variants, and `load` the largest measured number of texts.
    """
    plan, items = result.plan, tuple[PromptItem, ...]()
    with suppress(BadInput):
        items = open_store(result.folder).prompts().items
    options, needs = _prompts(plan, items)
    systems = {item.system for item in items}
    options += [("system", system) for system in systems if system and len(systems) == 1]
    options += _settings(plan, dial, grid)
    provenance = plan.provenance
    for name, model, revision in (
        ("target", provenance.target, provenance.target_revision),
        ("drafter", provenance.drafter, provenance.drafter_revision),
    ):
        if not is_built_in(model):
            options.append((name, model))
            needs += [f"The {name} {model} was at revision {revision}."] * bool(revision)
    options += [("dtype", provenance.dtype)] * bool(provenance.dtype)
    options += [("loss", terms.points), ("confidence", terms.confidence)]
    options += [(name, limit) for name, limit in terms.increases.items() if limit != getattr(DEFAULT_TERMS, name)]
    options += [("intervals", terms.how.method.value.lower())] * (terms.how.method is not DEFAULT.method)
    if timing is not None and not grid:
        count, repetitions = timing.chosen.seconds.shape
        options += [("wall_clock", True), ("timed", count), ("repetitions", repetitions)]
    options += [("load", load)] * bool(load)
    options += [("out", "OUT"), ("evidence", "PACK")]
    versions = ", ".join(f"{name} {version}" for name, version in sorted(provenance.versions.items()))
    needs.append(f"The device was {provenance.device}{f', with {versions}' if versions else ''}.")
    return {"command": command_line("sweep", options), "needs": tuple(needs)}


def _prompts(plan: Plan, items: Sequence[PromptItem]) -> tuple[Options, list[str]]:
    if kinds := kinds_of(plan.prompt_set):
        named = plan.prompt_set.partition(": ")[2].replace(" ", "")
        each = per_task(plan.prompts, len(kinds))
        return [("set", f"builtin:{named}" if named else "builtin"), ("limit", each)], []
    graders = list(dict.fromkeys(item.grader for item in items if item.graded))
    limit: Options = [("limit", len({item.unit for item in items}))] * bool(items)
    if task := next(filter(None, map(harness.task_of, graders)), ""):
        score = next(grader for grader in graders if harness.task_of(grader)).rpartition(":")[2]
        shots = plan.prompt_set.partition(", ")[2].partition(" ")[0]
        fewshot: Options = [("fewshot", shots)] * shots.isdigit()
        note = f"The task and its examples: {plan.prompt_set}."
        return [("task", task), *fewshot, ("metric", score), *limit], [note]
    options: Options = [("set", plan.prompt_set), *limit]
    options += [("turns", "first")] * (plan.turns is Turns.FIRST and plan.later_turns > 0)
    options += [("grader", grader) for grader in graders if len(graders) == 1]
    options += [("skip_bad", True)] * bool(plan.skipped)
    note = f"{plan.prompt_set} is the file that was swept; the SHA-256 of its prompts is under “What was run”."
    return options, [note]


def _settings(plan: Plan, dial: float | None, grid: str) -> Options:
    settings, rule = plan.settings, plan.rule
    options: Options = [("rule", rule.family if grid and plan.cut_by is None else rule.name)]
    options += [("grid", grid)] * bool(grid)
    whole = plan.axis.span(None, None, (settings.gamma,))
    ends = (("low", plan.low, whole.low), ("high", plan.high, whole.high))
    options += [(name, at) for name, at, end in ends if at != end]
    options += [("tree", settings.tree)] * settings.drafts_trees
    if plan.over:
        if dial is None and plan.cut_by is not None and plan.cut_by.counts:
            options.append(("over", "gamma"))
        else:
            threshold = "" if dial is None else f":{exactly(dial)}"
            options += [("controller", f"{plan.over}{threshold}"), ("over", "controller")]
        options += [("dial", settings.dial)] * (settings.dial is not None)
    elif settings.controller != NONE:
        options.append(("controller", settings.controller.partition(":")[0] if grid else settings.controller))
    options += [("dial", dial)] * (dial is not None and not plan.over)
    options += [(name, getattr(settings, name)) for name in options_of(Settings)]
    chat: Options = [("chat", plan.chat)] * (plan.chat or not is_built_in(plan.provenance.target))
    return [*options, ("stop", settings.stop), *chat]
