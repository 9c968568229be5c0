"""Every rule: its formula, its strict end, its direction and its declarations, against thousands of random blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from functools import cache

import numpy as np
import pytest
import torch
from factories import best, make_speculation, processed, softmax

from mars_viz.errors import BadInput
from mars_viz.records import Emission, Speculation, Verdicts
from mars_viz.rules import RULES, Rule, rule_named, settle
from mars_viz.run import Settings
from mars_viz.speculators.draft import DraftBatch
from mars_viz.speculators.evidence import gather_evidence

DIALLED = [name for name, rule in RULES.items() if rule.dial is not None]
DIALLED += [
    rule.varied({each.key: value}).name
    for rule in RULES.values()
    for each in rule.fixed
    for value in (each.low, each.high)
]
TEMPERATURES = [0.0, 0.7, 1.0]


@dataclass(frozen=True)
class Case:
    """A drafted token with the complete laws by which it was judged."""

    z: np.ndarray  # [V]; the target's raw logits
    p: np.ndarray  # [V]; its law, the plain softmax at temperature 0
    q: np.ndarray  # [V]; the drafter's
    x: int
    u: float
    y: int  # the target's own sample
    greedy: bool
    entropy: float
    theirs: np.ndarray  # [V]; the drafter's raw logits
    t: float  # temperature

    def __post_init__(self) -> None:
        """Derive the quantities that formulas name."""
        order = best(self.z, len(self.z))
        possible, top = bool(self.p[self.x] > 0), self.x == order[0]
        rank = int(np.flatnonzero(order == self.x)[0]) + 1
        tossed = top if self.greedy else possible and self.u * self.q[self.x] <= self.p[self.x]
        derived = {"v1": int(order[0]), "rank": rank, "p1": float(self.p[order[0]]), "possible": possible}
        self.__dict__.update(derived, second=rank == 2 and possible, top=top, tossed=tossed)


def divergence(law: np.ndarray, other: np.ndarray) -> float:
    """Jensen-Shannon divergence, nats."""
    middle = (law + other) / 2
    return sum(float((a[a > 0] * np.log(a[a > 0] / middle[a > 0])).sum()) for a in (law, other)) / 2


def contrastive(c: Case, beta: float) -> float:
    """π(x): the softmax of ((1 + β) z - β z') / T over what top-k keeps. All beyond the 16 best are one token."""
    listed = np.isin(np.arange(len(c.z)), best(c.z, 16)) | (np.arange(len(c.z)) == c.x)
    theirs = np.where(c.q > 0, c.theirs, np.maximum(c.theirs, np.sort(c.theirs)[::-1][:16][-1]))  # or its K-th best
    kept = c.p > 0
    scores = np.exp(((1 + beta) * (c.z.astype(np.float64) - c.z.max()) - beta * (theirs - theirs.max())) / c.t)
    share, other = c.p[kept & ~listed].sum(), c.q[~listed].sum()
    scale = np.exp((1 + beta) * -np.log(c.p1) + beta * np.log(c.q.max()))  # of p and q against the scores
    rest = scale * share * min(1, share / max(other, share)) ** beta if share > 1e-6 else 0.0
    return float(scores[c.x] * kept[c.x] / (scores[kept & listed].sum() + rest))


FORMULAS: dict[str, Callable[[Case, float], bool]] = {
    "mars": lambda c, d: c.top or (c.second and c.z[c.v1] > 0 and c.z[c.x] / c.z[c.v1] > d),
    "mars-margin": lambda c, d: c.top or (c.second and c.z[c.v1] - c.z[c.x] < d),
    "mars-odds": lambda c, d: c.top or (c.second and c.p[c.x] / c.p1 > d),
    "lenience": lambda c, d: c.possible and (c.p[c.x] >= d * c.p1 if c.greedy else d * c.u * c.q[c.x] <= c.p[c.x]),
    "typical": lambda c, d: c.top or (c.possible and c.p[c.x] > min(d, np.sqrt(d) * np.exp(-c.entropy))),
    "sglang-acc": lambda c, d: (
        c.x == c.y or (not c.greedy and c.possible and c.u <= (c.p[c.x] / d - c.p[c.x]) / max(1 - c.p[c.x], 1e-12))
    ),
    "sglang-single": lambda c, d: c.x == c.y or (not c.greedy and c.possible and c.p[c.x] >= d),
    "tensorrt-llm": lambda c, d: c.top or (c.possible and c.rank <= 10 and c.p[c.x] >= c.p1 - d),
    "vllm-thinking": lambda c, d: (
        c.top or (c.possible and c.rank <= 3 and (d == 0 or c.z[c.x] >= c.z[c.v1] + np.log(d)))
    ),
    "ensemble": lambda c, d: (
        c.top or d * c.p[c.x] + (1 - d) * c.q[c.x] >= d * c.p1 + (1 - d) * c.q[c.v1]
        if c.greedy
        else c.u * c.q[c.x] <= (1 - d) * c.q[c.x] + d * c.p[c.x]
    ),
    "fuzzy": lambda c, d: c.tossed or divergence(c.p, c.q) < d,
    "cactus-acceptance": lambda c, d: (
        c.top
        if c.greedy
        else c.possible and c.u * c.q[c.x] <= min(1, c.p[c.x] + np.sqrt(2 * d * c.p[c.x] * max(0, 1 - c.p[c.x])))
    ),
    "cascade-opt": lambda c, d: c.tossed or c.q.max() >= c.p.max() - d * np.abs(c.p - c.q).sum() / 2,
    "cascade-token-acceptance": lambda c, d: (
        (c.greedy and c.top)
        or c.p[c.x] >= (1 - d) * c.p1
        or (
            c.tossed
            and not c.greedy
            and c.u * c.q[c.x] <= (1 - sum(c.q[x] for x in best(c.z, 16) if c.p[x] >= (1 - d) * c.p1)) * c.p[c.x]
        )
    ),
    "contrastive-acceptance": lambda c, d: (
        c.tossed and (c.greedy or c.q[c.x] == 1 or c.u * c.q[c.x] <= contrastive(c, d))
    ),
    "bild": lambda c, d: c.top or (c.possible and -np.log(c.p[c.x]) <= d),
    "ears": lambda c, d: c.top if c.greedy else c.possible and max(0, c.u - d * (1 - c.p.max())) <= c.p[c.x] / c.q[c.x],
    "regret-budget": lambda c, d: c.top or (c.possible and c.z[c.v1] - c.z[c.x] <= d),
    "top-k-set": lambda c, d: c.top or (c.possible and c.rank <= d),
    "nucleus-set": lambda c, d: (
        c.top or (c.possible and c.rank <= 16 and c.p[best(c.z, len(c.z))[: c.rank - 1]].sum() < d)
    ),
    "min-p-set": lambda c, d: c.top or (c.possible and c.p[c.x] >= d * c.p1),
}
"""The formula of every rule that judges a token by itself, from the complete laws. The released code of MARS and MARS
with rejection sampling have their own tests."""


Keeps = Callable[["Case"], bool]


def entropy_of(law: np.ndarray, count: int) -> float:
    """Of the largest probabilities of a law as they are, nats."""
    largest = np.sort(law)[::-1][:count]
    return -sum(float(p * np.log(p)) for p in largest if p > 0)


def windowed(cases: list[Case], kept: Keeps, follow: int, window: int, relaxes: Keeps) -> list[bool]:
    """Kept, or relaxed before `window` drafted tokens the first `follow` of which are kept, too."""
    ends = len(cases) - window
    return [
        kept(c) or (i < ends and all(map(kept, cases[i + 1 : i + 1 + follow])) and relaxes(c))
        for i, c in enumerate(cases)
    ]


def fly(cases: list[Case], dial: float, window: int) -> list[bool]:
    """The paper's: all but the last of the tokens that follow match."""
    return windowed(
        cases, lambda c: c.top, window - 1, window, lambda c: entropy_of(softmax(c.z.astype(np.float64)), 3) >= dial
    )


def vllm_fly(cases: list[Case], dial: float, window: int, best_tokens: int) -> list[bool]:
    """vLLM's: rejection sampling keeps all of the tokens that follow."""
    return windowed(
        cases, lambda c: c.tossed, window, window, lambda c: c.possible and entropy_of(c.p, best_tokens) >= dial
    )


def margin_window(cases: list[Case], dial: float, window: int) -> list[bool]:
    """A small difference of log-probabilities, before tokens that match."""
    near = lambda c: c.possible and np.log(c.p1) - np.log(c.p[c.x]) <= dial  # noqa: E731
    return windowed(cases, lambda c: c.top, window, window, near)


OF_BLOCKS: dict[str, Callable[[list[Case], float], list[bool]]] = {
    "fly:w=1": lambda cases, d: fly(cases, d, 1),
    "fly:w=2": lambda cases, d: fly(cases, d, 2),
    "fly:w=3": lambda cases, d: fly(cases, d, 3),
    "vllm-fly:w=1": lambda cases, d: vllm_fly(cases, d, 1, 3),
    "vllm-fly:w=2,k=1": lambda cases, d: vllm_fly(cases, d, 2, 1),
    "vllm-fly:w=3,k=5": lambda cases, d: vllm_fly(cases, d, 3, 5),
    "margin-window": lambda cases, d: margin_window(cases, d, 1),
    "margin-window:w=3": lambda cases, d: margin_window(cases, d, 3),
}


def random_block(rng: np.random.Generator, temperature: float, length: int = 1) -> tuple[Speculation, list[Case]]:
    """Return a block with laws from flat to peaked, some with ties, impossible tokens, negative logits, a one-hot q."""
    vocabulary = int(rng.integers(2, 25))
    target = rng.normal(rng.choice([12, 0, -9]), rng.choice([0.3, 1.5, 5.0]), (length + 1, vocabulary))
    drafter = rng.uniform(0.2, 1.0) * target[:length] + rng.normal(0, rng.choice([0.1, 2.0]), (length, vocabulary))
    if rng.random() < 0.3:
        target = np.round(target)  # ties
    if rng.random() < 0.3:
        target[:, rng.integers(vocabulary)] = -np.inf
        target[:, 0] = 1.0
    target, drafter = target.astype(np.float32), drafter.astype(np.float32)
    top_k = int(rng.choice([0, 0, 3])) if temperature else 0
    sampled = bool(rng.random() < 0.8) if temperature else False
    laws = [processed(row, temperature, top_k) for row in drafter]
    tokens = [int(rng.choice(vocabulary, p=law)) if temperature else int(best(law, 1)[0]) for law in laws]
    if not sampled and temperature:
        tokens = rng.integers(vocabulary, size=length).tolist()
        laws = list(np.eye(vocabulary)[tokens])
    speculation = make_speculation(
        target, drafter, tokens, temperature=temperature, top_k=top_k, sampled=sampled, seed=int(rng.integers(2**32))
    )
    plain = softmax(target.astype(np.float64))
    with np.errstate(divide="ignore", invalid="ignore"):
        entropy = -np.where(plain > 0, plain * np.log(plain), 0).sum(1)
    cases = [
        Case(
            z=target[i],
            p=processed(target[i], temperature, top_k),
            q=laws[i],
            x=tokens[i],
            u=float(speculation.coins[i]),
            y=int(speculation.emissions[i, Emission.SAMPLE]),
            greedy=temperature == 0,
            entropy=float(entropy[i]),
            theirs=drafter[i].astype(np.float64),
            t=temperature or 1.0,
        )
        for i in range(length)
    ]
    return speculation, cases


@cache
def random_blocks(
    count: int, temperature: float, lengths: range = range(1, 2), seed: int = 0
) -> tuple[tuple[Speculation, list[Case]], ...]:
    """Return blocks, cached."""
    rng = np.random.default_rng(seed)
    return tuple(random_block(rng, temperature, int(rng.choice(lengths))) for _ in range(count))


def dials(rule: Rule, rng: np.random.Generator, verdicts: Verdicts) -> Iterator[float]:
    """Yield random values strictly inside the range, and some close to each breakpoint but not within rounding."""
    assert rule.dial is not None
    low, high = rule.dial.low, rule.dial.high
    flips = np.concatenate([verdicts.breakpoints, verdicts.gaps])
    known = flips[np.isfinite(flips)]
    tries = [*rng.uniform(low, high, 4), *(known - 1e-3), *(known + 1e-3)]
    yield from (d for d in tries if low < d < high and not (np.abs(known - d) < 1e-4).any())


INERT = ("mars-code", "sglang-acc", "sglang-single", "cactus-acceptance", "ears", "contrastive-acceptance")
"""Without a dial at temperature 0."""


@pytest.mark.parametrize("name", FORMULAS)
@pytest.mark.parametrize("temperature", TEMPERATURES)
def test_verdicts_are_the_formula(name: str, temperature: float) -> None:
    rng = np.random.default_rng(list(name.encode()))
    rule, compared, differs = RULES[name], 0, 0
    for speculation, (case,) in random_blocks(300, temperature):
        if name == "ensemble" and not np.isin(best(case.z, 1), speculation.draft_ids[0]):
            continue  # the drafter's probability of v1 is not recorded; has a test of its own
        verdicts = rule.judge(speculation)
        for dial in dials(rule, rng, verdicts):
            kept = bool(settle(speculation, verdicts, dial).kept)
            assert kept == FORMULAS[name](case, dial), (case, dial)
            compared += 1
            differs += kept != verdicts.keep_strict[0]
    assert compared > 1000
    assert differs or (temperature == 0 and name in INERT)


@pytest.mark.parametrize("name", OF_BLOCKS)
@pytest.mark.parametrize("temperature", TEMPERATURES)
def test_verdicts_on_a_block_are_the_formula(name: str, temperature: float) -> None:
    rng = np.random.default_rng(list(name.encode()))
    rule, compared, relaxed = rule_named(name), 0, 0
    for speculation, cases in random_blocks(300, temperature, range(1, 8)):
        verdicts = rule.judge(speculation)
        for dial in dials(rule, rng, verdicts):
            kept = verdicts.keeps(dial).tolist()
            assert kept == OF_BLOCKS[name](cases, dial), (cases, dial)
            compared += 1
            relaxed += kept != verdicts.keep_strict.tolist()
    assert compared > 1000 and relaxed > 20


TIGHTER = ("fly", "contrastive-acceptance")
"""Keep no more above temperature 0: one because of rare blocks, the other by design."""
STRICT = {
    Emission.ARGMAX: ("mars", 1.0),
    Emission.RESIDUAL: ("rejection-sampling", None),
    Emission.SAMPLE: ("strict", None),
}
"""The reference at the strict end, by what a rule emits on rejection; at temperature 0 all three are the same."""


def blocks(count: int, temperature: float, seed: int = 0) -> Iterator[Speculation]:
    """Of eight drafted tokens each."""
    return (speculation for speculation, _ in random_blocks(count, temperature, range(8, 9), seed))


@pytest.mark.parametrize("name", DIALLED)
@pytest.mark.parametrize("temperature", TEMPERATURES)
def test_the_strict_end_is_the_strict_reference_and_a_looser_dial_keeps_no_less(name: str, temperature: float) -> None:
    rule = rule_named(name)
    low, high = rule.dial.low, rule.dial.high
    values = np.linspace(low, high, 41) if rule.dial.strict_is_high else np.linspace(high, low, 41)
    reference, dial = ("rejection-sampling", None) if name == "mars-code" else STRICT[rule.on_rejection]
    grew = shrank = False
    for speculation in blocks(100, temperature):
        verdicts = rule.judge(speculation)
        lengths = np.array([len(settle(speculation, verdicts, value).kept) for value in values])
        grew |= lengths[0] > lengths[-1]
        shrank |= bool((np.diff(lengths) > 0).any())
        if name == "mars-code" and temperature > 0 and (speculation.z1 <= 0).any():
            continue  # it relaxes a negative best logit at every dial value
        ours = settle(speculation, verdicts, rule.dial.strict)
        theirs = settle(speculation, RULES[reference].judge(speculation), dial)
        assert ours.kept == theirs.kept and (ours == theirs or (name == "mars-code" and temperature > 0))
        assert verdicts.keeps(rule.dial.strict).tolist() == verdicts.keep_strict.tolist()
    assert not shrank or not rule.monotone
    assert grew or (temperature == 0 and name in INERT) or (temperature > 0 and name in TIGHTER) or ":" in name


@pytest.mark.parametrize("name", RULES)
def test_what_a_rule_emits_is_recorded_and_follows_the_dial_only_if_declared(name: str) -> None:
    for temperature in TEMPERATURES:
        for speculation in blocks(20, temperature, seed=2):
            verdicts = RULES[name].judge(speculation)
            for emitted in (verdicts.emit_below, verdicts.emit_above):
                assert (speculation.emissions == emitted[:, None]).any(axis=1).all()
            moves = (verdicts.emit_below != verdicts.emit_above) & ~np.isnan(verdicts.row_breakpoints)
            assert not moves.any() or RULES[name].emission_follows_dial


@pytest.mark.parametrize("name", RULES)
def test_a_rule_looks_at_other_positions_only_if_declared(name: str) -> None:
    rule, same = RULES[name], True
    for speculation, nodes in nodes_alone():
        verdicts, alone = rule.judge(speculation), [rule.judge(node) for node in nodes]
        same &= np.array_equal(verdicts.breakpoints, [v.breakpoints[0] for v in alone], equal_nan=True)
        same &= np.array_equal(verdicts.gaps, [v.gaps[0] for v in alone], equal_nan=True)
        same &= verdicts.keep_strict.tolist() == [bool(v.keep_strict[0]) for v in alone]
    assert same != rule.spans_positions


@cache
def nodes_alone() -> list[tuple[Speculation, list[Speculation]]]:
    """Return blocks of eight, and each of their nodes with the same evidence as a block of one."""
    root = {"parents": np.array([-1], np.int32)}
    return [
        (each, [replace(each, columns=each.chosen(slice(i, i + 1), slice(i, i + 2)) | root) for i in range(8)])
        for temperature in (0.0, 1.0)
        for each in blocks(40, temperature, seed=5)
    ]


@pytest.mark.parametrize("name", RULES)
def test_without_what_it_needs_a_rule_says_so_and_does_not_judge(name: str) -> None:
    rule, speculation = RULES[name], next(blocks(1, 1.0))
    assert rule.lacks(speculation) is None
    for field in rule.needed(speculation):
        known = {name: column for name, column in speculation.columns.items() if name != field}
        unknown = replace(speculation, columns=known)
        with pytest.raises(BadInput, match="full evidence"):
            rule.judge(unknown)


@cache
def gathered(temperature: float, needs: tuple[str, ...] | None) -> list[Speculation]:
    """Return sixty blocks, some with good drafts, with only this evidence, or all for None."""
    rng, found = np.random.default_rng(4), []
    for start in range(60):
        target, drafter = (torch.from_numpy(rng.normal(9, 3, (1, n, 60)).astype(np.float32)) for n in (9, 8))
        target[:, :8] += drafter
        tokens = drafter.argmax(-1)
        tokens[0, 3:] = target[0, 3:8].argmax(-1)
        block = DraftBatch((start,), tokens, drafter, target, sampled=temperature > 0)
        found += gather_evidence(block, Settings(temperature=temperature), needs)
    return found


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_rule_reads_nothing_that_it_does_not_declare(name: str, temperature: float) -> None:
    rule, relaxed = RULES[name], False
    for whole, bare in zip(gathered(temperature, None), gathered(temperature, rule.needs), strict=True):
        full, less = rule.judge(whole), rule.judge(bare)
        for field in fields(Verdicts):
            np.testing.assert_array_equal(getattr(full, field.name), getattr(less, field.name), err_msg=field.name)
        relaxed |= not np.isnan(full.breakpoints).all()
    assert relaxed or rule.dial is None or "T = 0: x = v1" in rule.formula or not temperature


def test_a_best_token_that_the_drafter_does_not_list_counts_as_its_last_one() -> None:
    target = np.zeros((2, 20))
    target[:, 19] = 3.0
    drafter = np.zeros((1, 20))
    drafter[0, 0], drafter[0, 19] = 2.0, -5.0
    speculation = make_speculation(target, drafter, [0])
    p, q = softmax(target[0]), softmax(drafter[0])
    gain, loss = q[0] - q[15], p[19] - p[0]
    assert RULES["ensemble"].judge(speculation).breakpoints[0] == pytest.approx(gain / (gain + loss))
