"""Speculations and runs made from plain logits with NumPy: test data, and an oracle for the torch evidence."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from mars_viz import randomness
from mars_viz.axis import RuleDial
from mars_viz.exploration import Budget, DialMap, Walker, explore, mapped, walk
from mars_viz.randomness import Purpose
from mars_viz.records import Emission, Round, Speculation
from mars_viz.rules import rule_named
from mars_viz.run import Piece, Provenance, Run, Settings
from mars_viz.runfiles import load_run
from mars_viz.walk import Answer, Ending

if TYPE_CHECKING:
    from mars_viz.speculators.backend import Backend
    from mars_viz.speculators.networks import Network

PATIENCE = 240.0  # seconds; only a hanging test waits as long
ROOT = Path(__file__).resolve().parent.parent
K = 16
VOCABULARY = 32
PROMPT = (1, 2, 3)


def softmax(z: np.ndarray) -> np.ndarray:
    """Along the last axis."""
    e = np.exp(z - z.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def processed(z: np.ndarray, temperature: float, top_k: int = 0, top_p: float = 1.0) -> np.ndarray:
    """The law that is sampled from, one row; the plain softmax at temperature 0."""
    if temperature == 0:
        return softmax(z.astype(np.float64))
    z = z.astype(np.float64) / temperature
    order = np.argsort(-z, kind="stable")
    keep = z >= z[order[min(top_k or len(z), len(z)) - 1]]  # equals of the last one stay, as in transformers
    p = softmax(np.where(keep, z, -np.inf))
    before = np.concatenate([[0.0], np.cumsum(p[order])[:-1]])
    keep[order[before >= top_p]] = False
    return softmax(np.where(keep, z, -np.inf))


def draw(p: np.ndarray, u: float) -> int:
    """Inverse transform; `p` need not be normalised."""
    total = np.cumsum(p.astype(np.float64))
    return int(min(np.searchsorted(total, u * total[-1], side="right"), np.flatnonzero(p > 0)[-1]))


def best(z: np.ndarray, k: int) -> np.ndarray:
    """Ids of the k largest, the lower id first among equals."""
    return np.argsort(-z, kind="stable")[:k].astype(np.int32)


def rank(z: np.ndarray, x: int) -> int:
    """1 for the best; the lower id first among equals."""
    return int((z > z[x]).sum() + (z[:x] == z[x]).sum()) + 1


def make_speculation(
    target: np.ndarray,
    drafter: np.ndarray,
    tokens: list[int],
    *,
    start: int = 4,
    temperature: float = 0.0,
    seed: int = 0,
    top_k: int = 0,
    top_p: float = 1.0,
    sampled: bool | None = None,
    coins: list[float] | None = None,
) -> Speculation:
    """A chain from the target's raw logits [N + 1, V] and the drafter's [N, V]."""
    n, k = len(tokens), min(K, target.shape[1])
    target, drafter = target.astype(np.float32), drafter.astype(np.float32)
    sampled = temperature > 0 if sampled is None else sampled
    ps = np.array([processed(z, temperature, top_k, top_p) for z in target])
    qs = np.array([processed(z, temperature, top_k, top_p) for z in drafter]).reshape(n, -1)
    if not sampled and temperature > 0:
        qs = np.eye(target.shape[1])[tokens]
    x, i = np.array(tokens, np.int64), np.arange(n)
    with np.errstate(divide="ignore", invalid="ignore"):
        log_ratio = np.where((ps[:n] > 0) | (qs > 0), np.log(ps[:n]) - np.log(qs), 0.0)
        kl_pq = np.where(ps[:n] > 0, ps[:n] * log_ratio, 0.0).sum(1)
        kl_qp = np.where(qs > 0, -qs * log_ratio, 0.0).sum(1)
        m = (ps[:n] + qs) / 2
        js = sum(np.where(a > 0, a * np.log(a / m), 0.0).sum(1) for a in (ps[:n], qs)) / 2
        q_entropy = -np.where(qs > 0, qs * np.log(qs), 0.0).sum(1)
        plain = softmax(target.astype(np.float64))
        entropy = -np.where(plain > 0, plain * np.log(plain), 0.0).sum(1)
    weights, mass, carried = 1.0, np.zeros(n), np.ones(n)
    for node in range(n):
        carried[node] = weights
        weights = min(1.0, weights * ps[node, x[node]] / max(qs[node, x[node]], 1e-300))
        if node + 1 < n:
            mass[node] = np.maximum(weights * ps[node + 1] - qs[node + 1], 0).sum()
    plain_u = randomness.position_uniforms(seed, start, n + 1)
    residual_u = randomness.round_uniforms(seed, start, Purpose.RESIDUAL, n + 1)
    emissions = np.zeros((n + 1, len(Emission)), np.int32)
    for row in range(n + 1):
        p = ps[row]
        emissions[row] = best(target[row], 1)[0]
        if temperature > 0:
            lowered, residual, weighted = p.copy(), p, p
            if row < n:
                residual = np.maximum(p - qs[row], 0)
                weighted = np.maximum(carried[row] * p - qs[row], 0)
                lowered[x[row]] = max(0.0, p[x[row]] - qs[row, x[row]])
            residual = residual if residual.sum() > 1e-9 else p
            lowered = lowered if lowered.sum() > 1e-9 else p
            weighted = weighted if weighted.sum() > 1e-9 else p
            emissions[row, Emission.SAMPLE] = draw(p, plain_u[row])
            emissions[row, Emission.RESIDUAL] = draw(residual, residual_u[row])
            emissions[row, Emission.LOWERED] = draw(lowered, residual_u[row])
            emissions[row, Emission.BLOCK] = draw(weighted, residual_u[row])
    rows = np.arange(n + 1)[:, None]
    scale = temperature or 1.0
    top = np.array([best(z, k) for z in target])
    draft_top = np.array([best(z, k) for z in drafter], np.int32).reshape(n, k)
    if coins is None:
        coins = list(randomness.round_uniforms(seed, start, Purpose.COIN, n))
    columns = {
        "tokens": x.astype(np.int32),
        "parents": (i - 1).astype(np.int32),
        "depths": (i + 1).astype(np.int32),
        "siblings": np.zeros(n, np.int32),
        "q": qs[i, x].astype(np.float32),
        "q_max": qs.max(1).astype(np.float32),
        "q_entropy": q_entropy.astype(np.float32),
        "coins": np.array(coins, np.float64),
        "draft_ids": draft_top,
        "draft_logits": drafter[i[:, None], draft_top],
        "draft_logsumexp": _logsumexp(drafter).astype(np.float32),
        "z": target[i, x],
        "ranks": np.array([rank(target[a], b) for a, b in zip(i, x, strict=True)], np.int32),
        "p": ps[i, x].astype(np.float32),
        "total_variation": (np.abs(ps[:n] - qs).sum(1) / 2).astype(np.float32),
        "kl_pq": kl_pq.astype(np.float32),
        "kl_qp": kl_qp.astype(np.float32),
        "js": js.astype(np.float32),
        "block_mass": mass,
        "top_ids": top,
        "top_logits": target[rows, top],
        "logsumexp": _logsumexp(target).astype(np.float32),
        "logsumexp_t": _logsumexp(target / scale).astype(np.float32),
        "entropy": entropy.astype(np.float32),
        "support": (ps > 0).sum(1).astype(np.int32),
        "emissions": emissions,
        "emission_z": target[rows, emissions],
        "emission_p": ps[rows, emissions].astype(np.float32),
        "emission_ranks": np.array(
            [[rank(z, e) for e in row] for z, row in zip(target, emissions, strict=True)], np.int32
        ),
    }
    if temperature:
        columns["best_q"] = qs[i[:, None], top[:n]].astype(np.float32)
    return Speculation(start, temperature, sampled, columns)


def _logsumexp(z: np.ndarray) -> np.ndarray:
    z = z.astype(np.float64)
    if not z.size:
        return np.zeros(len(z))
    return np.log(np.exp(z - z.max(-1, keepdims=True)).sum(-1)) + z.max(-1)


def tables(vocabulary: int = VOCABULARY, model_seed: int = 0, closeness: float = 0.7) -> tuple[np.ndarray, np.ndarray]:
    """Two random bigram models: raw logits [V, V] each, the drafter's more or less like the target's."""
    rng = np.random.default_rng(model_seed)
    target = rng.normal(12, 2.5, (vocabulary, vocabulary)).astype(np.float32)
    noise = rng.normal(12, 2.5, (vocabulary, vocabulary))
    return target, (closeness * target + (1 - closeness) * noise).astype(np.float32)


class ToySpeculator:
    """Two random bigram models over a small vocabulary: real laws without real models."""

    def __init__(self, settings: Settings, vocabulary: int = 32, model_seed: int = 0, closeness: float = 0.7):
        self.settings = settings
        self._models = vocabulary, model_seed, closeness
        self.target, self.drafter = _toy_models(*self._models)

    def speculate(self, prefixes: list[tuple[int, ...]]) -> list[Answer]:
        """Without the time it took."""
        s = self.settings
        processors = s.temperature, s.top_k, s.top_p
        return [
            Answer(_toy_speculation(self._models, processors, s.seed, (s.gamma, s.tree), len(prefix), prefix[-1]))
            for prefix in prefixes
        ]


_toy_models = lru_cache(64)(tables)


@lru_cache(4096)
def _toy_speculation(
    models: tuple[int, int, float],
    processors: tuple[float, int, float],
    seed: int,
    shape: tuple[int, str],
    start: int,
    last: int,
) -> Speculation:
    """After a prefix of so many tokens with this last one. A bigram model sees no others, so that runs, maps and walks
    of any rule have many in common; each is made once."""
    from mars_viz.speculators.backend import DraftAndScore
    from tests.tables import TableDrafter, TableTarget

    target, drafter = _toy_models(*models)
    temperature, top_k, top_p = processors
    gamma, tree = shape
    settings = Settings(temperature=temperature, top_k=top_k, top_p=top_p, seed=seed, gamma=gamma, tree=tree)
    asked = DraftAndScore(TableTarget(target), TableDrafter(drafter, settings), (models[0], 1 << 20), settings)
    return asked.speculate([(*(start - 1) * (0,), last)])[0].speculation


def toy_run(
    pieces: dict[int, bytes] | None = None, vocabulary: int = 32, model_seed: int = 0, **settings: object
) -> Run:
    """A run of the toy pair; token i reads ' w<i>' unless `pieces` says otherwise."""
    chosen = Settings(**{"max_new_tokens": 60, **settings})  # type: ignore[arg-type]
    rule = rule_named(chosen.rule)
    dial = rule.checked_dial(chosen.dial)
    texts = {i: Piece(f" w{i}".encode()) for i in range(vocabulary)} | {0: Piece(b"<end>", special=True)}
    texts |= {i: Piece(data) for i, data in (pieces or {}).items()}
    ending = Ending.of(chosen, {0}, texts)
    rounds = tuple(walk(ToySpeculator(chosen, vocabulary, model_seed), rule, dial, PROMPT, ending))
    return Run(
        settings=replace(chosen, dial=dial),
        provenance=Provenance(
            target="toy-target", drafter="toy-drafter", eos_ids=(0,), vocabulary_size=vocabulary, seconds=1.0
        ),
        prompt_ids=PROMPT,
        rounds=rounds,
        pieces=texts,
        title="A toy run",
        prompt=" w1 w2 w3",
    )


def toy_chat() -> Run:
    """A toy run whose prompt is inside other text, and whose text ends with a control token."""
    run = toy_run(rule="mars", dial=0.9, max_new_tokens=6, model_seed=3)
    end = run.token_ids[-1]
    assert run.token_ids.count(end) == 1
    pieces = {**run.pieces, 100: Piece(b"<|im_start|>", special=True), end: Piece(b"<|im_end|>", special=True)}
    provenance = replace(run.provenance, eos_ids=(end,), chat=True)
    return replace(run, pieces=pieces, prompt_ids=(100, *PROMPT, end), prompt=" w2", provenance=provenance)


class Counting(ToySpeculator):
    """Notes what it was asked, batch by batch."""

    def __init__(self, settings: Settings, **model: int):
        super().__init__(settings, **model)
        self.batches: list[list[tuple[int, ...]]] = []

    def speculate(self, prefixes: list[tuple[int, ...]]) -> list[Answer]:  # type: ignore[override]
        self.batches.append(list(prefixes))
        return super().speculate(prefixes)


def recorded(answers: dict[tuple[int, ...], Answer]) -> Any:
    """A speculator that returns these answers."""
    return SimpleNamespace(speculate=lambda prefixes: [answers[prefix] for prefix in prefixes])


def toy_map(
    settings: Settings,
    low: float | None = None,
    high: float | None = None,
    gammas: tuple[int, ...] | None = None,
    budget: Budget | None = None,
    model_seed: int = 0,
    vocabulary: int = 32,
    pieces: dict[int, Piece] | None = None,
) -> tuple[DialMap, Counting]:
    """The map of the toy pair over a span of the rule's dial, and the speculator that noted what was asked."""
    speculator = Counting(settings, vocabulary=vocabulary, model_seed=model_seed)
    rule = rule_named(settings.rule)
    span = RuleDial(rule).span(low, high, gammas or (settings.gamma,))
    answers: dict[tuple[int, ...], Answer] = {}
    pieces = pieces or {i: Piece(b" w") for i in range(vocabulary)}
    ending = Ending.of(settings, {0}, pieces)
    for _ in explore(speculator, [Walker(rule, PROMPT, ending, span=span, answers=answers, budget=budget)]):
        pass
    frame = Run(
        settings=settings,
        provenance=Provenance(eos_ids=(0,), vocabulary_size=vocabulary),
        prompt_ids=PROMPT,
        rounds=(),
        pieces=pieces,
    )
    return DialMap(frame, span, answers, len(speculator.batches), 0.0), speculator


