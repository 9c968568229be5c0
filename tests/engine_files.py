"""What engines write, made by our own strict walks: responses as vLLM lays them out, and logs of their drafts."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from mars_viz.analysis.engine_counts import vllm_metrics
from mars_viz.analysis.engine_file import prefix_key
from mars_viz.analysis.engines import AcceptanceCounts
from mars_viz.exploration import walk
from mars_viz.records import Round
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


def served(backend: Backend, prompt: str, *, gamma: int = 4, tokens: int = 48) -> Served:
    """The backend's own strict text, in the rounds in which vLLM would write it."""
    settings = Settings(rule="strict", gamma=gamma, max_new_tokens=tokens)
    ids, rule = backend.prompt_ids(prompt, settings), rule_named("strict")
    speculator = backend.speculator(settings)
    (first, *_) = walk(speculator, rule, None, ids, backend.ending(replace(settings, max_new_tokens=1)))
    rest = backend.ending(replace(settings, max_new_tokens=tokens - 1))
    return Served(ids, first, list(walk(speculator, rule, None, ids + first.token_ids, rest)))
