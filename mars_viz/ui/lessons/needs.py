"""Requirements of lessons for a run, each with an error sentence. Requirements on the manifest are checked before the
records are read."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from mars_viz.analysis import lesson_sums
from mars_viz.analysis.lesson_sums import close_calls, gain
from mars_viz.analysis.tree_gain import choices
from mars_viz.records import Emission
from mars_viz.rules import rule_named
from mars_viz.rules.mars import THETA, MarsCode
from mars_viz.run import Run
from mars_viz.runfiles import Manifest

Facts: TypeAlias = Run | Manifest  # provides a run's settings, and whether it has rounds and a dial map


@dataclass(frozen=True, slots=True)
class Need:
    """Requirement for a run."""

    words: str  # the requirement, as part of a list after 'a run with'
    missing: str  # why a run without it is unsuitable, as a sentence
    of_facts: Callable[[Facts], bool] = lambda facts: True  # checks the manifest; True if the run may be suitable
    of_records: Callable[[Run], bool] = lambda run: True  # checks the records


def lacking(run: Run, needs: tuple[Need, ...]) -> str:
    """Return why a run is unsuitable, as a sentence; empty if it is suitable."""
    return next((need.missing for need in needs if not (need.of_facts(run) and need.of_records(run))), "")


def ruled_out(facts: Facts, needs: tuple[Need, ...]) -> bool:
    """Return True if the manifest alone shows that the run is unsuitable."""
    return not all(need.of_facts(facts) for need in needs)


def is_lossless(facts: Facts) -> bool:
    """Return True if the text follows the target's distribution: the rule is lossless, or it is lossless at its strict
    end and the dial is there.

    At temperature 0 every rule is lossless at its strict end. Above it, this depends on the token that is emitted after
    a rejection: the target's best token and the residual of the released MARS code are not exact.
    """
    rule, settings = rule_named(facts.settings.rule), facts.settings
    if rule.lossless or rule.dial is None:
        return rule.lossless
    exact_there = settings.temperature == 0 or rule.on_rejection in (Emission.SAMPLE, Emission.RESIDUAL)
    return exact_there and settings.dial == rule.dial.strict


def _theta_counts(facts: Facts) -> bool:
    rule = rule_named(facts.settings.rule)
    return rule.dial == THETA and not (facts.settings.temperature == 0 and rule.name == MarsCode.name)


def _strict_known(facts: Facts) -> bool:
    dial = rule_named(facts.settings.rule).dial
    return dial is None or facts.settings.dial == dial.strict or facts.dial_map is not None


def _has_texts(run: Run) -> bool:
    dial_map = run.dial_map
    return dial_map is not None and len(dial_map.segments_for(mapped_gamma(run))) > 1


def mapped_gamma(run: Run) -> int:
    """Return the run's own block length if its map has it, otherwise the map's longest."""
    assert run.dial_map is not None
    gammas = run.dial_map.span.gammas
    return run.settings.gamma if run.settings.gamma in gammas else max(gammas)


JUDGED = Need(
    "at least one drafted token judged",
    "No drafted token was judged in this run, so its acceptance rate α is unknown.",
    of_records=lambda run: not math.isnan(gain(run).alpha),
)
CHAINS = Need(
    "drafts that are chains",
    "This run drafts trees, and this lesson reckons with chains.",
    lambda facts: not facts.settings.drafts_trees,
)
GREEDY = Need(
    "temperature 0",
    "This run is sampled: drafts are kept by chance, which is lesson 3. This lesson is about greedy decoding.",
    lambda facts: facts.settings.temperature == 0,
)
ROUNDS = Need("rounds", "This run has no rounds: nothing was drafted.", lambda facts: bool(facts.rounds))
STRICT_KNOWN = Need(
    "a known strict text (decoded strictly, or with a dial map)",
    "This run does not say what strict verification would have written: it has no dial map.",
    _strict_known,
)
SAMPLED = Need(
    "temperature above 0",
    "This run is greedy: no token was drawn, so there are no two distributions to compare.",
    lambda facts: facts.settings.temperature > 0,
)
UNCUT = Need(
    "neither top-k nor top-p",
    "This run cut its distributions by top-k or top-p, and the records do not hold what was left.",
    lambda facts: facts.settings.top_p == 1 and not facts.settings.top_k,
)
BOTH_KNOWN = Need(
    "a drafting model whose probabilities were recorded",
    "No drafted position of this run recorded both distributions.",
    of_records=lambda run: bool(lesson_sums.places(run)),
)
THETA_DIAL = Need(
    "a MARS rule whose θ decides",
    "The rule of this run has no ratio threshold θ to move.",
    _theta_counts,
)
RUNNER_UP = Need(
    "a drafted runner-up of the target",
    "The drafter never proposed the target's second choice in this run, so no ratio decides anything.",
    of_records=lambda run: len(close_calls(run)) > 0,
)
SECOND_CHOICE = Need(
    "a drafting model whose best tokens were recorded",
    "This run recorded no drafter's second choice: its drafter has no distribution, or nothing was drafted.",
    of_records=lambda run: choices(run).places > 0,
)
TEXTS = Need(
    "a dial map of at least two texts",
    "This run has no dial map of two texts or more: what other settings write is unknown, or always the same.",
    lambda facts: facts.dial_map is not None,
    _has_texts,
)