def toy_tree() -> Run:
    """A run of draft trees with its map; the first round keeps three tokens at the recorded dial value, and two from
    about θ = 0.948 on."""
    pair: dict[str, int] = {"vocabulary": 300, "model_seed": 15}
    run = toy_run(max_new_tokens=24, tree="dynamic:depth=4,topk=3", gamma=10, dial=0.9, **pair)
    made, _ = toy_map(run.settings, low=0.5, gammas=(5, 10), **pair)
    return mapped(run, replace(made, frame=run.without_rounds))


def long_run(tokens: int) -> Run:
    """A run of at least so many tokens, without a map: the rounds of a recorded sample, made by the built-in pair,
    again and again, as if each had followed the one before."""
    run = load_run(ROOT / "sample_runs" / "3-story-sampled-mars")
    told, again = run.rounds[:-1], []  # the last round is cut by the sample's length limit
    written = 0
    for round_ in itertools.cycle(told):
        if written >= tokens:
            break
        start = len(run.prompt_ids) + written
        again.append(replace(round_, speculation=replace(round_.speculation, start=start)))
        written += len(round_.token_ids)
    settings = replace(run.settings, max_new_tokens=written)
    return replace(run, rounds=tuple(again), settings=settings, map=None, title=f"{tokens} tokens")


