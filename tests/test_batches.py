"""Prompts decoded together: each gets the very run, and the very map, that it gets alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path

import numpy as np
import pytest
from factories import Counting, ToySpeculator, with_passes
from sweep_cases import SETTINGS, toy_prompts

from mars_viz.demo.prompts import STORIES
from mars_viz.dialmap import Exploration, Span, explore, span_of, step
from mars_viz.errors import BadInput
from mars_viz.prompts import builtin_prompts
from mars_viz.recording import Recording, record_all
from mars_viz.rules import RULES, rule_named
from mars_viz.run import Run, Settings
from mars_viz.speculators.backend import Backend
from mars_viz.speculators.networks.hf import PlainNetwork
from mars_viz.sweep import Sweep
from mars_viz.walk import Answer, Ending, walk, walk_all
from tests.tables import table_backend

SHORT = Settings(rule="mars", gamma=3, max_new_tokens=14)
PROMPTS = [*(item.prompt for item in builtin_prompts(64).items), *STORIES]


@pytest.fixture(scope="module")
def alone(pair: Backend) -> Callable[[str], Run]:
    """The run of a prompt by itself, made once."""
    return lru_cache(None)(lambda prompt: Recording(pair, prompt, SHORT).finish())


def assert_same(one: Run, other: Run) -> None:
    """Token for token, and bit for bit in what every decision hangs on."""
    assert one.token_ids == other.token_ids
    assert [r.decision for r in one.rounds] == [r.decision for r in other.rounds]
    for ours, theirs in zip(one.rounds, other.rounds, strict=True):
        for name in ("tokens", "top_ids", "top_logits", "draft_logits", "z", "emissions"):
            ours_are, theirs_are = getattr(ours.speculation, name), getattr(theirs.speculation, name)
            np.testing.assert_array_equal(ours_are, theirs_are, err_msg=name)


TWO_HUNDRED = [pytest.param(batch, 1, marks=pytest.mark.long) for batch in (3, 32)]


@pytest.mark.parametrize(("batch", "every"), [(1, 7), (3, 4), (8, 7), (32, 4), *TWO_HUNDRED])
def test_prompts_are_decoded_together_as_each_alone(
    pair: Backend, alone: Callable[[str], Run], batch: int, every: int
) -> None:
    """Twenty to fifty prompts; all two hundred of them take long."""
    runs = list(map(alone, PROMPTS[::every]))
    assert len({len(run.prompt_ids) for run in runs}) > 5
    assert len({len(run.rounds) for run in runs}) > 2  # some are done early
    assert any(run.token_ids[-1] in pair.eos_ids for run in runs)
    together = list(record_all(pair, PROMPTS[::every], SHORT, batch=batch))
    for one, other in zip(together, runs, strict=True):
        assert_same(one, other)


@pytest.mark.parametrize(
    "settings", [replace(SHORT, temperature=0.9, rule="mars-sampling", seed=4), replace(SHORT, gamma=1)]
)
def test_sampled_and_short_blocks_too(pair: Backend, settings: Settings) -> None:
    prompts = PROMPTS[::25]
    together = record_all(pair, prompts, settings, batch=5)
    for prompt, one in zip(prompts, together, strict=True):
        assert_same(one, Recording(pair, prompt, settings).finish())


def test_models_that_go_row_by_row_do_too(pair: Backend) -> None:
    slow = with_passes(
        pair,
        partial(PlainNetwork, pair.target.model, pair.vocabulary_size),
        partial(PlainNetwork, pair.drafter.model, pair.vocabulary_size),
    )
    prompts = PROMPTS[::50]
    together = record_all(slow, prompts, SHORT, batch=5)
    for prompt, one in zip(prompts, together, strict=True):
        assert one.token_ids == Recording(slow, prompt, SHORT).finish().token_ids


def test_a_batch_of_none_is_refused_and_a_bad_prompt_at_its_turn(pair: Backend) -> None:
    with pytest.raises(BadInput, match="at least 1"):
        list(record_all(pair, PROMPTS, SHORT, batch=0))
    assert list(record_all(pair, [], SHORT)) == []
    runs = record_all(pair, [PROMPTS[0], PROMPTS[1], "", PROMPTS[2]], SHORT, batch=2)
    assert [next(runs).prompt, next(runs).prompt] == PROMPTS[:2]
    with pytest.raises(BadInput, match="The prompt is empty"):
        next(runs)


def test_walks_together_ask_once_a_round_and_leave_when_they_are_done() -> None:
    settings = Settings(rule="mars", gamma=3, max_new_tokens=14)
    speculator, ending = Counting(settings), Ending(frozenset({0}), 14)
    prompts = [(1, 2, 3), (5,), (9, 9), (4, 8, 7, 7)]
    rounds: dict[int, list[tuple[int, ...]]] = {index: [] for index in range(4)}
    for index, round_ in walk_all(speculator, RULES["mars"], 0.9, prompts, ending):
        rounds[index].append(round_.token_ids)
    for index, prompt in enumerate(prompts):
        separate = walk(ToySpeculator(settings), RULES["mars"], 0.9, prompt, ending)
        assert rounds[index] == [round_.token_ids for round_ in separate]
    asked = [len(batch) for batch in speculator.batches]
    assert asked[0] == 4
    assert asked == sorted(asked, reverse=True)
    assert len(asked) == max(map(len, rounds.values()))


def test_maps_of_several_prompts_grow_together_as_each_alone(pair: Backend) -> None:
    settings = replace(SHORT, max_new_tokens=20)
    rule, span = rule_named("mars"), Span(0.5, 1.0, (3,))
    ending = Ending(pair.eos_ids, settings.max_new_tokens)
    prompts = [Recording(pair, prompt, settings).prompt_ids for prompt in PROMPTS[::45]]
    together = [Exploration(rule, span, prompt, ending, {}) for prompt in prompts]
    speculator = pair.speculator(settings)
    while going := [one for one in together if one.going]:
        step(speculator, going)
    for prompt, one in zip(prompts, together, strict=True):
        answers: dict[tuple[int, ...], Answer] = {}
        for progress in explore(pair.speculator(settings), rule, span, prompt, ending, answers):
            passes = progress.passes
        assert one.passes == passes
        assert list(one.answers) == list(answers)
        for prefix, answer in answers.items():
            ours, theirs = one.answers[prefix].speculation, answer.speculation
            np.testing.assert_array_equal(ours.tokens, theirs.tokens)
            np.testing.assert_array_equal(ours.top_logits, theirs.top_logits)


def test_a_sweep_finds_the_same_however_many_prompts_it_maps_at_once(tmp_path: Path) -> None:
    span = span_of(rule_named("mars"), None, None, (SETTINGS.gamma,))
    speculators: dict[int, Counting] = {}

    def swept(batch: int) -> dict[str, np.ndarray]:
        speculators[batch] = Counting(SETTINGS)
        how = {"batch": batch, "open_": lambda: speculators[batch]}
        return Sweep(table_backend(), toy_prompts(11), SETTINGS, span, tmp_path / f"{batch}", **how).finish().lines

    one = swept(1)
    for batch in (3, 8, 32):
        many = swept(batch)
        for name in set(one) - {"seconds"}:
            np.testing.assert_array_equal(many[name], one[name], err_msg=name)
        in_hand = [len({prefix[:3] for prefix in asked}) for asked in speculators[batch].batches]
        assert max(in_hand) == min(batch, 11)
        assert len(in_hand) < len(speculators[1].batches)
    with pytest.raises(BadInput, match="at least 1"):
        swept(0)
