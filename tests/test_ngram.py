"""Prompt lookup: what it drafts, and that everything that decodes takes it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import mars_viz
from mars_viz import cli
from mars_viz.demo import DRAFTER, TARGET
from mars_viz.dialmap import Span
from mars_viz.errors import BadInput
from mars_viz.multi_rule_walk import Stand
from mars_viz.race.making import Racing
from mars_viz.record_map import Mapping
from mars_viz.record_rule_walks import Walking
from mars_viz.recording import Recording, record_all
from mars_viz.rules import RULES, rule_named
from mars_viz.run import Settings
from mars_viz.runfiles import load_run
from mars_viz.speculators.autoregressive import decode_alone
from mars_viz.speculators.backend import Backend
from mars_viz.speculators.costs import Measuring
from mars_viz.speculators.drafters.ngram import NgramDrafter, latest
from mars_viz.speculators.loading import load_backend
from mars_viz.speculators.names import Ngram, drafter_for

PROMPT = "Add 58 and 67.\nAdd 58 and 67.\nAdd"
PREFIXES = [(1, 2, 3, 9, 1, 2, 3), (5, 6, 7), (4, 4, 4), (8,), (1, 2, 7, 3, 2, 8, 3, 1, 2)]


@pytest.fixture(scope="module")
def backend() -> Backend:
    return load_backend(drafter="ngram:n=3", device="cpu", dtype="float32")


def test_it_drafts_what_followed_the_latest_place_of_the_longest_known_suffix() -> None:
    drafter = NgramDrafter(3, torch.device("cpu"))
    draft = drafter.draft(PREFIXES, 4)
    assert draft.lengths is not None and draft.logits is None
    drafted = [tokens[:length] for tokens, length in zip(draft.tokens.tolist(), draft.lengths, strict=True)]
    assert drafted == [[9, 1, 2, 3], [], [4], [], [7, 3, 2, 8]]
    assert drafter.draft([(5, 6)], 4).tokens.shape == (1, 0)


@given(st.lists(st.integers(0, 2), min_size=1, max_size=24), st.integers(1, 4))
def test_no_longer_or_later_place_is_missed(tokens: list[int], n: int) -> None:
    prefix, found = tuple(tokens), latest(tuple(tokens), n)
    ends = {
        (length, end)
        for length in range(1, n + 1)
        for end in range(length, len(prefix))
        if prefix[end - length : end] == prefix[-length:]
    }
    assert found == (max(ends)[1] if ends else len(prefix))


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_strict_writes_what_the_target_writes(backend: Backend, temperature: float) -> None:
    settings = Settings(rule="strict", temperature=temperature, gamma=5, max_new_tokens=60)
    run = Recording(backend, PROMPT, settings).finish()
    assert run.token_ids == decode_alone(backend, run.prompt_ids, settings).token_ids
    lengths = {len(round_.speculation) for round_ in run.rounds}
    assert 0 in lengths and 5 in lengths and run.tau > 1.1
    assert (run.provenance.drafter, run.provenance.drafter_revision) == ("ngram:n=3", "ngram:n=3")
    assert run.provenance.batching.startswith("bit for bit")


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_its_q_is_one_at_the_drafted_token(backend: Backend, temperature: float) -> None:
    run = Recording(backend, PROMPT, Settings(rule="strict", temperature=temperature, max_new_tokens=30)).finish()
    speculation = max((round_.speculation for round_ in run.rounds), key=len)
    assert len(speculation) == 6 and not speculation.sampled
    np.testing.assert_array_equal(speculation.q, 1)
    np.testing.assert_array_equal(speculation.draft_ids[:, 0], speculation.tokens)
    np.testing.assert_allclose(speculation.total_variation, 1 - speculation.p, atol=1e-5)
    np.testing.assert_allclose(speculation.kl_qp, -np.log(speculation.p), rtol=1e-4, atol=1e-6)
    m = (1 + speculation.p.astype(np.float64)) / 2
    js = 0.5 * ((1 - speculation.p) * np.log(2) + speculation.p * np.log(speculation.p / m) - np.log(m))
    np.testing.assert_allclose(speculation.js, js, atol=1e-5)


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_judges_its_drafts_or_says_why_not(backend: Backend, rule: str, tmp_path: Path) -> None:
    for temperature in (0.0, 0.7):
        settings = Settings(rule=rule, temperature=temperature, max_new_tokens=24)
        try:
            run = Recording(backend, PROMPT, settings).finish()
        except BadInput as error:
            assert temperature == 0.7 or "temperature" in str(error)
            continue
        again = mars_viz.load_run(run.save(tmp_path / f"{temperature}"))
        assert again.token_ids == run.token_ids and len(again.to_frame()) == len(run.to_frame())


def test_maps_batches_walks_races_and_costs_take_it(backend: Backend) -> None:
    settings = Settings(gamma=4, max_new_tokens=24)
    run = Recording(backend, PROMPT, settings).finish()
    together = list(record_all(backend, [PROMPT, "Once upon a time", PROMPT], settings, batch=3))
    assert together[0].token_ids == together[2].token_ids == run.token_ids
    made = Mapping(backend, PROMPT, settings, Span(0.5, 1.0, (4,))).finish()
    assert made.complete
    for low in (0.5, 0.77, 1.0):
        alone = Recording(backend, PROMPT, Settings(gamma=4, max_new_tokens=24, dial=low)).finish()
        assert made.at(low).token_ids == alone.token_ids
    *_, last = Walking(backend, run, [Stand(rule_named("strict"), None), Stand(rule_named("mars"), 0.9)])
    assert last.walks[1].token_ids == run.token_ids
    race = Racing(backend, PROMPT, settings, turns=1).finish()
    assert race.relaxed.token_ids == run.token_ids
    measuring = Measuring(backend, 2, seconds=0.1)
    for _ in measuring:
        pass
    assert measuring._found is not None and measuring._found.drafter == "ngram:n=3"


def test_the_command_takes_it_and_a_target_alone_gets_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    common = ["--prompt", PROMPT, "--max-new-tokens", "8", "--device", "cpu"]
    assert cli.main(["record", *common, "--drafter", "ngram", "--out", str(tmp_path / "one")]) == 0
    assert load_run(tmp_path / "one").provenance.drafter == "ngram:n=3" and not capsys.readouterr().err
    assert cli.main(["record", *common, "--target", str(TARGET), "--out", str(tmp_path / "two")]) == 0
    assert load_run(tmp_path / "two").provenance.drafter == "ngram:n=3"
    assert "No drafter is named, so prompt lookup drafts (ngram:n=3)." in capsys.readouterr().err


@pytest.mark.parametrize(
    ("drafter", "said"),
    [
        ("ngram:n=0", "from 1 to 16"),
        ("ngram:n=2.5", "whole number"),
        ("ngram:x=1", "has no setting 'x'; write ngram:n=3"),
        ("ngram:", "sets nothing of the drafter ngram"),
        ("ngram:n=1,n=2", "set twice"),
    ],
)
def test_settings_that_it_does_not_have_are_refused_before_anything_is_loaded(
    drafter: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(BadInput, match=said):
        mars_viz.record(PROMPT, drafter=drafter)
    out = tmp_path / "run"
    assert cli.main(["record", "--prompt", "a", "--drafter", drafter, "--out", str(out)]) == 2
    assert said.split("'")[0].split(";")[0] in capsys.readouterr().err and not out.exists()


def test_what_drafts_for_which_target() -> None:
    assert drafter_for(None, None) == "" and drafter_for(TARGET, None) == Ngram(3)
    assert drafter_for(None, "ngram:n=2") == Ngram(2) and drafter_for(TARGET, DRAFTER) == str(DRAFTER)
