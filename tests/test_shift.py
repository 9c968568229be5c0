"""Adding a constant to all logits, and the rules that change with it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mars_viz.analysis.judgements import opinion, ruling
from mars_viz.analysis.rulings import compared, moved, shifted
from mars_viz.records import COLUMNS
from mars_viz.rules import RULES
from tests.factories import make_speculation, toy_run
from tests.test_metrics import small_run

RATIO_RULES = {"mars", "mars-code", "mars-sampling"}
"""Rules that read z2/z1."""


@settings(max_examples=60)
@given(
    seed=st.integers(0, 10_000),
    c=st.integers(-400, 400).map(lambda eighths: eighths / 8),
    temperature=st.sampled_from([0.0, 0.7, 1.0, 2.0]),
    top_k=st.sampled_from([0, 5]),
)
def test_a_shift_is_the_evidence_of_shifted_logits(seed, c, temperature, top_k):
    rng = np.random.default_rng(seed)
    target, drafter = (rng.integers(-20, 40, (rows, 24)) / 8 for rows in (5, 4))  # sums of eighths are exact
    tokens = [int(token) for token in rng.integers(0, 24, 4)]
    kept = {"temperature": temperature, "top_k": top_k, "seed": seed}
    ours = shifted(make_speculation(target, drafter, tokens, **kept), c)
    wanted = make_speculation(target + c, drafter, tokens, **kept)
    for field in COLUMNS.values():
        got, expected = getattr(ours, field.name), getattr(wanted, field.name)
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5, err_msg=field.name)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_only_rules_that_read_a_ratio_of_logits_change(temperature):
    run = toy_run(temperature=temperature, vocabulary=64, max_new_tokens=150)
    for name, rule in RULES.items():
        asked = ruling(opinion(rule, run))
        counts = [compared(asked, c).count for c in (-40.0, 0.0, 11.3)]
        assert counts[1] == 0, name
        assert not temperature or (max(counts) > 0) == (name in RATIO_RULES), name
        assert temperature or name in RATIO_RULES or counts == [0] * 3, name


def test_rounds_are_shifted_alone_as_together():
    run = toy_run(temperature=1.0, vocabulary=64, max_new_tokens=150)
    after = moved(run, 11.3)
    for name in ("mars", "mars-sampling", "fuzzy"):
        rule = RULES[name]
        asked = ruling(opinion(rule, run))
        keeps = [rule.judge(shifted(round_.speculation, 11.3)).keeps(asked.dial) for round_ in run.rounds]
        found = compared(asked, 11.3, after)
        np.testing.assert_array_equal(found.changed, np.concatenate(keeps) != asked.keeps)
        assert found.count or name != "mars"


def test_mars_by_hand():
    """Ratios .95, .8 and .92 where z1 is 10, and one below 0; the dial stands at .9."""
    asked = ruling(opinion(RULES["mars"], small_run()), 0.9)
    up, down = compared(asked, 20.0), compared(asked, -5.0)
    assert np.flatnonzero(up.changed).tolist() == [3, 5]  # 8/10 becomes 28/30, and -1 and -2 become 19 and 18
    assert np.flatnonzero(down.changed).tolist() == [1, 6]  # 9.5/10 becomes 4.5/5, which is not above, and 9.2/10 4.2/5
    assert (up.count, down.count) == (2, 2)
