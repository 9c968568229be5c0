"""The one-line summary of a run for cards, tables and the command line.

'MARS θ = 0.9 · T 0 · seed 0 · γ 6 · built-in pair · AMD EPYC, 1 thread · 2026-11-25 · 128 tokens · τ 6.40'. It contains
every setting that affects tokens, so different settings have different lines. Texts in it are untrusted data.
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
from mars_viz.runfiles.manifest import one_line
from mars_viz.shapes import shape_named
from mars_viz.words import counted, exactly, number, short_device

BETWEEN = " · "  # separates the parts of the line
CORE = ("rule", "temperature", "draft")  # parts that follow the start of the prompt in the label of a run without title
_DEFAULT = Settings()
_PAIR = (f"{demo.BUILT_IN}/target", f"{demo.BUILT_IN}/drafter")
_LONGEST_PLACE = 60  # longest device or model name in the line


@dataclass(frozen=True, slots=True)
class RunFacts:
    """The facts of a run available without reading its tables."""

    title: str  # may be empty
    prompt: str  # as the user entered it
    tags: tuple[str, ...]
    settings: Settings
    provenance: Provenance  # models, device, versions, time
    rounds: int  # number of rounds
    tokens: int  # number of emitted tokens
    mapped: bool  # True if it has a dial map

    @classmethod
    def of(cls, about: Manifest | Run, tokens: int | None = None) -> RunFacts:
        """Return the facts of a manifest or a run.

        The manifest of an interrupted run describes its first segment. `tokens` is then the total, and the number of
        rounds is unknown (0).
        """
        complete = tokens is None or tokens == (about.tokens if isinstance(about, Manifest) else len(about.token_ids))
        if isinstance(about, Manifest):
            counts = (about.rounds if complete else 0, about.tokens if tokens is None else tokens)
            mapped = about.dial_map is not None
        else:
            counts = len(about.rounds), len(about.token_ids)
            mapped = about.map is not None
        return cls(about.title, about.prompt, about.tags, about.settings, about.provenance, *counts, mapped)

    @property
    def heading(self) -> str:
        """The title, or the start of the prompt if there is none; one line."""
        return one_line(self.title or self.prompt) or "Untitled"

    @property
    def is_titled(self) -> bool:
        """True if a user gave it a title."""
        return bool(self.title.strip())

    @property
    def tau(self) -> float:
        """Acceptance length: emitted tokens per round; NaN if the rounds are unknown."""
        return self.tokens / self.rounds if self.rounds else math.nan

    @property
    def models(self) -> str:
        """Target and drafter: 'built-in pair', 'built-in target, eagle3', 'Qwen/Qwen3-8B, ngram:n=3'."""
        target, drafter = self.provenance.target, self.provenance.drafter
        if (target, drafter) == _PAIR:
            return "built-in pair"
        named = ["built-in target" if target == _PAIR[0] else target, drafter]
        return ", ".join(_short(each) for each in named if each) or "models not named"

    @property
    def draft(self) -> str:
        """The draft of a round: 'γ 6', 'γ 6 cut by SVIP at λ = 0.3', 'tree of 16 nodes, depth 6, branching 4'."""
        words = self.settings.draft.replace("γ = ", "γ ", 1)
        accept = shape_named(self.settings.tree).shape.accept
        return words + (f", chances {' '.join(f'{chance:g}' for chance in accept)}" if accept else "")

    @property
    def date(self) -> str:
        """The UTC date of the recording, such as '2026-11-25'; empty if unknown."""
        match = re.match(r"\d{4}-\d{2}-\d{2}", self.provenance.created)
        return match[0] if match else ""

    @property
    def parts(self) -> Mapping[str, str]:
        """The parts of the line by name, in order, without empty ones."""
        settings, provenance = self.settings, self.provenance
        device = _short(short_device(provenance.device))
        if device and provenance.dtype not in ("", "float32"):
            device += f", {_short(provenance.dtype)}"
        rule = rule_named(settings.rule)
        dial = rule.checked_dial(settings.dial)
        at = "" if rule.dial is None or dial is None else f" {rule.dial.symbol} = {exactly(dial)}"
        texts = {
            "rule": rule.title + at,
            "temperature": f"T {settings.law_words}",
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
        return {name: text for name, text in texts.items() if text}

    @property
    def line(self) -> str:
        """The complete line."""
        return BETWEEN.join(self.parts.values())


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST_PLACE else text[: _LONGEST_PLACE - 1] + "…"


def labels_of(runs: Mapping[str, RunFacts | str]) -> dict[str, str]:
    """Return a unique label for each run id.

    The label is the title if there is one, otherwise the start of the prompt with rule, temperature and draft. Equal
    labels get the parts that differ, and finally the id. A text in place of facts, for an unreadable run, is its own
    label.
    """
    labels = {}
    for name, facts in runs.items():
        if isinstance(facts, RunFacts):
            settings = [] if facts.is_titled else [facts.parts[part] for part in CORE]
            labels[name] = visible(BETWEEN.join([facts.heading, *settings]))
        else:
            labels[name] = visible(facts)
    for same_label in _groups(labels):
        parts_of = {name: facts.parts for name in same_label if isinstance(facts := runs[name], RunFacts)}
        order = dict.fromkeys(part for parts in parts_of.values() for part in parts)
        telling = [part for part in order if len({parts.get(part) for parts in parts_of.values()}) > 1]
        for name, parts in parts_of.items():
            shown = () if isinstance(facts := runs[name], RunFacts) and facts.is_titled else CORE
            more = [parts[part] for part in telling if part in parts and part not in shown]
            labels[name] = visible(BETWEEN.join([labels[name], *more]))
    while groups := _groups(labels):  # repeated because a title may equal another label with id
        for same_label in groups:
            labels |= {name: f"{labels[name]}{BETWEEN}{visible(name)}" for name in same_label}
    return labels


def _groups(labels: Mapping[str, str]) -> list[list[str]]:
    names_by_label: dict[str, list[str]] = {}
    for name, label in labels.items():
        names_by_label.setdefault(label, []).append(name)
    return [names for names in names_by_label.values() if len(names) > 1]
