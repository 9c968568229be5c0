"""What a pass costs on this device, measured with the networks that decode. Knows models and clocks."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import torch

from mars_viz.costs import Costs, Spread
from mars_viz.errors import BadInput
from mars_viz.records import Timing
from mars_viz.rules import Rule, rule_named, settle
from mars_viz.run import Settings
from mars_viz.speculators.drafters.model import Picking
from mars_viz.speculators.extent import Extent
from mars_viz.speculators.laws import wait_for
from mars_viz.speculators.loading import Pair
from mars_viz.speculators.local import LocalSpeculator
from mars_viz.speculators.networks import Chaining, Network
from mars_viz.speculators.networks.graphs import SETTLED
from mars_viz.speculators.trouble import inference
from mars_viz.walk import Ending, commit

LEAST = 3
"""Repeats that are taken whatever they cost."""


def measure_costs(
    pair: Pair,
    gamma: int,
    *,
    settings: Settings | None = None,
    cache_length: int = 192,
    repeats: int = 30,
    seconds: float = 2.0,
) -> Costs:
    """Time the target's passes, a drafter step and whole rounds in turn, up to blocks of `gamma` tokens.

    `settings` say how decoding goes: rule, temperature, top-p, top-k. A round's evidence is what deciding by that rule
    needs, as in decoding without recording. Fewer repeats, at least three, where they would take longer than `seconds`.
    Raises BadInput where the models' context leaves no room.
    """
    settings = settings or Settings(rule="strict")
    length = min(cache_length, pair.context - gamma - 2)
    if gamma < 1 or length < 2:
        raise BadInput(f"Blocks of {gamma} tokens do not fit in the context of {pair.context}. Take shorter blocks.")
    found: dict[str, list[float]] = defaultdict(list)
    device = pair.target.device
    with inference():
        tasks = dict(_tasks(pair, gamma, settings, length))
        for task in tasks.values():
            for _ in range(1 if device.type == "cpu" else SETTLED):
                task()  # warm up; where passes are recorded, until all of them are
        began, done = time.perf_counter(), 0
        while done < repeats and (done < LEAST or time.perf_counter() - began < seconds):
            for name, task in tasks.items():
                taken, known = _timed(task, device)
                found[name].append(taken)
                if known is not None:
                    found[f"rest of {name}"].append(taken - known.draft - known.verify)
            done += 1
    steps = [taken / gamma for taken in found["draft"]]
    passes = [found[f"target {n}"] for n in range(1, gamma + 2)]

    def rest(length: int) -> list[float]:
        if device.type == "cpu":  # elsewhere a round's parts end before the device has done them
            return found[f"rest of round {length}"]
        parts = zip(found[f"round {length}"], steps, passes[length], strict=True)
        return [whole - length * step - verify for whole, step, verify in parts]

    return Costs(
        device=pair.device,
        dtype=pair.dtype,
        target=pair.target_name,
        drafter=pair.drafter_name,
        cache_length=length,
        repeats=done,
        target_pass=tuple(Spread.of(taken) for taken in passes),
        drafter_step=Spread.of(steps),
        rest=_between(Spread.of(rest(1)), Spread.of(rest(gamma)), gamma),
    )


def _tasks(
    pair: Pair, gamma: int, settings: Settings, length: int
) -> Iterator[tuple[str, Callable[[], Timing | None]]]:
    """What is timed, by name, with caches that hold `length` positions."""
    target, drafter = pair.open_target(), pair.open_drafter()
    read = _tokens(pair, length, target.device)
    for network in (target, drafter):
        network.score(read, [0], 1)
    for width in range(1, gamma + 2):
        ids = _tokens(pair, width, target.device)
        yield f"target {width}", partial(_scored, target, ids, length)
    first = _tokens(pair, 1, drafter.device)
    yield "draft", partial(_drafted, drafter, first, length, gamma)
    prefix = tuple(read[0].tolist())
    for count in sorted({1, gamma}):
        yield f"round {count}", _round(pair, settings, count, prefix)


def _tokens(pair: Pair, count: int, device: torch.device) -> torch.Tensor:
    """int64 [1, count]; any will do, but not one and the same, which a mixture of experts would send one way."""
    return (torch.arange(count, device=device) * 7919 % pair.vocabulary_size).unsqueeze(0)


def _scored(network: Network, ids: torch.Tensor, start: int) -> None:
    network.score(ids, [start], ids.shape[1])


def _drafted(network: Network, ids: torch.Tensor, start: int, count: int) -> None:
    if isinstance(network, Chaining):
        network.chain(ids, [start], count, Picking.by(Settings()))
        return
    for step in range(count):
        ids = network.score(ids, [start + step], 1).argmax(-1)


def _round(pair: Pair, settings: Settings, gamma: int, prefix: tuple[int, ...]) -> Callable[[], Timing | None]:
    rule = rule_named(settings.rule)
    short = Settings(
        rule=settings.rule,
        gamma=gamma,
        temperature=settings.temperature,
        top_p=settings.top_p,
        top_k=settings.top_k,
        seed=settings.seed,
    )
    speculator = LocalSpeculator(pair, short, Extent.least(rule.needs, recorded=False))
    speculator.prefill(prefix)
    ending = pair.ending(replace(short, max_new_tokens=gamma + 1))
    return partial(_decided, speculator, rule, prefix, ending)


def _decided(speculator: LocalSpeculator, rule: Rule, prefix: tuple[int, ...], ending: Ending) -> Timing:
    (answer,) = speculator.speculate([prefix])
    verdicts = rule.judge(answer.speculation)
    dial = None if rule.dial is None else rule.dial.default
    commit(answer, verdicts, settle(answer.speculation, verdicts, dial), ending, text=())
    return answer.timing


def _timed(task: Callable[[], Timing | None], device: torch.device) -> tuple[float, Timing | None]:
    """Seconds until the device has done it, and what it says of its parts."""
    wait_for(device)
    began = time.perf_counter()
    parts = task()
    wait_for(device)
    return time.perf_counter() - began, parts


def _between(first: Spread, last: Spread, count: int) -> tuple[Spread, ...]:
    """`count` spreads in a line."""
    if count == 1:
        return (first,)
    shares = [step / (count - 1) for step in range(count)]
    return tuple(
        Spread(*(a + share * (b - a) for a, b in ((getattr(first, k), getattr(last, k)) for k in Spread.__slots__)))
        for share in shares
    )
