"""The token cascade, the only rule whose verdicts have gaps: by hand, by its probabilities, in files and in maps."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from factories import K, best, make_speculation, toy_map, toy_run
from rule_cases import coin, decided, logits, one
from test_runfiles import difference, edited

from mars_viz.analysis.judgements import opinion
from mars_viz.errors import BadInput
from mars_viz.records import Emission, Speculation
from mars_viz.rules import RULES
from mars_viz.run import Settings
from mars_viz.runfiles import codec, load_run, parquet

NAME = "cascade-token-acceptance"
RULE = RULES[NAME]
NEVER = float("nan")

ABC, THEIRS = logits(0.5, 0.3, 0.2), logits(0.6, 0.1, 0.3)
"""The target's law and the drafter's over a, b and c; they join A at 0, .4 and .6, and leave .4, .3 and 0."""
TIED, UNTIED = logits(0.4, 0.4, 0.2), logits(0.2, 0.2, 0.6)
"""Two best tokens, which join A together at 0 and leave .6; c joins at .5."""
MASKED = logits(0.6, 0.3, 0.1, 0.0)
"""Over a uniform q; they join at 0, .5, .8333 and, since p = 0, at 1."""
SHIFTED = [z + 20 for z in ABC]

FLIPS: list[tuple[Speculation, float, float]] = [  # where the gap begins, where the breakpoint is
    (coin(ABC, 2, 0.50, THEIRS), 0.0, 0.6),  # u q = .15: within .2, above .4 · .2
    (coin(ABC, 2, 0.25, THEIRS), 0.4, 0.6),  # .075: within .4 · .2, above .3 · .2
    (coin(ABC, 2, 0.10, THEIRS), NEVER, NEVER),  # .03: within all of them
    (coin(ABC, 2, 0.90, THEIRS), NEVER, 0.6),  # .27: above .2, so it is only ever kept in A
    (coin(ABC, 2, 0.00, THEIRS), NEVER, NEVER),
    (coin(ABC, 1, 0.99, THEIRS), NEVER, NEVER),  # .099: within .4 · .3
    (coin(ABC, 0, 0.90, THEIRS), NEVER, 0.0),  # v1: .54 is above .5, and from 0 on it is in A
    (coin(ABC, 0, 0.80, THEIRS), NEVER, NEVER),
    (coin(SHIFTED, 2, 0.50, THEIRS), 0.0, 0.6),  # the sign of z1 means nothing: above, all of them are negative
    (coin(TIED, 1, 0.50, UNTIED), NEVER, NEVER),  # joins with its equal
    (coin(TIED, 2, 0.30, UNTIED), 0.0, 0.5),  # .18 > .6 · .2
    (coin(TIED, 2, 0.25, UNTIED), 0.0, 0.5),  # .15: within .8 · .2, but the two join at once
    (coin(TIED, 2, 0.15, UNTIED), NEVER, NEVER),
    (coin(MASKED, 3, 0.00), NEVER, 1.0),  # p = 0: A is everything at 1
    (coin(MASKED, 2, 0.31), 0.0, 5 / 6),  # .0775: within .1, above .75 · .1
    (coin(MASKED, 2, 0.29), 0.5, 5 / 6),  # .0725: within .75 · .1, above .5 · .1
    (coin(MASKED, 2, 0.09, sampled=False), NEVER, NEVER),  # q is one-hot, so A has no share until x joins
    (coin(MASKED, 2, 0.11, sampled=False), NEVER, 5 / 6),
    (coin(MASKED, 2, 0.29, top_k=2), NEVER, 1.0),  # ruled out: p = 0
    (one(MASKED, 0), NEVER, NEVER),  # T = 0
    (one(MASKED, 1), NEVER, 0.5),
    (one(MASKED, 3), NEVER, 1.0),
    (one(logits(0.5, 0.5), 1), NEVER, 0.0),  # a tie: off, and then in A
]


@pytest.mark.parametrize(("speculation", "begins", "ends"), FLIPS)
def test_by_hand(speculation: Speculation, begins: float, ends: float) -> None:
    verdicts = RULE.judge(speculation)
    assert verdicts.gaps[0] == pytest.approx(begins, abs=1e-6, nan_ok=True)
    assert verdicts.breakpoints[0] == pytest.approx(ends, abs=1e-6, nan_ok=True)
    assert (verdicts.gap_from is None) == math.isnan(begins)
    strict = bool(verdicts.keep_strict[0])
    flips = [flip for flip in (*verdicts.gaps, *verdicts.breakpoints) if 0 < flip < 1]  # which belong to what follows
    dials = [-0.01, *np.linspace(0.005, 0.995, 100), 1.0, *flips, *(math.nextafter(flip, -1) for flip in flips)]
    for dial in dials:
        expected = dial >= verdicts.breakpoints[0] or (strict and not dial >= verdicts.gaps[0])
        decision = decided(NAME, speculation, dial)
        assert bool(decision.kept) == expected, dial
        if not expected:
            assert decision.emitted == speculation.emissions[0, Emission.RESIDUAL]
    assert decided(NAME, speculation, -0.01) == decided("rejection-sampling", speculation, None)


COINS = 200


def acceptance(p: np.ndarray, q: np.ndarray, x: int, alphas: np.ndarray) -> np.ndarray:
    """Return the share of evenly spread coins by which x is kept at each alpha."""
    coins = ((np.arange(COINS) + 0.5) / COINS).tolist()
    rows, theirs = np.tile(np.log(p), (COINS + 1, 1)), np.tile(np.log(q), (COINS, 1))
    verdicts = RULE.judge(make_speculation(rows, theirs, [x] * COINS, temperature=1.0, coins=coins))
    found = []
    for alpha in alphas.tolist():
        keeps = verdicts.keeps(alpha)
        assert (np.diff(keeps.astype(int)) <= 0).all()  # a smaller coin never keeps less
        found.append(keeps.mean())
    return np.array(found)


def test_x_is_kept_with_probability_pi_over_q() -> None:
    """Integrated over the coin, not sampled: it fails for no chance, and is exact to one coin."""
    rng, alphas = np.random.default_rng(7), np.array([-0.01, 0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99, 1.0])
    shrank = False
    for _ in range(12):
        p, q = rng.dirichlet(np.full(5, 0.8), 2)
        for x in range(5):
            found = acceptance(p, q, x, alphas)
            members = p >= (1 - alphas[:, None]) * p.max()  # [alphas, 5]
            mixture = q * members + (1 - (q * members).sum(1, keepdims=True)) * p
            np.testing.assert_allclose(found, np.minimum(1, mixture[:, x] / q[x]), atol=1 / COINS)
            shrank |= bool((np.diff(found) < -0.1).any())
    assert shrank  # at a gap


def test_only_recorded_tokens_count_in_q_of_a() -> None:
    rng, alphas = np.random.default_rng(8), np.linspace(0, 0.9, 10)
    p, q = rng.dirichlet(np.full(24, 3.0), 2)
    x = int(np.argsort(-p)[20])
    members = p >= (1 - alphas[:, None]) * p.max()
    listed = np.isin(np.arange(24), best(p, K))
    for share, exact in ((members & listed, True), (members, False)):
        mixture = q * members + (1 - (q * share).sum(1, keepdims=True)) * p
        wanted, found = np.minimum(1, mixture[:, x] / q[x]), acceptance(p, q, x, alphas)
        assert (found >= wanted - 1 / COINS).all()
        assert np.allclose(found, wanted, atol=1 / COINS) == exact


def test_files_hold_gaps_and_the_drafters_law(tmp_path: Path) -> None:
    run, other = (toy_run(rule=rule, temperature=1.0, max_new_tokens=120) for rule in (NAME, "mars-sampling"))
    assert difference(run, load_run(run.save(tmp_path / "run"))) == ""
    files, others = codec.encode(run), codec.encode(other)
    for made, gaps in ((files, True), (others, False)):
        assert ("gap_from" in parquet.opened("nodes", made["nodes.parquet"]).read()) is gaps
    with pytest.raises(BadInput, match="drafter for each"):
        codec.decode(edited(files, "nodes", lambda columns: columns.update(best_q=columns["best_q"][:, 1:])))
    older = edited(others, "nodes", lambda columns: columns.pop("best_q"))
    run = codec.decode(older)
    first = run.rounds[0].speculation
    assert "best_q" not in first.columns and first.best_q.shape == (len(first), 0)
    assert opinion(RULE, run).lacks == str(RULE.lacks(first)) and opinion(RULES["cascade-opt"], run).lacks == ""
    with pytest.raises(BadInput, match="probabilities of the target's best tokens"):
        RULE.judge(first)
    assert codec.encode(run)["nodes.parquet"] == older["nodes.parquet"]


def test_a_map_splits_where_a_gap_begins_and_where_it_ends() -> None:
    settings = Settings(rule=NAME, temperature=1.0, gamma=4, max_new_tokens=24)
    made, _ = toy_map(settings)
    edges = {segment.low for segment in made.segments}
    verdicts = [round_.verdicts for segment in made.segments for round_ in segment.rounds]
    assert edges & {gap for found in verdicts for gap in found.gaps.tolist()}
    assert edges & {flip for found in verdicts for flip in found.breakpoints[~np.isnan(found.gaps)].tolist()}
