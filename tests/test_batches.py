"""Prompts decoded together and alone: the same runs and maps up to rounding."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mars_viz.axis import RuleDial
from mars_viz.demo.prompts import STORIES
from mars_viz.errors import BadInput
from mars_viz.prompts import builtin_prompts
from mars_viz.recording import Mapping, Recording, record_all
from mars_viz.rules import rule_named
from mars_viz.run import Run, Settings
from mars_viz.speculators.backend import Backend

SHORT = Settings(rule="mars", gamma=3, max_new_tokens=14)
PROMPTS = [*(item.prompt for item in builtin_prompts(64).items), *STORIES]


def assert_same(one: Run, other: Run) -> None:
    """Token for token and verdict for verdict, with logits equal up to rounding."""
    assert one.token_ids == other.token_ids
    assert [r.decision for r in one.rounds] == [r.decision for r in other.rounds]
    for ours, theirs in zip(one.rounds, other.rounds, strict=True):
        exact, rounded = dict.fromkeys(("tokens", "top_ids", "emissions"), 0.0), ("top_logits", "draft_logits", "z")
        for name, slack in (exact | dict.fromkeys(rounded, 1e-4)).items():
            one_is, other_is = getattr(ours.speculation, name), getattr(theirs.speculation, name)
            np.testing.assert_allclose(one_is, other_is, rtol=slack, atol=slack, err_msg=name)


def test_a_batch_of_none_is_refused_and_a_bad_prompt_at_its_turn(pair: Backend) -> None:
    with pytest.raises(BadInput, match="at least 1"):
        list(record_all(pair, PROMPTS, SHORT, batch=0))
    runs = record_all(pair, [PROMPTS[0], PROMPTS[1], "", PROMPTS[2]], SHORT, batch=2)
    assert [next(runs).prompt, next(runs).prompt] == PROMPTS[:2]
    with pytest.raises(BadInput, match="The prompt is empty"):
        next(runs)


@pytest.mark.parametrize(("sampled", "every", "batch"), [(False, 10, 7), (True, 50, 32), (True, 50, 3)])
def test_prompts_decoded_together_are_each_alone(sampled: bool, every: int, batch: int, pair: Backend) -> None:
    prompts = PROMPTS[::every]
    settings = replace(SHORT, gamma=1, temperature=0.9, rule="mars-sampling", seed=4) if sampled else SHORT
    runs = [Recording(pair, prompt, settings).finish() for prompt in prompts]
    assert len({len(run.prompt_ids) for run in runs}) > 2
    if every < 50:
        assert len({len(run.rounds) for run in runs}) > 2  # some are done early
        assert any(run.token_ids[-1] in pair.eos_ids for run in runs)
    for one, other in zip(record_all(pair, prompts, settings, batch=batch), runs, strict=True):
        assert_same(one, other)


def test_a_map_has_the_texts_of_runs_on_both_sides_of_its_edges(pair: Backend) -> None:
    settings = Settings(rule="mars-sampling", temperature=0.8, seed=3, max_new_tokens=24)
    span = RuleDial(rule_named("mars-sampling")).span(None, None, (6,))
    dial_map = Mapping(pair, "The frog wanted to", settings, span).finish()
    edges = [segment.low for segment in dial_map.segments][1:5]
    assert dial_map.complete and edges
    for dial in (edge * (1 + side) for edge in edges for side in (-1e-5, 1e-5)):  # further than rounding
        run = Recording(pair, dial_map.frame.prompt_ids, replace(settings, dial=dial)).finish()
        assert dial_map.at(dial).token_ids == run.token_ids
