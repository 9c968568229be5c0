"""Writes what the code knows into the pages about the rules: `python docs/rule_pages.py [--check]`.

A page of docs/rules has two generated parts, its head and its example, each between two markers; all else on it is
written by hand and left as it is. A rule without a page gets one with room for the words. The index, README.md beside
the pages, has its table generated likewise. With --check nothing is written; exit code 1 means that something would be.

Knows rules and what they declare; the example is one block, made up by hand, that every rule judges.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from factories import make_speculation  # noqa: E402

from mars_viz.records import Decision, Speculation, Verdicts  # noqa: E402
from mars_viz.rules import RULES, Dial, Fixed, Rule, settle  # noqa: E402
from mars_viz.run import Settings  # noqa: E402
from mars_viz.sweep.document import engine_settings  # noqa: E402
from mars_viz.words import number, setting  # noqa: E402

FOLDER = ROOT / "docs" / "rules"
INDEX = "README.md"
COMMAND = "python docs/rule_pages.py"
WORDS = "In words: what the rule does, when it is a good choice, its pitfalls, where engines carry it."


class BrokenPage(Exception):
    """A page whose markers cannot be found."""


# ---- the block that every rule judges

VOCABULARY = (" small", " little", " fox", " who", " that", " lived", " in", " the", " woods", " wood", " forest", ".")
K = 12.0
"""What is added to the logarithms of the shares to make raw logits of a usual size."""


@dataclass(frozen=True, slots=True)
class Place:
    """One drafted token of the example, and what both models thought of it."""

    drafted: str
    """The token."""
    target: dict[str, float]
    """The target's probabilities of the likely tokens; the others share the rest."""
    drafter: dict[str, float]
    """The drafter's."""
    coin: float
    """Its acceptance coin."""


BLOCK = (
    Place(" small", {" little": 0.46, " small": 0.40, " fox": 0.06}, {" small": 0.70, " little": 0.20}, 0.81),
    Place(" fox", {" fox": 0.88, " wood": 0.04}, {" fox": 0.80, " wood": 0.08}, 0.35),
    Place(" who", {" who": 0.71, " that": 0.22}, {" who": 0.62, " that": 0.30}, 0.30),
    Place(" lived", {" lived": 0.42, " in": 0.21}, {" lived": 0.85, " in": 0.05}, 0.77),
    Place(" in", {" in": 0.93}, {" in": 0.90}, 0.12),
    Place(" the", {" the": 0.90}, {" the": 0.92}, 0.55),
    Place(" forest", {" woods": 0.50, " wood": 0.22, " forest": 0.16}, {" forest": 0.55, " woods": 0.25}, 0.40),
    Place(".", {".": 0.82, " in": 0.08}, {".": 0.75, " in": 0.10}, 0.28),
)
AFTER = {" little": 0.05, " fox": 0.04, " who": 0.62, " that": 0.20}
"""The target's law after the block, from which a bonus is drawn."""
SEED = 6
"""Keys the target's own samples and the residual ones."""


def logits(shares: dict[str, float]) -> np.ndarray:
    """float64 [V]; raw logits of a law whose other tokens are equally likely."""
    rest = (1 - sum(shares.values())) / (len(VOCABULARY) - len(shares))
    return np.log([shares.get(token, rest) for token in VOCABULARY]) + K


def example() -> Speculation:
    """The block, drawn at temperature 1."""
    return make_speculation(
        np.array([*(logits(place.target) for place in BLOCK), logits(AFTER)]),
        np.array([logits(place.drafter) for place in BLOCK]),
        [VOCABULARY.index(place.drafted) for place in BLOCK],
        temperature=1.0,
        seed=SEED,
        coins=[place.coin for place in BLOCK],
    )


# ---- what is generated


