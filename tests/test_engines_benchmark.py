"""benchmarks/engines.py: what it compares can differ, is then found, and no server outlives its block. Without vLLM."""

from __future__ import annotations

import importlib
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mars_viz.analysis import round_differences
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


@pytest.fixture(scope="module")
def prompt(pair):
    return pair.prompt_ids(STORIES[1], SETTINGS)


@pytest.fixture
def written(engines, pair, prompt):
    """The text of an engine that agrees with us: our own rounds, after vLLM's one token by the prefill."""
    first = decoded(pair, replace(SETTINGS, max_new_tokens=1), prompt)[0]
    rounds = decoded(pair, replace(SETTINGS, max_new_tokens=31), prompt + first.token_ids)
    tokens = emitted([first, *rounds])
    logits = [z for round_ in (first, *rounds) for z in engines.written_logits(round_)]
    rows = tuple({token: z} for token, z in zip(tokens, logits, strict=True))
    return ServedText(tokens, rows, counts([len(round_.decision.kept) for round_ in rounds]))


def with_tokens(written: ServedText, tokens: tuple[int, ...]) -> ServedText:
    rows = tuple({token: max(row.values())} for token, row in zip(tokens, written.rows, strict=True))
    return replace(written, tokens=tokens, rows=rows)


def counts(accepted: list[int]) -> AcceptanceCounts:
    return AcceptanceCounts("some", np.array(accepted), None, 4 * len(accepted), 4, 32, prefilled=1)


def test_agreement_has_no_differences(engines, pair, prompt, written):
    found = engines.compare(pair, SETTINGS, [prompt], [written])
    rounds = written.counts.steps
    assert rounds >= 4
    assert (found["rounds"], found["same_rounds"], found["same_texts"], found["tokens"]) == (rounds, rounds, 1, 32)
    assert (found["differences"], found["unexplained"], found["largest_logit_difference"]) == ([], 0, 0.0)
    assert found["tau"] == pytest.approx(31 / rounds)


def test_another_token_is_found_with_its_place_and_gap(engines, pair, prompt, written, monkeypatch):
    rounds = decoded(pair, replace(SETTINGS, max_new_tokens=31), prompt + written.tokens[:1])
    at = 1 + len(rounds[0].token_ids)  # the first token of the second round
    second = int(rounds[1].speculation.top_ids[0, 1])
    other = with_tokens(written, (*written.tokens[:at], second, *written.tokens[at + 1 :]))
    found = engines.compare(pair, SETTINGS, [prompt], [other])
    (difference,) = found["differences"]
    assert (difference["what"], difference["round"], difference["position"]) == ("text", 1, at)
    assert difference["tokens"] == (written.tokens[at], second)
    assert difference["gap"] == pytest.approx(float(rounds[1].speculation.margin[0]))
    assert (found["same_rounds"], found["same_texts"], found["unexplained"]) == (1, 0, 1)
    monkeypatch.setattr(round_differences, "ROUNDING", difference["gap"])
    assert engines.compare(pair, SETTINGS, [prompt], [other])["unexplained"] == 0
    other = with_tokens(written, (written.tokens[0] + 1, *written.tokens[1:]))
    (difference,) = engines.compare(pair, SETTINGS, [prompt], [other])["differences"]
    assert (difference["what"], difference["round"], difference["position"]) == ("text", -1, 0)


def test_other_counts_of_accepted_tokens_and_rounds_are_found(engines, pair, prompt, written):
    whole = written.counts.accepted.tolist()
    for change in (-1, 1):
        accepted = list(whole)
        at = next(i for i, count in enumerate(accepted) if 0 <= count + change <= 4)
        accepted[at] += change
        found = engines.compare(pair, SETTINGS, [prompt], [replace(written, counts=counts(accepted))])
        (difference,) = found["differences"]
        assert (difference["what"], difference["round"]) == ("draft", at)
        assert difference["accepted"] == (accepted[at], accepted[at] - change)
        assert (found["same_texts"], found["same_rounds"], found["unexplained"]) == (1, at, 1)
    for accepted in ([*whole, 0], whole[:-1]):
        found = engines.compare(pair, SETTINGS, [prompt], [replace(written, counts=counts(accepted))])
        assert [each["what"] for each in found["differences"]] == ["end"] and found["unexplained"] == 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--engine", "nowhere"], "no vLLM in nowhere"),
        (["--new-tokens", "1"], "at least 2"),
        (["--gamma", "0"], "gamma is 0"),
        (["--new-tokens", "600"], "512"),
    ],
)
def test_impossible_options_are_refused(engines, tmp_path, monkeypatch, capsys, options, said):
    vllm, figures = tmp_path / "bin/vllm", tmp_path / "figures.json"
    vllm.parent.mkdir()
    vllm.write_text("#!/bin/sh\nexit 3\n", "utf-8")
    vllm.chmod(0o755)
    monkeypatch.setattr(sys, "argv", ["engines", "--engine", str(tmp_path), *options, "--json", str(figures)])
    with pytest.raises(SystemExit) as ended:
        engines.main()
    assert ended.value.code == 2 and said in capsys.readouterr().err and not figures.exists()
