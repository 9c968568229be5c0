"""benchmarks/engines.py: what it compares can differ, is then found, and no server outlives its block. Without vLLM."""

from __future__ import annotations

import importlib
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mars_viz.analysis.counts import AcceptanceCounts
from mars_viz.demo.prompts import STORIES
from mars_viz.records import emitted
from mars_viz.run import Settings
from mars_viz.speculators.server_audit import decoded
from mars_viz.speculators.vllm_http import ServedText

FOLDER = Path(__file__).resolve().parent.parent / "benchmarks"
SETTINGS = Settings(rule="strict", gamma=4, max_new_tokens=32)


@pytest.fixture(scope="module")
def engines():
    sys.path.insert(0, str(FOLDER))
    yield importlib.import_module("engines")
    sys.path.remove(str(FOLDER))
    for name in ("engines", "measuring"):
        sys.modules.pop(name, None)


def counts(accepted: list[int]) -> AcceptanceCounts:
    return AcceptanceCounts("some", np.array(accepted), None, 4 * len(accepted), 4, 32, prefilled=1)


def test_an_engine_that_agrees_has_no_differences_and_other_tokens_and_counts_are_found(engines, pair):
    prompt = pair.prompt_ids(STORIES[1], SETTINGS)
    first = decoded(pair, replace(SETTINGS, max_new_tokens=1), prompt)[0]
    rounds = decoded(pair, replace(SETTINGS, max_new_tokens=31), prompt + first.token_ids)
    tokens = emitted([first, *rounds])
    logits = [z for round_ in (first, *rounds) for z in engines.written_logits(round_)]
    accepted = [len(round_.decision.kept) for round_ in rounds]
    rows = tuple({token: z} for token, z in zip(tokens, logits, strict=True))
    written = ServedText(tokens, rows, counts(accepted))

    def compare(text):
        found = engines.compare(pair, SETTINGS, [prompt], [text])
        return found, [(each["what"], each["round"], each["position"]) for each in found["differences"]]

    found, differences = compare(written)
    assert (found["same_rounds"], found["same_texts"], found["tokens"]) == (len(rounds), 1, 32) and not differences
    assert found["largest_logit_difference"] == 0 and found["tau"] == pytest.approx(31 / len(rounds))
    at = 1 + len(rounds[0].token_ids)  # the first token of the second round
    second = int(rounds[1].speculation.top_ids[0, 1])
    other = (*tokens[:at], second, *tokens[at + 1 :])
    rows = tuple({token: max(row.values())} for token, row in zip(other, rows, strict=True))
    found, differences = compare(replace(written, tokens=other, rows=rows))
    assert differences == [("text", 1, at)] and found["unexplained"] == 1
    assert found["differences"][0]["gap"] == pytest.approx(float(rounds[1].speculation.margin[0]))
    for counted, what in (([accepted[0] + 1 - 2 * (accepted[0] == 4), *accepted[1:]], "draft"), (accepted[:-1], "end")):
        found, differences = compare(replace(written, counts=counts(counted)))
        assert [each[0] for each in differences] == [what] and found["same_texts"] == found["unexplained"] == 1
