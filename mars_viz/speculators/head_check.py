"""Why an EAGLE-3 head is accepted less than hoped: how often it agrees with its target at each depth, and what its
vocabulary can reach. Knows backends and texts; knows no pages.

The texts are the target's own, greedily. After each of their tokens the head drafts. Its first token rests on the
target's true features alone; each further one on what the head made of its own states. So the first tokens of drafts
that follow one another say what it would do at each depth if it were always fed the truth, and the drafts themselves
what it does: a gap between the two is the price of its own states.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
import torch

from mars_viz.analysis.intervals import Interval, ratio
from mars_viz.errors import PromptError, SettingError
from mars_viz.run import Settings
from mars_viz.speculators.autoregressive import decode_alone
from mars_viz.speculators.backend import Backend
from mars_viz.speculators.device_errors import inference
from mars_viz.speculators.draft import FollowsTarget, TopLogits
from mars_viz.walk import Prefix

TOGETHER = 16
"""Drafts that are made at once."""
LEAST = 3
"""Texts of which an interval is made."""
LOW = 0.25
"""Agreement at the first depth below which nothing has been learnt of this target."""
CLIFF = 0.6
"""Agreement by its own states as a share of that by true features, below which the states are not what was trained."""
NARROW = 0.9
"""Share of the target's probability that a vocabulary should hold."""


@dataclass(frozen=True, slots=True)
class DepthAgreement:
    """At one depth, of the drafts that agreed with the target until there."""

    depth: int
    """1 for the token right after the text."""
    true_features: Interval
    """Share that agrees where the head is fed the target's features throughout."""
    own_states: Interval
    """Share that agrees where it is fed its own states, as when it drafts."""


@dataclass(frozen=True, slots=True)
class HeadCheck:
    """What was found."""

    head: str
    """The head's name."""
    target: str
    """The target's."""
    texts: int
    """How many were drafted along."""
    drafts: int
    """How many were made."""
    depths: tuple[DepthAgreement, ...]
    """By rising depth, as far as anything agreed."""
    coverage: Interval
    """Share of the target's probability on tokens that the head can draft, on average."""
    best_held: Interval
    """Share of positions whose best token is one of those."""

    @property
    def findings(self) -> tuple[str, ...]:
        """What stands out, and what it means; sentences."""
        found, first = [], self.depths[0].true_features.estimate
        if first < LOW:
            found.append(
                f"Even at depth 1 only {first:.0%} agree: the head reads other layers than it was "
                "trained on, its d2t table is read wrongly, or it was trained for another target."
            )
        elif len(self.depths) > 1:
            true, own = self.depths[1].true_features.estimate, self.depths[1].own_states.estimate
            if own < CLIFF * true:
                found.append(
                    f"Agreement falls to {own:.0%} at depth 2, where true features give {true:.0%}: the wrong state is "
                    "fed back (normed in place of un-normed, or the other way round), or the head was trained without "
                    "its own states."
                )
        if self.coverage.estimate < NARROW:
            found.append(
                f"Its vocabulary holds {self.coverage.estimate:.0%} of the target's probability, which no acceptance "
                "can exceed: take a larger one, or one of the texts that are served."
            )
        return tuple(found) or ("Nothing stands out.",)