def with_passes(
    backend: Backend, target: Callable[[], Network] | None = None, drafter: Callable[[], Network] | None = None
) -> Backend:
    """The backend with other forward passes of its models; None leaves them."""
    from mars_viz.speculators.drafters.model import model_drafter
    from mars_viz.speculators.loading import model_target
    from mars_viz.speculators.networks import Opener

    passes = [each if isinstance(each, Opener) or each is None else Opener(each) for each in (target, drafter)]
    if passes[0] is not None:
        backend = replace(backend, target=model_target(passes[0], backend.target.name, backend.target.revision))
    if passes[1] is not None:
        part = model_drafter(passes[1], backend.drafter.name, backend.drafter.revision)
        backend = replace(backend, drafter=part)
    return backend


class ToyRecorder:
    """Makes the rounds of a finished run one after the other; a test can hold it up or make it fail between two."""

    def __init__(self, run: Run, prompt: str) -> None:
        self._all, self._prompt, self.made = run, prompt, 0

    def before(self) -> None:
        """Run before each round."""

    def __iter__(self) -> Iterator[Round]:
        for round_ in self._all.rounds:
            self.before()
            self.made += 1
            yield round_

    @property
    def token_ids(self) -> tuple[int, ...]:
        return self.run().token_ids

    def run(self) -> Run:
        return replace(self._all, rounds=self._all.rounds[: self.made], prompt=self._prompt)


def until(holds: Callable[[], object], pause: float = 0.002) -> None:
    """Return once it holds, asked again after each `pause`, seconds."""
    end = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < end, "it never happened"
        time.sleep(pause)
