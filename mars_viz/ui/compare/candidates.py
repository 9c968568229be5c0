"""The texts that can stand side by side: which there are to leaf through, and the exact run of each.

Knows shelves and dial maps; knows no figures and no page.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from mars_viz.errors import EvidenceError, RunFileError
from mars_viz.prompts import grader_named, recognised
from mars_viz.rules import Rule, rule_named
from mars_viz.run import Run
from mars_viz.runfiles import Manifest
from mars_viz.ui.compare.compare_view import Across, Choice
from mars_viz.ui.library import RunCatalogue


@dataclass(frozen=True, slots=True)
class Candidate:
    """A text to compare."""

    choice: Choice
    """Which text it is, in the simplest form: what is the run's own goes unsaid."""
    source: Run
    """The run that it comes from."""
    run: Run
    """The run of exactly this setting, without a dial map."""
    label: str
    """The line of its source in lists."""
    right: bool | None
    """Whether its answer is right, by the built-in tasks; None where the prompt is none of theirs."""

    @property
    def recorded(self) -> bool:
        """True if it was really decoded at this setting; else it was found on the map, and has no clock."""
        return self.run.rounds is self.source.rounds

    @property
    def rule(self) -> Rule:
        """Its rule."""
        return rule_named(self.run.settings.rule)

    @property
    def dial(self) -> float | None:
        """Where its dial stands; None for a rule without one."""
        return None if self.rule.dial is None else self.rule.dial.checked(self.run.settings.dial)


def source_of(choice: Choice, shelf: RunCatalogue) -> Run:
    """The run that a choice comes from. Raises BadInput where it is not there, or cannot be read."""
    if choice.run not in shelf.own and choice.run not in shelf.recorded:
        raise RunFileError("There is no run of that name here; choose another from the list.")
    return shelf.opened(choice.run)


def contender(choice: Choice, shelf: RunCatalogue) -> Candidate:
    """The exact run of a choice, and the choice in its simplest form: a link may say what is the run's own. Raises
    BadInput as `source_of` does, and for a setting nobody mapped."""
    source = source_of(choice, shelf)
    run = _at(source, choice).unmapped
    return Candidate(simplest(choice, source), source, run, shelf.labels[choice.run], right_answer(run))


def _at(source: Run, choice: Choice) -> Run:
    settings, rule = source.settings, rule_named(source.settings.rule)
    gamma = choice.gamma or settings.gamma
    own = dial_of(Choice(choice.run), source)
    dial = own if choice.dial is None else rule.checked_dial(choice.dial)
    if (dial, gamma) == (own, settings.gamma):
        return source
    if source.dial_map is None or dial is None:
        raise EvidenceError(
            "This run carries no dial map, so only its own setting is known. Decode it anew, or map it."
        )
    return source.dial_map.at(dial, gamma)


def right_answer(run: Run) -> bool | None:
    """Whether a run's answer is right, by the built-in tasks; None where its prompt is none of theirs."""
    item = recognised(run.prompt)
    if item is None or item.answer is None:
        return None
    return grader_named(item.grader).grade(item.answer, run.text)


def field(across: Across, run_id: str, run: Run, gamma: int | None, shelf: RunCatalogue) -> tuple[Choice, ...]:
    """The choices to leaf through, without asking for the run of each."""
    if across is Across.SETTINGS:
        return settings_of(run_id, run, gamma)
    entries = {name: entry.manifest for name, entry in shelf.recorded.items() if entry.manifest is not None}
    if across is Across.RUNS:
        return tuple(map(Choice, (*reversed(list(shelf.own)), *entries)))
    own = [name for name, each in reversed(list(shelf.own.items())) if same_prompt(run, each)]
    return tuple(map(Choice, (*own, *(n for n, e in entries.items() if same_prompt(run, e)))))


def same_prompt(run: Run, other: Run | Manifest) -> bool:
    """True if the words of prompt and history are the same, whatever the tokenizer; without words, the ids."""
    if run.prompt and other.prompt:
        return (run.prompt, run.history) == (other.prompt, other.history)
    return run.prompt_ids == other.prompt_ids


def settings_of(run_id: str, run: Run, gamma: int | None = None) -> tuple[Choice, ...]:
    """A choice for every distinct text of the run's dial map at this γ, by rising dial; its own alone without a map."""
    made, rule = run.dial_map, rule_named(run.settings.rule)
    length = gamma or run.settings.gamma
    if made is None or rule.dial is None or length not in made.span.gammas:
        return (Choice(run_id),)
    named = (rule.dial.strict, rule.dial.checked(run.settings.dial), rule.dial.default)
    choices = []
    for segment in made.segments_for(length):
        if not segment.complete:
            continue
        inside = [
            dial for dial in named if segment.low <= dial < segment.high or dial == segment.high == made.span.high
        ]
        dial = inside[0] if inside else roundest(segment.low, segment.high)
        choices.append(simplest(Choice(run_id, dial, gamma), run))
    return tuple(choices)


def simplest(choice: Choice, run: Run) -> Choice:
    """The same text without saying what is the run's own."""
    gamma = None if choice.gamma == run.settings.gamma else choice.gamma
    own = choice.dial == dial_of(Choice(choice.run), run)
    return Choice(choice.run, None if own else choice.dial, gamma)


def roundest(low: float, high: float) -> float:
    """The value with the fewest decimals in low <= value < high; `low` where nothing lies between."""
    for decimals in range(17):
        value = math.ceil(low * 10**decimals) / 10**decimals
        if low <= value < high:
            return value
    return low


def first_pair(run_id: str, run: Run) -> tuple[Choice, Choice]:
    """What to show at first of a run: the strict end of its map as the reference, and its own setting; where that is
    the strict end, the rule's default. Its own alone, twice, where there is no map."""
    dial, made, own = rule_named(run.settings.rule).dial, run.dial_map, Choice(run_id)
    if dial is None or made is None:
        return own, own
    strict, default = (_reachable(Choice(run_id, value), run) for value in (dial.strict, dial.default))
    known = settings_of(run_id, run)
    reference = strict or known[0]
    return reference, next(
        (each for each in (own, default, *known) if each is not None and each != reference), reference
    )


def _reachable(choice: Choice, run: Run) -> Choice | None:
    """The choice in its simplest form; None where the map does not know its text to the end."""
    made, dial = run.dial_map, choice.dial
    plain = simplest(choice, run)
    if plain == Choice(choice.run):
        return plain
    if made is None or dial is None or not made.span.low <= dial <= made.span.high:
        return None
    gamma = choice.gamma or run.settings.gamma
    return plain if gamma in made.span.gammas and made.segment(dial, gamma).complete else None


def dial_of(choice: Choice, run: Run) -> float | None:
    """Where a choice puts the run's dial; None for a rule without one."""
    rule = rule_named(run.settings.rule)
    if rule.dial is None:
        return None
    return rule.dial.checked(run.settings.dial) if choice.dial is None else choice.dial


def window(choices: Sequence[Choice], at: int, most: int) -> range:
    """The part of a long list around a place that is shown at once."""
    first = max(0, min(at - most // 2, len(choices) - most))
    return range(first, min(first + most, len(choices)))