def head(rule: Rule) -> str:
    """All that a rule declares, as a table."""
    lines = [f"> {rule.summary}", "", "| | |", "|---|---|", f"| name | `{rule.name}` |"]
    lines.append(f"| keeps a drafted x where | {_cell(rule.formula)} |")
    lines += _dial_lines(rule.dial) + [_fixed_line(rule, each) for each in rule.fixed]
    when = " (at the strict end)" if rule.emission_follows_dial else ""
    lines.append(f"| on rejection it emits | {rule.emits}{when} |")
    needs = ", ".join(f"`{name}`" for name in rule.needs)
    evidence = f"{needs}: decode with full evidence" if needs else "what every recording has"
    lines.append(f"| evidence that it needs | {evidence} |")
    lines += [f"| {name} | {said} |" for name, said in _properties(rule)]
    lines.append(f"| source | {rule.source} |")
    return "\n".join(lines + _engine_lines(rule))


def _dial_lines(dial: Dial | None) -> list[str]:
    if dial is None:
        return ["| dial | none |"]
    strict = f"{dial.strict:g}, so a {'smaller' if dial.strict_is_high else 'larger'} {dial.symbol} is looser"
    return [
        f"| dial | {dial.symbol}, {dial.name}, from {dial.low:g} to {dial.high:g} in steps of {dial.step:g} |",
        f"| default | {dial.default:g} |",
        f"| strict end | {strict} |",
    ]


def _fixed_line(rule: Rule, each: Fixed) -> str:
    other = each.written(each.low + each.step if each.low + each.step != each.default else each.low)
    said = f"{each.symbol} = {each.written(each.default)}: {each.meaning}; from {each.low:g} to {each.high:g}"
    return f"| {each.name}, fixed | {said}. Another with `{rule.name}:{each.key}={other}` in place of the name |"


def _properties(rule: Rule) -> list[tuple[str, str]]:
    said = [
        ("lossless", "yes: the text follows the target's distribution" if rule.lossless else "no"),
        ("a verdict depends on", "other tokens of the block too" if rule.spans_positions else "its own token alone"),
    ]
    if rule.dial is not None:
        said += [
            ("monotone", "yes: a looser dial keeps no less" if rule.monotone else "no: a looser dial may keep less"),
            ("what it emits depends on the dial", "yes" if rule.emission_follows_dial else "no"),
        ]
    return said


def _engine_lines(rule: Rule) -> list[str]:
    """The settings of engines that have the rule, at its default and with six drafted tokens."""
    if rule.dial is None:
        return []
    dial = rule.dial.default
    found = [one for one in engine_settings(Settings(rule=rule.name, dial=dial), dial) if one.text and one.has_rule]
    return [
        part
        for one in found
        for part in ("", f"In {one.engine}, at the default and γ = 6:", "", f"    {one.text}", "", one.note)
    ]


def worked(rule: Rule) -> str:
    """What the rule makes of the block, at its default."""
    speculation = example()
    verdicts = rule.judge(speculation)
    at = rule.checked_dial(None)
    said = "".join(place.drafted for place in BLOCK)
    lines = [
        "The same block on every page, made up and drawn at temperature 1. After “there was a” the drafter wrote "
        f"“{said}”",
        "",
        "| drafted x | rank of x | z2/z1 | p(x) | q(x) | coin u | verdict at the default | flips at |",
        "|---|---|---|---|---|---|---|---|",
    ]
    keeps = verdicts.keeps(np.nan if at is None else at)
    for node, place in enumerate(BLOCK):
        numbers = (
            str(speculation.ranks[node]),
            number(float(speculation.ratio[node])),
            number(float(speculation.p[node])),
            number(float(speculation.q[node])),
            number(place.coin),
            "keep" if keeps[node] else "reject",
            _flip(rule, verdicts, node),
        )
        lines.append(f"| “{place.drafted}” | {' | '.join(numbers)} |")
    return "\n".join([*lines, "", _outcome(rule, speculation, verdicts, at)])


def _flip(rule: Rule, verdicts: Verdicts, node: int) -> str:
    at = float(verdicts.breakpoints[node])
    if np.isnan(at) or rule.dial is None:
        return "never"
    gap = float(verdicts.gaps[node])
    first = "" if np.isnan(gap) else f"{rule.dial.symbol} = {number(gap)} and "
    return f"{first}{rule.dial.symbol} = {number(at)}"


