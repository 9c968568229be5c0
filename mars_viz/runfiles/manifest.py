"""The manifest of a run, readable before any table; and the tags of runs.

The one-line summary of a run, for cards, tables and the command line, is 'MARS θ = 0.9 · T 0 · seed 0 · γ 6 · built-in
pair · AMD EPYC, 1 thread · 2026-11-25 · 128 tokens · τ 6.40'. It contains every setting that affects tokens, so
different settings have different lines. Texts in it are untrusted data.
"""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from mars_viz import demo
from mars_viz.axis import Span, check_span
from mars_viz.bounds import headed, parsed, shortened
from mars_viz.chat import NO_HISTORY, History
from mars_viz.errors import BadInput, RunFileError, StorageError
from mars_viz.escapes import JOINERS, steers
from mars_viz.rules import rule_named
from mars_viz.run import Provenance, Run, Settings, stop_words
from mars_viz.shapes import shape_named
from mars_viz.words import clipped, counted, exactly, number, short_device

SCHEMA = 5  # incremented on every change that breaks reading in either direction

MOST_TAGS = 20  # per run
LONGEST_TAG = 40  # characters per tag

BETWEEN = " · "  # separates the parts of the summary
_DEFAULT = Settings()
_PAIR = (f"{demo.BUILT_IN}/target", f"{demo.BUILT_IN}/drafter")


@dataclass(frozen=True, slots=True)
class Stamp:
    """Size and checksum of a table's file when it was written."""

    bytes: int
    sha256: str  # hexadecimal


@dataclass(frozen=True, slots=True)
class MapFacts:
    """The range of a run's map, over its rule's dial or a controller's threshold."""

    span: Span  # the dial range and the block lengths
    passes: int  # batched target passes
    seconds: float  # wall-clock time
    answers: int  # number of prefixes


@dataclass(frozen=True, slots=True)
class Manifest:
    """The description of a run."""

    title: str  # a line for lists; may be empty
    prompt: str  # as the user entered it
    prompt_ids: tuple[int, ...]
    settings: Settings
    provenance: Provenance  # models, device, versions, time
    rounds: int  # number of rounds
    tokens: int  # number of emitted tokens
    dial_map: MapFacts | None
    files: Mapping[str, Stamp]  # table files
    tags: tuple[str, ...] = ()  # in order; omitted from the file if empty
    history: History = NO_HISTORY  # messages before the prompt; omitted from the file if empty

    @classmethod
    def of(cls, run: Run, files: Mapping[str, Stamp] | None = None) -> Manifest:
        """Return the manifest of a run with these table files. Raises BadInput for invalid tags."""
        dial_map, facts = run.map, None
        if dial_map is not None:
            facts = MapFacts(dial_map.span, dial_map.passes, dial_map.seconds, len(dial_map.answers))
        counts = {"rounds": len(run.rounds), "tokens": len(run.token_ids)}
        return cls(**shared(run) | counts | {"tags": checked_tags(run.tags), "dial_map": facts, "files": files or {}})

    @property
    def tau(self) -> float:
        """Acceptance length: emitted tokens per round; NaN for a run without rounds or with an unknown number."""
        return self.tokens / self.rounds if self.rounds else math.nan

    @property
    def heading(self) -> str:
        """The title, or the start of the prompt if there is none; one line."""
        return one_line(self.title or self.prompt) or "Untitled"

    @property
    def models(self) -> str:
        """Target and drafter: 'built-in pair', 'built-in target, eagle3', 'Qwen/Qwen3-8B, ngram:n=3'."""
        target, drafter = self.provenance.target, self.provenance.drafter
        if (target, drafter) == _PAIR:
            return "built-in pair"
        named = ["built-in target" if target == _PAIR[0] else target, drafter]
        return ", ".join(one_line(each) for each in named if each) or "models not named"

    @property
    def draft(self) -> str:
        """The draft of a round: 'γ 6', 'γ 6 cut by SVIP at λ = 0.3', 'tree of 16 nodes, depth 6, branching 4'."""
        words = self.settings.draft.replace("γ = ", "γ ", 1)
        accept = shape_named(self.settings.tree).accept
        return words + (f", chances {' '.join(f'{chance:g}' for chance in accept)}" if accept else "")

    @property
    def date(self) -> str:
        """The UTC date of the recording, such as '2026-11-25'; empty if unknown."""
        match = re.match(r"\d{4}-\d{2}-\d{2}", self.provenance.created)
        return match[0] if match else ""

    @property
    def parts(self) -> Mapping[str, str]:
        settings, provenance = self.settings, self.provenance
        device = one_line(short_device(provenance.device))
        if device and provenance.dtype not in ("", "float32"):
            device += f", {one_line(provenance.dtype)}"
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
        return BETWEEN.join(self.parts.values())


