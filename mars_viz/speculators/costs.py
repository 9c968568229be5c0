"""Costs of passes on this device, measured with the decoding code itself."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import astuple, replace
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
import torch

from mars_viz.costs import FEWEST, LEAST, MOST, WANTED, BatchCosts, Cost, Costs, objection, too_busy
from mars_viz.demo.prompts import STORIES
from mars_viz.errors import Disturbed, ModelError, SettingError
from mars_viz.exploration import Walker, advance
from mars_viz.records import Timing
from mars_viz.rules import rule_named
from mars_viz.run import Settings
from mars_viz.shapes import shape_named
from mars_viz.speculators.backend import Backend, DraftAndScore
from mars_viz.speculators.devices import inference, wait_for
from mars_viz.speculators.draft import Draft, Drafter, Spent, Target, Trees, scored_by
from mars_viz.speculators.networks.batched import SETTLED
from mars_viz.walk import Prefix

SECONDS = 6.0  # limit for a measurement that does not converge; the repeats needed for an interval are always made
BATCH_SECONDS = 20.0  # the same for rounds of several texts
SLOW = 0.2  # seconds of a task after which the share is yielded, not only after all tasks
ROUNDS = 8  # full rounds after which a decoded text begins again
PLACES = 6  # number of places in a text at which a drafter that counts its passes drafts once
C = TypeVar("C", bound=Costs | BatchCosts)


class Measuring(Generic[C]):
    """Timings of the target's passes, drafting and complete rounds, in turn, up to γ tokens or trees of γ nodes.
    Iterate it for the finished share, stop at any time; after the last iteration, take the costs."""

    least = LEAST  # repeats that are always made
    untimed = 0  # repeats before each timed one, if tasks differ so much that each finds the others' data in the cache

    def __init__(
        self,
        backend: Backend,
        gamma: int,
        *,
        settings: Settings | None = None,
        cache_length: int = 192,
        seconds: float = SECONDS,
        clock: Callable[[], float] = time.perf_counter,
    ):
        """Measure for these `settings`: rule, temperature, top-p, top-k, and shape of drafts.

        A round includes the evidence that the rule needs, as in decoding without recording. Raises BadInput if the
        models' context is too small, and for trees that the drafter cannot draft.
        """
        self._backend, self._gamma, self._settings = backend, gamma, settings or Settings(rule="strict")
        backend.check(self._settings)
        self._length = min(cache_length, backend.context - gamma - 2)
        if gamma < 1 or self._length < 2:
            raise SettingError(
                f"Blocks of {gamma} tokens do not fit in the context of {backend.context}. Take shorter blocks."
            )
        self._seconds, self._clock = seconds, clock
        self._found: C | None = None
        self._spent = 0.0
        self._spent_drafting = Spent()

    def __iter__(self) -> Iterator[float]:
        """Measure until every cost is known to ±5 %, or time is up."""
        device = self._backend.place
        times: dict[Any, list[float]] = {}  # seconds by task, in the order of measurement
        with inference():
            tasks = dict(self._warmed())
        began, cores, own = self._clock(), _cores_used(), time.process_time()
        for done in itertools.count(1):
            for place, (name, task) in enumerate(tasks.items(), 1):
                with inference():
                    for _ in range(self.untimed):
                        task()
                    wait_for(device)
                    start = self._clock()
                    parts = task()
                    wait_for(device)
                    taken = self._clock() - start
                times.setdefault(name, []).append(taken)
                if isinstance(parts, Timing):
                    times.setdefault(f"rest of {name}", []).append(taken - parts.draft - parts.verify)
                self._spent = self._clock() - began
                if taken > SLOW or place == len(tasks):
                    yield min(1.0, (done - 1 + place / len(tasks)) / self.least, self._spent / self._seconds)
            if done >= self.least:
                used, passed, others = _cores_used(), self._clock() - began, None
                if used is not None and cores is not None and passed > 0:  # by other processes, and the host's guests
                    others = max(0.0, (used - cores - (time.process_time() - own)) / passed)
                self._found = replace(self._costs(times), others=others)
                if self._found.unsure <= WANTED or self._spent >= self._seconds:
                    return

    def costs(self) -> C:
        """Return the costs. Raises BadInput before the end, Disturbed if those of one text are unsure or contradictory.
        Those of batches may be unsure, but have intervals."""
        if self._found is None:
            raise SettingError("The costs are not measured yet; let it come to its end.")
        if isinstance(self._found, Costs):
            if self._found.unsure > MOST:
                raise Disturbed(too_busy(self._found.unsure, self._spent))
            if why := objection(self._found):
                raise Disturbed(f"{why} Measure again.")
        return self._found

    def _warmed(self) -> Iterator[tuple[Any, Callable[[], object]]]:
        return self._warm(self._tasks())

    def _warm(self, tasks: Iterable[tuple[Any, Callable[[], object]]]) -> Iterator[tuple[Any, Callable[[], object]]]:
        """Do each task once, or if passes are recorded, until all of them are; yield the tasks."""
        for name, task in list(tasks):
            for _ in range(1 if self._backend.place.type == "cpu" else SETTLED):
                task()
            yield name, task

    def _setting(self) -> dict[str, Any]:
        backend = self._backend
        setting = {"device": backend.device, "dtype": backend.dtype, "cache_length": self._length}
        return setting | {"target": backend.target.name, "drafter": backend.drafter.name}

    def _tasks(self) -> Iterator[tuple[Any, Callable[[], object]]]:
        """Yield the timed tasks by name; a round returns its own timing."""
        backend, gamma, settings, length = self._backend, self._gamma, self._settings, self._length
        target, drafter = backend.opened(Settings(gamma=gamma, tree=settings.tree))
        prefix: Prefix = (*_tokens(backend, length), _tokens(backend, 1)[0])
        if drafter.spent is not None:  # how many depends on the text, so it has words
            words = backend.tokenizer.encode(" ".join(STORIES))
            prefix = tuple(itertools.islice(itertools.cycle(words), length + 1))
        target.prefill([prefix[:-1]])
        drafter.prefill([prefix[:-1]])
        shape = shape_named(settings.tree).within(gamma)
        levels = 1 if drafter.at_once else shape.depth
        for width in range(1, gamma + 2):
            ids = torch.tensor([_tokens(backend, width)[1:]], dtype=torch.int64, device=target.device)
            if shape.drawn and width > 1:  # drawn nodes may be fewer
                draft = Draft(ids, trees=Trees((shape.separate_paths(width - 1),), ()))
            else:
                draft = drafter.draft([prefix], width - 1) if shape.depth and width > 1 else Draft(ids)
            yield f"target {width}", partial(scored_by, target, [prefix], draft)

        def drafting(prefixes: Iterator[Prefix], count: int) -> None:
            drafter.draft([next(prefixes)], count)

        def several() -> None:  # first to last place of the text, because the number of passes depends on it
            for place in range(PLACES, 0, -1):
                drafter.draft([prefix[: max(1, len(prefix) - gamma * (place - 1))]], gamma)

        if not levels and (total := drafter.spent) is not None:
            before = replace(total)
            several()
            self._spent_drafting = Spent(total.passes - before.passes, total.tokens - before.tokens)
            yield "draft", several
        elif not levels:
            yield "draft", partial(drafting, itertools.repeat(prefix), gamma)
        for depth in range(1, levels + 1):
            count = max(depth, gamma * (depth == levels))
            if shape.drawn and not drafter.at_once:
                count = replace(shape, depth=depth, trunk=min(shape.trunk, depth)).most_nodes
            # Nodes of a tree are not cached, so half of a longest path and the token after it are read before the next
            # draft. A drafter that follows the target would make the target read them as well, so it gets one constant
            # prefix.
            new = 0 if drafter.reads_target else min(1 + depth // 2, length)
            others = tuple(token - 1 if token else 1 for token in prefix[len(prefix) - new :])
            in_turn = itertools.cycle([prefix, (*prefix[: len(prefix) - new], *others)])
            yield f"draft {depth}", partial(drafting, in_turn, count)
        for count in sorted({gamma if shape.drawn else 1, gamma}):
            short, texts = _short(settings, count), [prefix[:-1]]
            yield f"round {count}", _round(backend, short, texts, _opened(backend, short, texts))

    def _costs(self, times: dict[Any, list[float]]) -> Any:
        backend, gamma = self._backend, self._gamma
        shape = shape_named(self._settings.tree).within(gamma)
        least = gamma if shape.drawn else 1  # drawn paths have a fixed size
        levels = [taken for name, taken in times.items() if name.startswith("draft ")]  # one if all is drafted at once
        drafted = self._spent_drafting.tokens or gamma
        steps = levels[0] if levels else [taken / drafted for taken in times["draft"]]
        passes = [times[f"target {n}"] for n in range(1, gamma + 2)]

        def rest(length: int) -> Cost:
            if backend.place.type == "cpu":  # elsewhere a round's parts end before the device has done them
                return Cost.of(times[f"rest of round {length}"])
            drafting = levels[min(length, len(levels)) - 1] if levels else [length * step for step in steps]
            parts = zip(times[f"round {length}"], drafting, passes[length], strict=True)
            return Cost.of([total - draft - verify for total, draft, verify in parts])

        return Costs(
            **self._setting(),
            repeats=len(steps),
            target_pass=tuple(Cost.of(taken) for taken in passes),
            drafter_step=Cost.of(steps),
            rest=_between(rest(least), rest(gamma), gamma),
            passes_per_token=self._spent_drafting.passes / drafted if self._spent_drafting.passes else 1.0,
            tree=self._settings.tree,
            drafting=tuple(Cost.of(taken) for taken in levels),
        )


def measure_costs(backend: Backend, gamma: int, **options: Any) -> Costs:
    """Run the complete measurement. Takes the options of `Measuring` and raises its errors."""
    measuring = Measuring[Costs](backend, gamma, **options)
    for _ in measuring:
        pass
    return measuring.costs()


class MeasuringBatches(Measuring[BatchCosts]):
    """Timings of rounds of several texts at once, for chains of 0, 1, … γ tokens; of 0, a pass of the target alone."""

    least, untimed = FEWEST, 1

    def __init__(
        self, backend: Backend, settings: Settings, most: int, seconds: float = BATCH_SECONDS, cache_length: int = 192
    ):
        """Measure for these `settings`, whose drafts are chains of one length, and for 1, 2, 4, … `most` texts, without
        those that take too much memory. Raises BadInput like `Measuring`."""
        super().__init__(backend, settings.gamma, settings=settings, seconds=seconds, cache_length=cache_length)
        self._sizes, self._left_out = tuple(2**power for power in range(most.bit_length())), ""

    def _warmed(self) -> Iterator[tuple[Any, Callable[[], object]]]:
        for place, size in enumerate(self._sizes):
            try:
                with inference():
                    warmed = list(self._warm(self._rounds_of(size)))
            except ModelError as error:
                if not place:
                    raise
                self._sizes, self._left_out = self._sizes[:place], f"{size} texts at once were left out. {error}"
                return
            yield from warmed

    def _rounds_of(self, size: int) -> Iterator[tuple[tuple[int, int], Callable[[], object]]]:
        """Yield the rounds of `size` texts by size and draft length; all use the same caches."""
        backend, settings = self._backend, self._settings
        words = backend.tokenizer.encode(" ".join(STORIES))[: self._length // 2]  # repeated, so that n-grams are found
        texts = [  # which begin with different tokens, because equal ones would be decoded once
            (text, *(words[(7 * text + place) % len(words)] for place in range(self._length))) for text in range(size)
        ]
        models = target, _ = _opened(backend, _short(settings, settings.gamma), texts)
        nothing = torch.empty((size, 0), dtype=torch.int64, device=target.device)

        def alone() -> None:
            scored = target.score(texts, nothing)
            if isinstance(scored, torch.Tensor):
                scored.argmax(-1).cpu()

        yield (size, 0), alone
        for count in range(1, settings.gamma + 1):
            yield (size, count), _round(backend, _short(settings, count), texts, models)

    def _costs(self, times: dict[Any, list[float]]) -> BatchCosts:
        return BatchCosts(
            **self._setting(),
            repeats=len(times[self._sizes[0], 0]),
            sizes=self._sizes,
            rounds=tuple(tuple(Cost.of(times[size, n]) for n in range(self._gamma + 1)) for size in self._sizes),
            left_out=self._left_out,
        )


def _cores_used() -> float | None:
    """Return the seconds of work of this process's cores for all processes. Only Linux reports this."""
    try:
        lines = Path("/proc/stat").read_text(encoding="ascii").splitlines()
        cores = {f"cpu{core}" for core in os.sched_getaffinity(0)}
        counts = [line.split()[1:9] for line in lines if line.partition(" ")[0] in cores]
        # user, nice, system, idle, iowait, irq, softirq, steal
        at_work = sum(sum(map(int, each)) - int(each[3]) - int(each[4]) for each in counts)
        return at_work / os.sysconf("SC_CLK_TCK") if at_work else None
    except (OSError, AttributeError, ValueError, IndexError):
        return None