def _outcome(rule: Rule, speculation: Speculation, verdicts: Verdicts, at: float | None) -> str:
    said = f"{rule.at(at)} {_written(settle(speculation, verdicts, at))}."
    if rule.dial is None or at == rule.dial.strict:
        return said
    strict = settle(speculation, verdicts, rule.dial.strict)
    return f"{said} At its strict end, {setting(rule.dial.symbol, rule.dial.strict)}, it {_written(strict)}."


def _written(decision: Decision) -> str:
    """'keeps 3 of 8 and emits “ woods” in place of “ forest”'."""
    kept, token = len(decision.kept), VOCABULARY[decision.emitted]
    if kept == len(BLOCK):
        return f"keeps all {kept} and adds “{token}” as its bonus"
    return f"keeps {kept or 'none'} of {len(BLOCK)} and emits “{token}” in place of “{BLOCK[kept].drafted}”"


def index() -> str:
    """The table of all rules."""
    lines = ["| rule | keeps a drafted x where | dial | default | strict end | lossless |", "|---|---|---|---|---|---|"]
    for rule in RULES.values():
        dial = rule.dial
        values = ("–", "–", "–") if dial is None else (dial.symbol, f"{dial.default:g}", f"{dial.strict:g}")
        name = f"[{rule.title}]({rule.name}.md)<br>`{rule.name}`"
        lines.append(f"| {name} | {_cell(rule.formula)} | {' | '.join(values)} | {'yes' if rule.lossless else 'no'} |")
    return "\n".join(lines)


def _cell(text: str) -> str:
    """Text in a table: a bar would end the cell."""
    return text.replace("|", "\\|")


# ---- pages


def filled(page: str, name: str, content: str, where: str) -> str:
    """The page with that part written anew. Raises BrokenPage where its markers are missing or doubled."""
    begin, end = f"<!-- {name}: generated by `{COMMAND}` -->", f"<!-- end of {name} -->"
    if page.count(begin) != 1 or page.count(end) != 1 or page.index(end) < page.index(begin):
        raise BrokenPage(f"{where} needs one line `{begin}` and, below it, one line `{end}`. Put them back.")
    before, rest = page.split(begin)
    return f"{before}{begin}\n{content}\n{end}{rest.split(end)[1]}"


def room(name: str) -> str:
    """An empty part."""
    return f"<!-- {name}: generated by `{COMMAND}` -->\n<!-- end of {name} -->"


def blank(rule: Rule) -> str:
    """The page of a rule that has none yet."""
    return f"# {rule.title}\n\n{room('head')}\n\n## In words\n\n{WORDS}\n\n## An example\n\n{room('example')}\n"


def pages(folder: Path = FOLDER) -> dict[Path, str]:
    """What every page should read. Raises BrokenPage."""
    found = {}
    for rule in RULES.values():
        path = folder / f"{rule.name}.md"
        text = path.read_text("utf-8") if path.exists() else blank(rule)
        text = filled(text, "head", head(rule), path.name)
        found[path] = filled(text, "example", worked(rule), path.name)
    path = folder / INDEX
    text = path.read_text("utf-8") if path.exists() else f"# The rules\n\n{room('table')}\n"
    found[path] = filled(text, "table", index(), path.name)
    return found


def stale(folder: Path = FOLDER) -> dict[Path, str]:
    """The pages that read otherwise than they should, with what they should read. Raises BrokenPage."""
    return {path: text for path, text in pages(folder).items() if not path.exists() or path.read_text("utf-8") != text}


def main(arguments: list[str] | None = None) -> int:
    """Write, or with --check only look; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit code 1 if something would change")
    options = parser.parse_args(arguments)
    try:
        changed = stale()
    except BrokenPage as error:
        print(error, file=sys.stderr)
        return 2
    for path, text in changed.items():
        print(f"{path.relative_to(ROOT)} {'is out of date' if options.check else 'written'}")
        if not options.check:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, "utf-8")
    return 1 if options.check and changed else 0


if __name__ == "__main__":
    sys.exit(main())