def shared(described: Run | Manifest) -> dict[str, Any]:
    """Return the fields that runs and manifests have in common."""
    names = ("title", "prompt", "prompt_ids", "settings", "provenance", "tags", "history")
    return {name: getattr(described, name) for name in names}


def checked_label(text: str, noun: str, longest: int) -> str:
    """Return a title or tag, stripped. Raises BadInput if it is empty, too long, or contains control characters."""
    if any(map(steers, text)):
        what = f"{noun} {shortened(text)}"
        raise StorageError(f"The {what} holds a control character, such as a line break. Remove it.")
    text = unicodedata.normalize("NFC", text).strip()
    if not text.strip(JOINERS):
        raise StorageError(f"The {noun} is empty. Write a word.")
    if len(text) > longest:
        raise StorageError(f"The {noun} has {len(text)} characters, and at most {longest} are kept. Shorten it.")
    return text


def checked_tag(tag: str) -> str:
    """Return the tag with normalized whitespace. Raises BadInput as `checked_label`, and for commas."""
    tag = " ".join(checked_label(tag, "tag", LONGEST_TAG).split())
    if "," in tag:
        raise StorageError(f"The tag “{tag}” holds a comma, which separates tags. Leave it out.")
    return tag


def checked_tags(tags: Iterable[str]) -> tuple[str, ...]:
    """Return the sorted tags without case-insensitive duplicates. Raises BadInput as `checked_tag`, or for too many."""
    by_key: dict[str, str] = {}
    for tag in map(checked_tag, tags):
        by_key.setdefault(tag.casefold(), tag)
    if len(by_key) > MOST_TAGS:
        raise StorageError(f"These are {len(by_key)} tags, and a run has at most {MOST_TAGS}. Leave some out.")
    return tuple(by_key[key] for key in sorted(by_key))


def retagged(tags: Iterable[str], add: Iterable[str] = (), remove: Iterable[str] = ()) -> tuple[str, ...]:
    """Return the tags after adding and removing some, ignoring case. Raises BadInput as `checked_tags`."""
    removed = {checked_tag(tag).casefold() for tag in remove}
    return checked_tags([*(tag for tag in tags if tag.casefold() not in removed), *add])


def one_line(text: str) -> str:
    """Return the text on one line, cut to 60 characters."""
    return clipped(" ".join(text.split()), 60)


def to_json(manifest: Manifest) -> bytes:
    """Return the file. Raises BadInput for values without JSON equivalent: NaN, or half of a surrogate pair."""
    facts = {"format": "mars-viz-run", "schema": SCHEMA} | asdict(manifest)
    for name, empty in (("tags", ()), ("history", NO_HISTORY)):
        if getattr(manifest, name) == empty:
            del facts[name]  # so that older versions can read it
    try:
        return json.dumps(facts, allow_nan=False, ensure_ascii=False, indent=1).encode()
    except (ValueError, TypeError) as error:  # UnicodeEncodeError is a ValueError
        raise StorageError(f"A setting or text cannot be written as JSON ({error}). Mend that value.") from error


def from_json(data: bytes) -> Manifest:
    """Return the manifest. Raises BadInput for anything else, including newer schemas."""
    fields, _ = headed(data, "manifest.json", "run", SCHEMA)
    manifest = parsed(Manifest, fields, "manifest.json")
    settings = manifest.settings
    for impossible, why in (
        (rule_named(settings.rule).checked_dial(settings.dial) != settings.dial, "leaves out the dial"),
        (manifest.tokens > settings.max_new_tokens, "counts more tokens than its own limit allows"),
        (manifest.rounds > manifest.tokens, "counts more rounds than tokens, and every round writes one"),
    ):
        if impossible:
            raise RunFileError(f"manifest.json {why}. Take a fresh copy, or record the run again.")
    try:
        if checked_tags(manifest.tags) != manifest.tags:
            raise StorageError("They are not in order, or one is there twice.")
    except BadInput as error:
        raise RunFileError(f"manifest.json holds tags that cannot be: {error} Take a fresh copy.") from error
    if manifest.dial_map is not None:
        try:
            check_span(settings, manifest.dial_map.span)
        except BadInput as error:
            raise RunFileError(f"manifest.json describes no possible map: {error}") from error
    return manifest
