"""Diagnosis of an EAGLE-3 head: its agreement with its target at each depth, and the reach of its vocabulary.

The texts are the target's own, greedily. After each of their tokens the head drafts. Its first token uses only the
target's true features; each further one uses the head's own states. So the first tokens of consecutive drafts show the
agreement at each depth with true features, and the drafts themselves the actual agreement; the gap between the two is
the cost of the head's own states.

If the layers that the head reads are a guess, or it hardly agrees, it also drafts along the texts with other layers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

import numpy as np
import torch

from mars_viz.analysis.head_agreement import LOW, DepthAgreement, HeadCheck, LayerTrial, counts
from mars_viz.analysis.intervals import ratio
from mars_viz.errors import PromptError, SettingError
from mars_viz.run import Settings
from mars_viz.speculators.autoregressive import decode_alone
from mars_viz.speculators.backend import Backend
from mars_viz.speculators.devices import inference
from mars_viz.speculators.draft import TopLogits
from mars_viz.speculators.drafters.eagle3 import Eagle3Drafter
from mars_viz.speculators.drafters.eagle3_checkpoint import Reading
from mars_viz.walk import Prefix

TOGETHER = 16  # number of drafts made at once
LEAST = 3  # minimum number of texts for an interval


class CheckingHead:
    """A check in progress: iterate it for the finished share, then take the result."""

    def __init__(self, backend: Backend, prompts: Sequence[str | Prefix], *, depth: int = 6, tokens: int = 64):
        """Check along `tokens` tokens after each prompt. Raises BadInput for too few prompts, a drafter that is no
        head, and a text that does not fit the context."""
        if len(prompts) < LEAST:
            raise PromptError(f"{len(prompts)} prompts say too little of a head; give at least {LEAST}.")
        self._least = 2 * depth - 1  # tokens, behind the first of which true features can tell of every depth
        if depth < 1 or tokens < self._least:
            least = max(self._least, 1)
            raise SettingError(f"A check to depth {depth} needs at least {least} tokens of each text; ask for more.")
        self._settings = Settings(rule="strict", gamma=depth, max_new_tokens=tokens)
        drafter = backend.drafter.open(self._settings)
        if not isinstance(drafter, Eagle3Drafter):
            raise SettingError(f"{backend.drafter.name} is no head; take a drafter such as eagle3:HEADDIR.")
        self._readings, self._vocabulary = drafter.readings, drafter.vocabulary
        self._backend, self._depth = backend, depth
        self._prompts = [backend.prompt_ids(prompt, self._settings) for prompt in prompts]
        self._texts: list[tuple[Prefix, Prefix]] = []  # prompts, and what the target wrote after them
        self._agreed: list[np.ndarray] = []  # of each text, bool [drafts, depth]
        self._others: list[list[np.ndarray]] = []  # the same of each reading after the first
        self._held: list[np.ndarray] = []  # of each text, float64 [positions, 2]

    def __iter__(self) -> Iterator[float]:
        for done, prompt in enumerate(self._prompts, start=1):
            text = decode_alone(self._backend, prompt, self._settings).token_ids
            if len(text) >= self._least:
                self._texts.append((prompt, text))
                self._agreed.append(self._drafted_along(prompt, text, self._readings[0]))
                self._held.append(self._reach(prompt, text))
            yield done / len(self._prompts)
        if self.tells and (self._readings[0].guess or np.concatenate(self._agreed)[:, 0].mean() < LOW):
            for reading in self._readings[1:]:
                self._others.append([self._drafted_along(*each, reading) for each in self._texts])
                yield 1.0

    @property
    def tells(self) -> bool:
        """True once there are enough texts for an interval."""
        return len(self._agreed) >= LEAST

    def result(self) -> HeadCheck:
        """Return the results so far. Raises PromptError if the target ended most texts early."""
        if not self.tells:
            raise PromptError(
                f"The target wrote at least {self._least} tokens after {len(self._agreed)} prompts, and {LEAST} are "
                "needed; give prompts that it goes on with."
            )
        numbers = [counts(agreed) for agreed in self._agreed]
        true, with_own = (np.array([each[i] for each in numbers], np.float64) for i in (0, 1))  # [texts, depth, 2]
        reached = [d for d in range(self._depth) if true[:, d, 1].sum() and with_own[:, d, 1].sum()]
        held = np.array([each.sum(0) for each in self._held])
        positions = np.array([len(each) for each in self._held], np.float64)
        return HeadCheck(
            head=self._backend.drafter.name,
            target=self._backend.target.name,
            texts=len(self._agreed),
            drafts=sum(map(len, self._agreed)),
            depths=tuple(
                DepthAgreement(d + 1, ratio(true[:, d, 0], true[:, d, 1]), ratio(with_own[:, d, 0], with_own[:, d, 1]))
                for d in reached
            ),
            coverage=ratio(held[:, 0], positions),
            best_held=ratio(held[:, 1], positions),
            guess=self._readings[0].guess,
            tried=self._trials() if self._others else (),
        )

    def _trials(self) -> tuple[LayerTrial, ...]:
        """Return the results of each tried reading, the present one first."""
        drafts, trials = np.array([len(each) for each in self._agreed], np.float64), []
        present = np.array([np.logical_and.accumulate(each, axis=1).sum() for each in self._agreed], np.float64)
        for reading, agreed in zip(self._readings, [self._agreed, *self._others], strict=False):
            first = np.array([each[:, 0].sum() for each in agreed], np.float64)
            kept = np.array([np.logical_and.accumulate(each, axis=1).sum() for each in agreed], np.float64)
            shares = (ratio(values, drafts) for values in (first, kept, kept - present))
            trials.append(LayerTrial(reading.words, reading.setting, *shares))
        return tuple(trials)

    def _drafted_along(self, prompt: Prefix, text: Prefix, reading: Reading) -> np.ndarray:
        """Return whether each token of the draft after each token of the text is the text's next one, bool [drafts,
        depth]."""
        target, drafter = self._backend.target.open(), self._backend.drafter.open(self._settings)
        assert isinstance(drafter, Eagle3Drafter)
        drafter.layers = reading.layers
        drafter.follow(target)
        tokens_all, depth = prompt + text, self._depth
        prefixes = iter([tokens_all[:end] for end in range(len(prompt), len(tokens_all) - depth + 1)])
        agreed: list[list[bool]] = []
        with inference():
            target.prefill([prompt])
            drafter.prefill([prompt])
            while some := list(islice(prefixes, TOGETHER)):
                draft = drafter.draft(some, depth)
                for prefix, tokens in zip(some, draft.tokens.tolist(), strict=True):
                    following = tokens_all[len(prefix) : len(prefix) + depth]
                    agreed.append([one == other for one, other in zip(tokens, following, strict=True)])
        return np.array(agreed, bool)

    def _reach(self, prompt: Prefix, text: Prefix) -> np.ndarray:
        """Return the target's probability on the head's tokens, and 1 if its best is one of them, float64 [positions,
        2]."""
        target = self._backend.target.open()
        with inference():
            ids = torch.tensor([text], dtype=torch.int64, device=target.device)
            scored = target.score([prompt], ids[:, :-1])
            assert not isinstance(scored, TopLogits), "a head reads a model of this machine"
            laws = scored[0].softmax(-1)  # [positions, V]
            tokens = torch.arange(laws.shape[-1]) if self._vocabulary is None else self._vocabulary
            inside = laws[:, tokens].sum(-1)
            best = torch.isin(laws.argmax(-1), tokens.to(laws.device))
        return torch.stack([inside.double(), best.double()], 1).cpu().numpy()