def _tokens(backend: Backend, count: int) -> tuple[int, ...]:
    """Return arbitrary but varied tokens; equal ones would be sent one way by a mixture of experts."""
    return tuple(place * 7919 % backend.vocabulary_size for place in range(count))


def _short(settings: Settings, gamma: int) -> Settings:
    return replace(settings.law, rule=settings.rule, gamma=gamma, seed=settings.seed, tree=settings.tree)


def _opened(backend: Backend, short: Settings, texts: Sequence[Prefix]) -> tuple[Target, Drafter]:
    """Return the models, which have read the texts except for their last tokens."""
    models = backend.opened(short)
    for model in models:
        model.prefill([text[:-1] for text in texts])
    return models


def _round(
    backend: Backend, short: Settings, texts: Sequence[Prefix], models: tuple[Target, Drafter]
) -> Callable[[], Timing]:
    """Return a task that decodes one more round of all texts, and from their beginnings after `ROUNDS` full rounds, so
    that a round also reads the tokens kept by the last one and goes back to them."""
    rule = rule_named(short.rule)
    speculator = DraftAndScore(*models, (backend.vocabulary_size, backend.context), short, rule.needs)
    limit = min(ROUNDS * (short.gamma + 1), backend.context - len(texts[0]) - short.gamma)
    ending = replace(backend.ending(short), limit=max(limit, 1), eos_ids=frozenset())
    walkers = list[Walker]()

    def decoded() -> Timing:
        nonlocal walkers
        if not walkers or not all(walker.going for walker in walkers):
            walkers = [Walker(rule, text, ending, dial=rule.checked_dial(None)) for text in texts]
        advance(speculator, walkers)
        trail = walkers[0].text.trail
        assert trail is not None  # each pass adds a round
        return trail[1].timing

    return decoded


def _between(first: Cost, last: Cost, count: int) -> tuple[Cost, ...]:
    return tuple(Cost(*each) for each in np.linspace(astuple(first), astuple(last), count).tolist())