class CheckingHead:
    """A check in progress: iterate it for the share that is done, then take the result."""

    def __init__(self, backend: Backend, prompts: Sequence[str], *, depth: int = 6, tokens: int = 64):
        """Along so many tokens after each of the prompts. Raises BadInput for too few prompts, a drafter that is no
        head, and what does not fit the context."""
        if len(prompts) < LEAST:
            raise PromptError(f"{len(prompts)} prompts say too little of a head; give at least {LEAST}.")
        if depth < 1 or tokens <= depth:
            raise SettingError(f"A check to depth {depth} needs more than {depth} tokens of each text; ask for more.")
        self._settings = Settings(rule="strict", gamma=depth, max_new_tokens=tokens)
        if not isinstance(backend.drafter.open(self._settings), FollowsTarget):
            raise SettingError(f"{backend.drafter.name} is no head; take a drafter such as eagle3:HEADDIR.")
        self._backend, self._depth = backend, depth
        self._prompts = [backend.prompt_ids(prompt, self._settings) for prompt in prompts]
        self._agreed: list[np.ndarray] = []  # of each text, bool [drafts, depth]
        self._held: list[np.ndarray] = []  # of each text, float64 [positions, 2]

    def __iter__(self) -> Iterator[float]:
        for done, prompt in enumerate(self._prompts, start=1):
            text = decode_alone(self._backend, prompt, self._settings).token_ids
            self._agreed.append(self._drafted_along(prompt, text))
            yield done / len(self._prompts)

    def result(self) -> HeadCheck:
        """What it found, once it has come to its end."""
        numbers = [_counts(agreed) for agreed in self._agreed]
        true, own = (np.array([each[i] for each in numbers], np.float64) for i in (0, 1))  # [texts, depth, 2]
        reached = [d for d in range(self._depth) if true[:, d, 1].sum() and own[:, d, 1].sum()]
        held = np.array([each.sum(0) for each in self._held])
        positions = np.array([len(each) for each in self._held], np.float64)
        return HeadCheck(
            head=self._backend.drafter.name,
            target=self._backend.target.name,
            texts=len(self._agreed),
            drafts=sum(map(len, self._agreed)),
            depths=tuple(
                DepthAgreement(d + 1, ratio(true[:, d, 0], true[:, d, 1]), ratio(own[:, d, 0], own[:, d, 1]))
                for d in reached
            ),
            coverage=ratio(held[:, 0], positions),
            best_held=ratio(held[:, 1], positions),
        )

    def _drafted_along(self, prompt: Prefix, text: Prefix) -> np.ndarray:
        """bool [drafts, depth]; whether each token of the draft after each token of the text is the text's next one."""
        target, drafter = self._backend.opened(self._settings)
        whole, depth = prompt + text, self._depth
        prefixes = iter([whole[:end] for end in range(len(prompt), len(whole) - depth + 1)])
        agreed: list[list[bool]] = []
        with inference():
            target.prefill([prompt])
            drafter.prefill([prompt])
            while some := list(islice(prefixes, TOGETHER)):
                draft = drafter.draft(some, depth)
                for prefix, tokens in zip(some, draft.tokens.tolist(), strict=True):
                    following = whole[len(prefix) : len(prefix) + depth]
                    agreed.append([one == other for one, other in zip(tokens, following, strict=True)])
            ids = torch.tensor([whole[len(prompt) :]], dtype=torch.int64, device=target.device)
            scored = self._backend.target.open().score([prompt], ids[:, :-1])
            assert not isinstance(scored, TopLogits), "a head reads a model of this machine"
            laws = scored[0].softmax(-1)  # [positions, V]
            tokens = torch.arange(laws.shape[-1]) if draft.vocabulary is None else draft.vocabulary
            inside = laws[:, tokens].sum(-1)
            best = torch.isin(laws.argmax(-1), tokens.to(laws.device))
        self._held.append(torch.stack([inside.double(), best.double()], 1).cpu().numpy())
        return np.array(agreed, bool)


def _counts(agreed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """int64 [depth, 2] twice, by true features and by own states: drafts that agree at each depth, of those that did
    until there."""
    depth = agreed.shape[1]
    first = agreed[:, 0]
    windows = np.lib.stride_tricks.sliding_window_view(first, depth) if len(first) >= depth else agreed[:0]
    return _chained(windows), _chained(agreed)


def _chained(agreed: np.ndarray) -> np.ndarray:
    until = np.concatenate([np.ones((len(agreed), 1), bool), np.logical_and.accumulate(agreed, axis=1)], 1)
    return np.stack([until[:, 1:].sum(0), until[:, :-1].sum(0)], 1)
