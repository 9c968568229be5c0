"""The seam: a target and a drafter of any kind, held together by a backend."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from factories import make_speculation

import mars_viz
from mars_viz import cli
from mars_viz.dialmap import Span
from mars_viz.errors import BadInput
from mars_viz.multi_rule_walk import Stand
from mars_viz.recording import Mapping, Recording, Walking
from mars_viz.records import COLUMNS
from mars_viz.rules import RULES, rule_named
from mars_viz.run import Settings
from mars_viz.run_with_map import mapped
from mars_viz.speculators.autoregressive import decode_alone
from mars_viz.speculators.backend import Backend, Part
from mars_viz.speculators.drafters.ngram import NgramDrafter
from mars_viz.ui import navigation
from tests import tabs
from tests.tables import CPU, TableDrafter, TopTarget, table_backend, tables

SETTINGS = Settings(gamma=4, max_new_tokens=24)


def topped(count: int = 16, spoil: float | None = None) -> Backend:
    """The toy backend with a target that gives its best tokens alone."""

    class Spoiled(TopTarget):
        def score(self, prefixes, tokens):  # type: ignore[no-untyped-def]
            found = super().score(prefixes, tokens)
            if spoil is not None:
                found.logits[0, 0, 1] = spoil
            return found

    target, _ = tables()
    return replace(table_backend(), target=Part("top", lambda: Spoiled(target, count)))


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_a_table_gives_the_record_that_numpy_gives(temperature: float) -> None:
    settings = Settings(gamma=5, temperature=temperature, top_p=0.9, top_k=12, seed=3)
    target, drafter = tables()
    (answer,) = table_backend().speculator(settings).speculate([(4, 9, 7)])
    ours = answer.speculation
    path = [7, *ours.tokens.tolist()]
    how = {"start": 3, "temperature": temperature, "seed": 3, "top_k": 12, "top_p": 0.9}
    theirs = make_speculation(target[path], drafter[path[:-1]], path[1:], **how)  # type: ignore[arg-type]
    for field in COLUMNS.values():
        one, other = getattr(ours, field.name), getattr(theirs, field.name)
        if field.name != "coins" or temperature:
            np.testing.assert_allclose(one, other, rtol=2e-4, atol=2e-5, err_msg=field.name)


def test_best_tokens_decode_map_and_walk_as_complete_laws_do() -> None:
    top, complete = topped(), table_backend()
    run = Recording(top, "a prompt", SETTINGS).finish()
    assert run.token_ids and run.token_ids == Recording(complete, "a prompt", SETTINGS).finish().token_ids
    assert np.isnan(run.rounds[0].speculation.logsumexp).all()
    span = Span(0.5, 1.0, (4,))
    ours, theirs = (Mapping(each, "a prompt", SETTINGS, span).finish() for each in (top, complete))
    assert [each.token_ids for each in ours.segments] == [each.token_ids for each in theirs.segments]
    *_, last = Walking(top, run, [Stand(rule_named("strict"), None), Stand(rule_named("vllm-thinking"), 0.7)])
    assert last.walks[0].token_ids == decode_alone(top, run.prompt_ids, SETTINGS).token_ids
    (answer,) = top.speculator(SETTINGS).speculate([(1, 2, 3)])
    lacking = {name for name, rule in RULES.items() if rule.lacks(answer.speculation)}
    assert lacking and {"strict", "mars", "mars-margin", "vllm-thinking"}.isdisjoint(lacking)
    assert {name for name in ("typical", "lenience") if "logsumexp" in RULES[name].needs} <= lacking


@pytest.mark.parametrize(
    ("backend", "settings", "reason"),
    [
        (topped(1), SETTINGS, "1 candidates"),
        (topped(spoil=np.nan), SETTINGS, "NaN"),
        (topped(), replace(SETTINGS, temperature=0.7), "temperature 0"),
    ],
)
def test_a_target_with_too_few_or_bad_logits_is_refused(backend: Backend, settings: Settings, reason: str) -> None:
    with pytest.raises(BadInput, match=reason):
        Recording(backend, "a prompt", settings).finish()
    if settings.temperature:
        with pytest.raises(BadInput, match=reason):
            decode_alone(backend, (1, 2), settings)


@pytest.mark.parametrize("temperature", [0.0, 0.9])
def test_a_drafter_may_know_a_part_of_the_vocabulary(temperature: float) -> None:
    """It drafts of its own tokens; strict writes the target's text all the same."""
    known = torch.arange(0, 32, 2)
    target, drafter = tables()
    settings = replace(SETTINGS, rule="strict", temperature=temperature)
    part = Part("even", lambda settings: TableDrafter(drafter[:, known.numpy()], settings, known))
    run = Recording(replace(table_backend(), drafter=part), "a prompt", settings).finish()
    assert run.token_ids == Recording(table_backend(), "a prompt", settings).finish().token_ids
    drafted = np.concatenate([round_.speculation.tokens for round_ in run.rounds])
    assert not (drafted % 2).any()
    divergence = np.concatenate([round_.speculation.kl_pq for round_ in run.rounds])
    assert np.isinf(divergence).all(), "half of p has no support in q"
    q = np.concatenate([round_.speculation.q for round_ in run.rounds])
    assert (q > 0).all() and (q <= 1).all()


def test_prompts_may_be_token_ids(pair: Backend) -> None:
    words = Recording(pair, "Once upon a time", SETTINGS).finish()
    ids = Recording(pair, list(words.prompt_ids), SETTINGS).finish()
    assert ids.token_ids == words.token_ids and ids.prompt.strip() == "Once upon a time"
    made = mars_viz.dial_map(words.prompt_ids, backend=pair, gamma=4, max_new_tokens=8, low=0.9)
    assert made.frame.prompt_ids == words.prompt_ids
    for wrong, reason in (([], "empty"), ([1, "a"], "no token id"), ([1 << 30], "outside"), ([True], "no token id")):
        with pytest.raises(BadInput, match=reason):
            Recording(pair, wrong, SETTINGS)  # type: ignore[arg-type]


PAGES = tuple(f"pages/{name}.py" for name in ("explore", "rules", "compare", "live"))


def test_pages_and_the_report_open_runs_with_few_logits_and_blocks_of_any_length(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small_reports: None
) -> None:
    lookup = replace(topped(), drafter=Part("ngram:n=1", lambda settings: NgramDrafter(1, CPU)))
    run = Recording(lookup, "a prompt", replace(SETTINGS, max_new_tokens=40), title="One").finish()
    dial_map = Mapping(lookup, "a prompt", run.settings, Span(0.5, 1.0, (2, 4))).finish()
    mapped_run = mapped(run, dial_map)
    mapped_run.save(tmp_path / "a-run")
    for name in ("MARS_VIZ_RUNS", "MARS_VIZ_SAMPLES"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.setattr(navigation, "through_app", lambda: None)
    for page in PAGES:
        tab = tabs.opened(page, run="a-run")
        assert not tab.exception and not [each.value for each in tab.error], page
    out = tmp_path / "report.html"
    assert cli.main(["report", str(tmp_path / "a-run"), "--out", str(out)]) == 0 and out.stat().st_size > 10_000
    rows = sum(len(round_.speculation) + (round_.emission is not None) for round_ in run.rounds)
    assert len(mapped_run.to_frame()) == rows
