"""What made a run, at a glance: the one line that cards, pickers, tables and the command line show of it.

'MARS θ = 0.9 · T 0 · seed 0 · γ 6 · built-in pair · AMD EPYC, 1 thread · 2026-11-25 · 128 tokens · τ 6.40'. Every
setting that decides a run's tokens is in it, so two settings never read alike. Knows manifests and runs; texts in it
are data.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from mars_viz import demo
from mars_viz.escapes import visible
from mars_viz.rules import rule_named
from mars_viz.run import Provenance, Run, Settings, stop_words
from mars_viz.runfiles import Manifest
from mars_viz.shapes import shape_named
from mars_viz.words import counted, exactly, number, short_device

BETWEEN = " · "
"""Between the parts of the line."""
CORE = ("rule", "temperature", "draft")
"""Of its parts those that a run without a title is called by, behind the start of its prompt."""
_DEFAULT = Settings()
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")
_PAIR = (f"{demo.BUILT_IN}/target", f"{demo.BUILT_IN}/drafter")
_UNNAMED = "models not named"
_LONGEST_PLACE = 60  # characters of a device or a model's name in the line


@dataclass(frozen=True, slots=True)
class RunFacts:
    """What a list says of a run without opening its tables."""

    title: str
    """As it was given; may be empty."""
    prompt: str
    """As the user gave it."""
    tags: tuple[str, ...]
    """In order."""
    settings: Settings
    """What decided its tokens."""
    provenance: Provenance
    """Models, device, versions, time."""
    rounds: int
    """How many there are."""
    tokens: int
    """Emitted ones."""
    mapped: bool
    """True where it carries a dial map."""

    @classmethod
    def of(cls, about: Manifest | Run, tokens: int | None = None) -> RunFacts:
        """Of a run's manifest, or of a run in memory. An interrupted run's manifest is that of its beginning: `tokens`
        says how many there are in all, and how many rounds is then not known (0)."""
        whole = tokens is None or tokens == (about.tokens if isinstance(about, Manifest) else len(about.token_ids))
        if isinstance(about, Manifest):
            counts = (about.rounds if whole else 0, about.tokens if tokens is None else tokens)
            mapped = about.dial_map is not None
        else:
            counts = len(about.rounds), len(about.token_ids)
            mapped = about.dial_map is not None or about.controller_map is not None
        return cls(about.title, about.prompt, about.tags, about.settings, about.provenance, *counts, mapped)

    @property
    def heading(self) -> str:
        """The title, or the start of the prompt where there is none; one line."""
        line = " ".join((self.title or self.prompt).split()) or "Untitled"
        return line if len(line) <= 60 else line[:59] + "…"

    @property
    def is_titled(self) -> bool:
        """True where a person has given it a title."""
        return bool(self.title.strip())

    @property
    def tau(self) -> float:
        """Acceptance length: emitted tokens per round; NaN where the rounds are not known."""
        return self.tokens / self.rounds if self.rounds else math.nan

    @property
    def models(self) -> str:
        """Target and drafter: 'built-in pair', 'built-in target, eagle3', 'Qwen/Qwen3-8B, ngram:n=3'."""
        target, drafter = self.provenance.target, self.provenance.drafter
        if (target, drafter) == _PAIR:
            return "built-in pair"
        named = ["built-in target" if target == _PAIR[0] else target, drafter]
        return ", ".join(_short(each) for each in named if each) or _UNNAMED

    @property
    def draft(self) -> str:
        """What is drafted in a round: 'γ 6', 'γ 6 cut by SVIP at λ = 0.3', 'tree of 16 nodes, depth 6, branching 4'."""
        words = self.settings.draft.replace("γ = ", "γ ", 1)
        accept = shape_named(self.settings.tree).shape.accept
        return words + (f", chances {' '.join(f'{chance:g}' for chance in accept)}" if accept else "")

    @property
    def date(self) -> str:
        """The day on which it was made, '2026-11-25', in UTC; empty where that is not told."""
        found = _DAY.match(self.provenance.created)
        return found[0] if found else ""

    @property
    def parts(self) -> Mapping[str, str]:
        """Of the line, by what they are of, in order; those that say nothing are left out."""
        settings, provenance = self.settings, self.provenance
        device = _short(short_device(provenance.device))
        if device and provenance.dtype not in ("", "float32"):
            device += f", {_short(provenance.dtype)}"
        found = {
            "rule": _judged(settings),
            "temperature": _sampled(settings),
            "seed": f"seed {settings.seed}",
            "draft": self.draft,
            "limit": "" if settings.max_new_tokens == _DEFAULT.max_new_tokens else f"limit {settings.max_new_tokens}",
            "stop": f"stop {stop_words(settings.stop)}" if settings.stop else "",
            "models": self.models,
            "device": device,
            "date": self.date,
            "tokens": counted(self.tokens, "token"),
            "tau": f"τ {number(self.tau)}" if self.rounds else "",
        }
        return {name: said for name, said in found.items() if said}

    @property
    def line(self) -> str:
        """All of them."""
        return BETWEEN.join(self.parts.values())


def _judged(settings: Settings) -> str:
    """'MARS θ = 0.9'."""
    rule = rule_named(settings.rule)
    dial = rule.checked_dial(settings.dial)
    return rule.title if rule.dial is None or dial is None else f"{rule.title} {rule.dial.symbol} = {exactly(dial)}"


def _sampled(settings: Settings) -> str:
    """'T 0', 'T 1, top-p 0.9, top-k 20'."""
    said = [f"T {exactly(settings.temperature)}"]
    said += [f"top-p {exactly(settings.top_p)}"] * (settings.top_p != _DEFAULT.top_p)
    return ", ".join(said + [f"top-k {settings.top_k}"] * (settings.top_k != _DEFAULT.top_k))


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST_PLACE else text[: _LONGEST_PLACE - 1] + "…"


def labels_of(runs: Mapping[str, RunFacts | str]) -> dict[str, str]:
    """A label for each run by its id, no two alike: its title where one is given, else the start of its prompt with
    rule, temperature and draft; where several read alike then, what differs among them, and at last the id. A text in
    place of facts, of a run that cannot be read, stands for itself."""
    labels = {name: visible(_called(facts)) for name, facts in runs.items()}
    for alike in _groups(labels):
        known = {name: facts.parts for name in alike if isinstance(facts := runs[name], RunFacts)}
        telling = _telling(known)
        for name, parts in known.items():
            shown = () if isinstance(facts := runs[name], RunFacts) and facts.is_titled else CORE
            more = [parts[part] for part in telling if part in parts and part not in shown]
            labels[name] = visible(BETWEEN.join([labels[name], *more]))
    while found := _groups(labels):  # again where a title reads as another's label with its id
        for alike in found:
            labels |= {name: f"{labels[name]}{BETWEEN}{visible(name)}" for name in alike}
    return labels


def _called(facts: RunFacts | str) -> str:
    if isinstance(facts, str):
        return facts
    if facts.is_titled:
        return facts.heading
    return BETWEEN.join([facts.heading, *(facts.parts[part] for part in CORE)])


def _groups(labels: Mapping[str, str]) -> list[list[str]]:
    """Of ids those whose labels are the same."""
    found: dict[str, list[str]] = {}
    for name, label in labels.items():
        found.setdefault(label, []).append(name)
    return [names for names in found.values() if len(names) > 1]


def _telling(known: Mapping[str, Mapping[str, str]]) -> list[str]:
    """The parts of the line in which runs differ, in its order."""
    order = dict.fromkeys(part for parts in known.values() for part in parts)
    return [part for part in order if len({parts.get(part) for parts in known.values()}) > 1]
