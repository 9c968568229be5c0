"""The wall-clock check: the target alone, strict and a setting, decoded in turn.

Knows pairs and clocks; loads the model libraries when called.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from mars_viz.costs import Costs, modelled_speed_up
from mars_viz.errors import BadInput
from mars_viz.recording import Recording
from mars_viz.records import emitted
from mars_viz.rules import rule_named
from mars_viz.run import Settings
from mars_viz.sweep.timing import TimingCheck, Way
from mars_viz.walk import Ending, walk

if TYPE_CHECKING:
    from mars_viz.speculators.loading import Pair

Prefix = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Decoded:
    """One decode."""

    token_ids: Prefix
    """Its text."""
    rounds: int
    """Target passes."""
    seconds: float
    """Wall clock, the prompt's own pass excluded."""


def wall_clock(
    pair: Pair,
    prompts: Sequence[str],
    settings: Settings,
    *,
    repetitions: int = 3,
    chat: bool = False,
    costs: Costs | None = None,
) -> TimingCheck:
    """Decode each prompt `repetitions` times in every way, in an order that rotates so that a noisy machine hits all.

    `settings` are the setting to check; strict is its rule's strict end. Nothing is recorded, unless the rule needs the
    evidence. Raises BadInput without a prompt, for a rule without a dial, and where a prompt does not fit.
    """
    rule = rule_named(settings.rule)
    if not prompts or repetitions < 1 or rule.dial is None:
        raise BadInput("A wall-clock check takes at least one prompt and repetition, and a rule with a dial.")
    dial = rule.dial.checked(settings.dial)
    read = [Recording(pair, prompt, settings, chat=chat).prompt_ids for prompt in prompts]
    ways: dict[str, Callable[[Prefix], Decoded]] = {
        "target": lambda prompt: _alone(pair, prompt, settings),
        "strict": lambda prompt: _walked(pair, prompt, replace(settings, dial=rule.dial.strict if rule.dial else None)),
        "chosen": lambda prompt: _walked(pair, prompt, replace(settings, dial=dial)),
    }
    for decode in ways.values():
        decode(read[0])  # warm up
    found: dict[str, list[list[Decoded]]] = {name: [[] for _ in read] for name in ways}
    names, turn = list(ways), 0
    for _ in range(repetitions):
        for place, prompt in enumerate(read):
            for name in names[turn % 3 :] + names[: turn % 3]:
                found[name][place].append(ways[name](prompt))
            turn += 1
    made = {name: _way(name, decodes) for name, decodes in found.items()}
    same = sum(
        ours[0].token_ids == alone[0].token_ids for ours, alone in zip(found["strict"], found["target"], strict=True)
    )
    return TimingCheck(
        device=pair.device,
        rule=rule.name,
        dial=dial,
        gamma=settings.gamma,
        target=made["target"],
        strict=made["strict"],
        chosen=made["chosen"],
        same_as_target=same,
        modelled_over_strict=_tau(made["chosen"]) / _tau(made["strict"]),
        modelled_over_target=_modelled(made["chosen"], costs, settings.gamma),
    )


def _alone(pair: Pair, prompt: Prefix, settings: Settings) -> Decoded:
    from mars_viz.speculators.autoregressive import decode_alone

    done = decode_alone(pair, prompt, settings)
    return Decoded(done.token_ids, len(done.token_ids), done.seconds)


def _walked(pair: Pair, prompt: Prefix, settings: Settings) -> Decoded:
    from mars_viz.speculators.local import LocalSpeculator

    rule = rule_named(settings.rule)
    speculator = LocalSpeculator(pair, settings, full_evidence=bool(rule.needs))
    speculator.prefill(prompt)
    ending = Ending(pair.eos_ids, settings.max_new_tokens)
    began = time.perf_counter()
    rounds = list(walk(speculator, rule, settings.dial, prompt, ending))
    seconds = time.perf_counter() - began
    return Decoded(emitted(rounds), len(rounds), seconds)


def _way(name: str, decodes: list[list[Decoded]]) -> Way:
    return Way(
        name=name,
        tokens=np.array([len(each[0].token_ids) for each in decodes]),
        rounds=np.array([each[0].rounds for each in decodes]),
        seconds=np.array([[one.seconds for one in each] for each in decodes]),
    )


def _tau(way: Way) -> float:
    return float(way.tokens.sum() / way.rounds.sum())


def _modelled(way: Way, costs: Costs | None, gamma: int) -> float:
    if costs is None or gamma > costs.gamma:
        return math.nan
    return float(modelled_speed_up(costs, way.tokens.sum(), way.rounds.sum(), gamma))
