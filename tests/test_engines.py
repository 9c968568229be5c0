"""Acceptance in every engine's words: a case by hand, real walks, vLLM's metrics both ways, synthetic settings."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from factories import make_speculation, toy_run
from hypothesis import given, settings
from hypothesis import strategies as st
from sweep_cases import toy_sweep

from mars_viz.analysis.counts import WARNING, AcceptanceCounts, position_rates, synthetic_settings, totals_by_step
from mars_viz.analysis.engine_counts import parse_counts
from mars_viz.analysis.engines import Within, acceptance_table, resampled
from mars_viz.analysis.intervals import Bootstrap, Method
from mars_viz.analysis.metrics import summary
from mars_viz.analysis.vllm_metrics import vllm_metrics
from mars_viz.errors import BadInput
from mars_viz.rules import rule_named
from mars_viz.run import Piece, Provenance, Run, Settings
from mars_viz.sweep import load_sweep
from mars_viz.walk import Answer, Ending, walk


def vllm_counts_of(text: str) -> list[AcceptanceCounts]:
    return [each.counts for each in parse_counts(text)]


def counts(accepted, drafted, completion=None, gamma=3, name="a", **more) -> AcceptanceCounts:
    total = sum(drafted)
    return AcceptanceCounts(name, np.array(accepted, int), np.array(drafted, int), total, gamma, completion, **more)


FIRST = counts([3, 0, 2, 1], [3, 3, 3, 0 + 2], completion=9)
SECOND = counts([1, 0], [3, 0], completion=3, name="b")
"""Ten emitted by the first, of which the end cut off one; the second ends with a step that drafted nothing."""

BY_HAND = {  # of both, length and rate; then the lengths of each
    "vLLM": (1 + 7 / 5, 7 / 14, 1 + 6 / 4, 1 + 1 / 1),
    "SGLang, scheduler": ((7 + 6) / 6, (7 + 6) / (6 * 4), 10 / 4, 3 / 2),
    "SGLang, per request": ((9 / 4 + 3 / 2) / 2, (6 / 12 + 1 / 6) / 2, 9 / 4, 3 / 2),
    "TensorRT-LLM": ((7 + 5) / 5, math.nan, 10 / 4, 2),
    "llama.cpp": (1 + 7 / 5, 7 / 14, 1 + 6 / 4, 2),
    "specdec_bench": ((9 / 4 + 3 / 2) / 2, math.nan, 9 / 4, 3 / 2),
    "SpecForge": ((9 / 4 + 3 / 2) / 2, math.nan, 9 / 4, 3 / 2),
    "EAGLE": (13 / 6, math.nan, 10 / 4, 3 / 2),
    "LM Studio": (math.nan, 7 / 12, math.nan, math.nan),
}


def test_the_table_by_hand():
    rows = acceptance_table([FIRST, SECOND])
    assert [row.definition.engine for row in rows] == list(BY_HAND)
    for row in rows:
        length, rate, *lengths = BY_HAND[row.definition.engine]
        assert (row.length, row.rate) == pytest.approx((length, rate), nan_ok=True), row.definition.engine
        assert row.lengths == pytest.approx(lengths, nan_ok=True), row.definition.engine


def test_rates_by_position_by_hand():
    rows = {row.definition.engine: row for row in acceptance_table([FIRST, SECOND])}
    # of 5 drafts, 4 had at least one token accepted, 2 two, 1 three
    assert rows["vLLM"].unconditional.tolist() == rows["llama.cpp"].unconditional.tolist() == [4 / 5, 2 / 5, 1 / 5]
    assert rows["specdec_bench"].conditional.tolist() == [4 / 5, 2 / 4, 1 / 2]
    assert rows["specdec_bench"].joint.tolist() == pytest.approx([4 / 5, 2 / 5, 1 / 5])
    assert rows["specdec_bench"].unconditional is None and rows["vLLM"].joint is None
    assert rows["EAGLE"].unconditional is None and rows["EAGLE"].conditional is None


def test_positions_that_were_never_reached():
    found = position_rates((counts([0, 1], [3, 3]),))
    assert found.unconditional.tolist() == found.joint.tolist() == [0.5, 0, 0]
    assert found.conditional.tolist()[:2] == [0.5, 0] and math.isnan(found.conditional[2])
    nothing = position_rates((counts([], []),))
    assert np.isnan([nothing.unconditional, nothing.conditional, nothing.joint]).all()


def test_a_request_without_steps_or_completion():
    empty = counts([], [], completion=0)
    assert all(math.isnan(row.length) and math.isnan(row.rate) for row in acceptance_table([empty]))
    rows = {row.definition.engine: row for row in acceptance_table([FIRST, empty])}
    assert rows["SpecForge"].length == 9 / 4  # SGLang reports nothing for the other
    rows = {row.definition.engine: row for row in acceptance_table([FIRST, counts([1], [3])])}
    assert math.isnan(rows["SpecForge"].length) and math.isnan(rows["LM Studio"].rate)
    assert rows["vLLM"].length == 1 + 7 / 5
    with pytest.raises(BadInput, match="Choose at least one"):
        acceptance_table([])


EOS, STOP = 7, 5
ALL, NONE = ([1, 2, 3], [1, 2, 3, 4]), ([1, 2, 3], [2, 2, 3, 4])
"""A block's drafted tokens, and the target's own after the prefix and after each of them: what agrees is accepted."""
ENDINGS = {  # blocks, limit; then steps, accepted tokens, tokens of the text, and those of them that were accepted
    "end of text in the middle of a block": ([ALL, ([1, EOS, 3], [1, EOS, 3, 4])], 99, (2, 3 + 3, 4 + 2, 3 + 2)),
    "stop string in the middle of a block": ([NONE, ([1, STOP, 3], [1, STOP, 3, 4])], 99, (2, 0 + 3, 1 + 2, 0 + 2)),
    "limit in the middle of a block": ([ALL, ([1, 2, 3], [1, 2, 4, 4])], 5, (2, 3 + 2, 4 + 1, 3 + 1)),
    "end of text as the bonus": ([([1, 2, 3], [1, 2, 3, EOS])], 99, (1, 3, 4, 3)),
    "end of text as the first token": ([([EOS, 1, 2], [EOS, 1, 2, 3])], 99, (1, 3, 1, 1)),
    "nothing accepted": ([NONE, ([1, 2, 3], [EOS, 2, 3, 4])], 99, (2, 0, 1 + 1, 0)),
    "all accepted": ([ALL, ALL], 8, (2, 3 + 3, 4 + 4, 3 + 3)),
    "limit before the bonus": ([ALL], 3, (1, 3, 3, 3)),
}
AT_ENDINGS = {  # of all of them together: 13 steps, 29 of 39 accepted, 32 tokens, 24 of them accepted; length and rate
    "vLLM": (1 + 29 / 13, 29 / 39),
    "SGLang, scheduler": ((29 + 13) / 13, (29 + 13) / (13 * 4)),
    "SGLang, per request": (
        (6 / 2 + 3 / 2 + 5 / 2 + 4 + 1 + 2 / 2 + 8 / 2 + 3) / 8,
        (6 / 6 + 3 / 6 + 5 / 6 + 3 / 3 + 3 / 3 + 0 + 6 / 6 + 3 / 3) / 8,
    ),
    "TensorRT-LLM": ((29 + 13) / 13, math.nan),
    "llama.cpp": (1 + 29 / 13, 29 / 39),
    "specdec_bench": ((6 / 2 + 3 / 2 + 5 / 2 + 4 + 1 + 2 / 2 + 8 / 2 + 3) / 8, math.nan),
    "SpecForge": ((6 / 2 + 3 / 2 + 5 / 2 + 4 + 1 + 2 / 2 + 8 / 2 + 3) / 8, math.nan),
    "EAGLE": ((29 + 13) / 13, math.nan),
    "LM Studio": (math.nan, 24 / 32),
}
SHARES = (5 / 6, 2 / 3, 4 / 5, 3 / 4, 1, 0, 3 / 4, 1)
"""LM Studio's of each ending alone; above 3 / 4 only where a block ends the text without its last token."""


class Script:
    """Drafts these blocks, one after another, and knows the target's own tokens."""

    def __init__(self, blocks):
        self.blocks = iter(blocks)

    def speculate(self, prefixes):
        drafted, own = next(self.blocks)
        rows = np.full((len(own), 8), -20.0)
        rows[np.arange(len(own)), own] = 10.0
        return [Answer(make_speculation(rows, np.zeros((len(drafted), 8)), drafted, start=len(prefixes[0])))]


def ended(name):
    blocks, limit, _ = ENDINGS[name]
    pieces = {token: Piece(f" w{token}".encode()) for token in range(8)}
    ending = Ending(frozenset({EOS}), limit, (f"w{STOP}".encode(),), pieces)
    rounds = tuple(walk(Script(blocks), rule_named("strict"), None, (1,), ending))
    return Run(Settings(rule="strict", gamma=3, max_new_tokens=limit), Provenance(), (1,), rounds, pieces, title=name)


def acceptance_counts(run):
    """At its own dial, from its records."""
    drafted = np.array([len(round_.speculation) for round_ in run.rounds], np.int64)
    kept = np.array([len(round_.decision.kept) for round_ in run.rounds], np.int64)
    total, completion = int(drafted.sum()), len(run.token_ids)
    return AcceptanceCounts(run.title or "run", kept, drafted, total, run.settings.gamma, completion)


@pytest.mark.parametrize("name", ENDINGS)
def test_what_a_text_holds_of_what_was_accepted_however_it_ends(name):
    run = ended(name)
    found = acceptance_counts(run)
    assert (found.steps, found.accepted_total, found.completion_tokens, found.reached_total) == ENDINGS[name][2]
    assert found.reached_total == sum(round_.kept for round_ in run.rounds)
    assert found.drafted_total == 3 * found.steps
    by_step = totals_by_step(found)
    assert by_step.reached.tolist() == [round_.kept for round_ in run.rounds]
    assert by_step.completion.tolist() == [len(round_.token_ids) for round_ in run.rounds]
    unordered = replace(found, accepted=np.sort(found.accepted), ordered=False)
    assert unordered.reached_total == found.reached_total  # as sweeps keep it


def test_every_definition_over_every_ending_by_hand():
    requests = [acceptance_counts(ended(name)) for name in ENDINGS]
    rows = {row.definition.engine: row for row in acceptance_table(requests)}
    assert list(rows) == list(AT_ENDINGS)
    for engine, row in rows.items():
        assert (row.length, row.rate) == pytest.approx(AT_ENDINGS[engine], nan_ok=True), engine
        for value, within in ((row.length, row.length_within), (row.rate, row.rate_within)):
            assert math.isnan(value) or within.interval.low <= value <= within.interval.high, engine
    for engine in ("vLLM", "llama.cpp"):  # 3 of 13 steps accepted nothing, 1 two, 9 three
        assert rows[engine].unconditional.tolist() == [10 / 13, 10 / 13, 9 / 13]
    assert rows["specdec_bench"].conditional.tolist() == [10 / 13, 1, 9 / 10]
    assert rows["LM Studio"].rate_within.interval.high <= 1
    alone = [acceptance_table([request])[-1].rate for request in requests]
    assert alone == pytest.approx(SHARES)


def test_a_share_of_the_output_is_a_share_at_every_dial_of_a_sweep(tmp_path):
    for _ in toy_sweep(tmp_path / "sweep", 8):
        pass
    result = load_sweep(tmp_path / "sweep")
    for dial in (result.plan.low, 0.7, 0.9, result.plan.high):
        requests = result.acceptance(dial)
        rows = result.rows(np.array([dial]))[:, 0]
        assert [each.reached_total for each in requests] == result.lines["kept"][rows].tolist()
        within = acceptance_table(requests)[-1].rate_within.interval
        assert 0 <= within.low <= within.estimate <= within.high <= 1


def test_of_a_response_the_prefills_token_is_no_steps():
    metrics = vllm_metrics(counts([1, 3], [3, 3]))
    for completion, reached in ((1 + 2 + 4, 4), (1 + 2 + 3, 4), (1 + 2 + 2, 3), (1 + 2 + 1, 2)):
        response = {"usage": {"completion_tokens": completion}, "metrics": {"speculative_decoding": metrics}}
        (found,) = vllm_counts_of(json.dumps(response))
        assert found.reached_total == reached
        assert acceptance_table([found])[-1].rate == reached / completion


def total(requests, name):
    return sum(getattr(request, name) for request in requests)


def resampled_by_hand(requests, groups, value, how):
    """Percentile ends of `value` of requests, from as many draws of groups of them."""
    rng = np.random.default_rng(11)
    drawn = [
        [requests[place] for group in rng.integers(len(groups), size=len(groups)) for place in groups[group]]
        for _ in range(1500)
    ]
    values = [value(tuple(each)) for each in drawn]
    return np.quantile(values, [(1 - how.confidence) / 2, (1 + how.confidence) / 2])


def many():
    """Forty requests of different lengths, some of whose texts lack their last tokens."""
    rng = np.random.default_rng(5)
    for place, steps in enumerate(rng.integers(2, 30, 40)):
        accepted = rng.integers(0, 4, steps)
        yield counts(accepted, [3] * steps, completion=int(accepted.sum() + steps - place % 2), name=f"{place}")


MANY = tuple(many())
BY_COUNTS = {  # of definitions, from the counts themselves
    (0, "length"): lambda each: 1 + total(each, "accepted_total") / total(each, "steps"),
    (1, "rate"): lambda each: 1 / 4 + total(each, "accepted_total") / (4 * total(each, "steps")),
    (2, "length"): lambda each: np.mean([r.completion_tokens / r.steps for r in each]),
    (2, "rate"): lambda each: np.mean([r.accepted_total / (3 * r.steps) for r in each]),
    (8, "rate"): lambda each: total(each, "accepted_total") / total(each, "completion_tokens"),
}
PERCENTILE = Bootstrap(method=Method.PERCENTILE)


@pytest.mark.parametrize("turns", [1, 4])
def test_every_figure_has_the_interval_of_requests_drawn_by_hand(turns):
    units = None if turns == 1 else np.arange(len(MANY)) // turns
    rows = acceptance_table(MANY, units=units, how=PERCENTILE)
    groups = [range(first, first + turns) for first in range(0, len(MANY), turns)]
    for row in rows:
        for name in ("length", "rate"):
            within = getattr(row, f"{name}_within")
            assert (within.interval is None) == (getattr(row.definition, name) is None), row.definition.engine
            assert within.why == ""
            if within.interval is not None:
                assert within.interval.estimate == pytest.approx(getattr(row, name))
                assert within.interval.low < getattr(row, name) < within.interval.high
    for (place, name), value in BY_COUNTS.items():
        low, high = resampled_by_hand(MANY, groups, value, PERCENTILE)
        found = getattr(rows[place], f"{name}_within").interval
        assert (found.low, found.high) == pytest.approx((low, high), abs=0.15 * (high - low))


def test_a_single_request_is_resampled_over_its_rounds_where_they_are_known():
    rng = np.random.default_rng(0)
    accepted = rng.integers(0, 4, 60)
    whole = int((accepted + 1).sum())
    for completion in (whole, whole - 2):  # its end cut off
        (request,) = [counts(accepted, [3] * 60, completion=completion)]
        rows = {row.definition.engine: row for row in acceptance_table([request])}
        for row in rows.values():
            for value, within in ((row.length, row.length_within), (row.rate, row.rate_within)):
                assert (within.interval is None) == math.isnan(value), row.definition.engine
                assert within.interval is None or within.interval.estimate == pytest.approx(value)
        found = rows["vLLM"].length_within.interval
        half = 1.96 * accepted.std() / math.sqrt(60)
        assert (found.low, found.high) == pytest.approx(
            (rows["vLLM"].length - half, rows["vLLM"].length + half), abs=0.1
        )
    assert "rounds" in resampled([request]) and resampled(MANY) == "requests"


def test_what_has_no_interval_says_why():
    rows = {row.definition.engine: row for row in acceptance_table([counts([1], [3], completion=2)])}
    assert rows["vLLM"].length_within == Within(None, "it takes at least two rounds")
    assert rows["vLLM"].rate == 1 / 3
    lost = AcceptanceCounts("a", np.array([0, 2, 3, 3]), None, 11, 3, 9, ordered=False)  # the order, and each draft
    rows = {row.definition.engine: row for row in acceptance_table([lost])}
    assert rows["vLLM"].length_within.interval is not None
    for within in (rows["vLLM"].rate_within, rows["SpecForge"].length_within, rows["LM Studio"].rate_within):
        assert within == Within(None, "of its rounds it is not known, or not defined")
    rows = {row.definition.engine: row for row in acceptance_table([*MANY, counts([1], [3])])}
    assert rows["SpecForge"].length_within == Within(None, "of some requests it is not known, or not defined")
    assert rows["vLLM"].length_within.interval is not None


def test_very_many_rounds_are_drawn_in_groups():
    many = AcceptanceCounts("a", np.repeat([0, 1, 2, 3], 50_000), None, 600_000, 3, None, ordered=False)
    found = acceptance_table([many])[0].length_within.interval
    half = 1.96 * many.accepted.std() / math.sqrt(many.steps)
    assert (found.low, found.high) == pytest.approx((2.5 - half, 2.5 + half), abs=0.2 * half)


def test_of_a_real_walk():
    run = toy_run(rule="mars", temperature=1.0, max_new_tokens=61)
    found, numbers = acceptance_counts(run), summary(run)
    expected = numbers.rounds, numbers.drafted, numbers.tokens
    assert (found.steps, found.drafted_total, found.completion_tokens) == expected
    rows = {row.definition.engine: row for row in acceptance_table([found])}
    assert rows["SGLang, per request"].length == rows["SpecForge"].length == run.tau
    untruncated = sum(len(round_.decision.kept) + 1 for round_ in run.rounds)
    assert rows["EAGLE"].length == untruncated / numbers.rounds >= run.tau
    assert rows["vLLM"].length == pytest.approx(rows["EAGLE"].length)  # every round drafted something
    assert np.sum(rows["vLLM"].unconditional) + 1 == pytest.approx(rows["vLLM"].length)


def test_contradictory_counts_are_refused():
    for accepted, drafted in (([4], [3]), ([-1], [3]), ([1], [4]), ([1, 1], [3])):
        with pytest.raises(BadInput, match="contradict"):
            counts(accepted, drafted)
    with pytest.raises(BadInput, match="contradict"):
        AcceptanceCounts("a", np.array([1]), None, 4, 3, None)
    with pytest.raises(BadInput, match="contradict"):
        counts([1], [3], completion=-1)


# vLLM's metrics

DOCUMENTED = {
    "mean_acceptance_length": 1.2325581395348837,
    "draft_acceptance_rate": 0.07751937984496124,
    "acceptance_histogram": [39, 1, 0, 3],
    "num_spec_steps": 43,
    "num_accepted_draft_tokens": 10,
    "num_draft_tokens": 129,
    "num_spec_tokens": 3,
}
"""The example of vLLM's documentation."""


def test_export_by_hand():
    assert vllm_metrics(FIRST) == {
        "mean_acceptance_length": 2.5,
        "draft_acceptance_rate": 6 / 11,
        "acceptance_histogram": [1, 1, 1, 1],
        "num_spec_steps": 4,
        "num_accepted_draft_tokens": 6,
        "num_draft_tokens": 11,
        "num_spec_tokens": 3,
        "per_step_accepted": [3, 0, 2, 1],
        "per_step_drafted": [3, 3, 3, 2],
    }
    assert vllm_metrics(SECOND)["per_step_accepted"] == [1]  # a step without a draft is none
    empty = vllm_metrics(counts([], []))
    assert (empty["num_spec_steps"], empty["mean_acceptance_length"], empty["acceptance_histogram"]) == (0, 1, [0] * 4)
    (found,) = vllm_counts_of(json.dumps(DOCUMENTED))
    assert (found.steps, found.accepted_total, found.ordered, found.completion_tokens) == (43, 10, False, None)
    assert vllm_metrics(found) == DOCUMENTED
    row = acceptance_table([found])[0]
    assert (row.length, row.rate) == (DOCUMENTED["mean_acceptance_length"], DOCUMENTED["draft_acceptance_rate"])
    response = {"id": "c", "usage": {"completion_tokens": 10}, "metrics": {"speculative_decoding": vllm_metrics(FIRST)}}
    for text in (json.dumps(response) + "\n\n" + json.dumps(DOCUMENTED), json.dumps([response, DOCUMENTED])):
        first, second = vllm_counts_of(text)
        assert (first.name, first.completion_tokens, first.ordered, second.name) == ("c", 10, True, "request 2")


@st.composite
def any_counts(draw):
    gamma = draw(st.integers(1, 5))
    drafted = draw(st.lists(st.integers(0, gamma), max_size=12))
    accepted = [draw(st.integers(0, most)) for most in drafted]
    return counts(accepted, drafted, completion=draw(st.none() | st.integers(0, 99)), gamma=gamma)


@settings(max_examples=20)
@given(any_counts())
def test_written_and_read_again(found):
    (again,) = vllm_counts_of(json.dumps(vllm_metrics(found), allow_nan=False))
    drafts = found.drafted > 0
    assert again.accepted.tolist() == found.accepted[drafts].tolist()
    assert again.drafted.tolist() == found.drafted[drafts].tolist()
    assert vllm_metrics(again) == vllm_metrics(found)


@settings(max_examples=12)
@given(st.lists(any_counts(), min_size=1, max_size=4))
def test_the_rates_add_up_to_the_length(requests):
    rows = {row.definition.engine: row for row in acceptance_table(requests)}
    assert np.nansum(rows["vLLM"].unconditional) + 1 == pytest.approx(rows["vLLM"].length, nan_ok=True) or not sum(
        each.drafts for each in requests
    )
    assert rows["specdec_bench"].joint == pytest.approx(rows["vLLM"].unconditional, nan_ok=True)


WRONG = [
    ({"num_spec_steps": 42}, "does not add up to num_spec_steps"),
    ({"num_spec_steps": -1}, "num_spec_steps is no count"),
    ({"num_spec_steps": True}, "num_spec_steps is no count"),
    ({"num_spec_steps": 1.5}, "num_spec_steps is no count"),
    ({"num_spec_steps": 10**12, "acceptance_histogram": [10**12, 0, 0, 0]}, "above 5000000"),
    ({"num_spec_tokens": 10**9}, "above 4096"),
    ({"num_spec_tokens": None}, "num_spec_tokens is no count"),
    ({"acceptance_histogram": [39, 1, 3]}, "num_spec_tokens . 1"),
    ({"acceptance_histogram": None}, "num_spec_tokens . 1"),
    ({"acceptance_histogram": [39, 1, 0, "3"]}, "no list of counts"),
    ({"num_accepted_draft_tokens": 11}, "not what the steps accepted"),
    ({"num_draft_tokens": 130}, "num_draft_tokens does not fit"),
    ({"num_draft_tokens": 9}, "num_draft_tokens does not fit"),
    ({"mean_acceptance_length": 2.0}, "mean_acceptance_length contradicts"),
    ({"draft_acceptance_rate": "much"}, "draft_acceptance_rate contradicts"),
    ({"per_step_accepted": [3, 3, 3]}, "num_spec_steps entries"),
    ({"per_step_accepted": [4] * 43}, "num_spec_steps entries"),
    ({"per_step_accepted": [0] * 43}, "no such histogram"),
    ({"per_step_accepted": [3, 3, 3, 1] + [0] * 39, "per_step_drafted": [3] * 42}, "does not fit the steps"),
    ({"per_step_accepted": [3, 3, 3, 1] + [0] * 39, "per_step_drafted": [2] * 43}, "does not add up"),
    (
        {"per_step_accepted": [3, 3, 3, 1] + [0] * 39, "per_step_drafted": [2] + [3] * 42, "num_draft_tokens": 128},
        "more than it drafted",
    ),
]


@pytest.mark.parametrize(("change", "reason"), WRONG, ids=range(len(WRONG)))
def test_metrics_that_contradict_themselves(change, reason):
    with pytest.raises(BadInput, match=reason) as caught:
        vllm_counts_of(json.dumps([DOCUMENTED, DOCUMENTED | change]))
    assert "request 2" in str(caught.value) and "Export it again" in str(caught.value)


def test_what_is_no_file_of_metrics():
    cases = {
        b"{": "Line 1 is no JSON",
        b"[]": "no metrics in it",
        b"": "no metrics in it",
        b"3": "is no JSON",
        b'{"metrics": null}': "no counts of speculative decoding",
        b"[" * 10**5: "is no JSON",
        b'{"usage": {"completion_tokens": -1}, "metrics": {"speculative_decoding": {"num_spec_steps": 0}}}': "no count",
    }
    for data, reason in cases.items():
        with pytest.raises(BadInput, match=reason):
            vllm_counts_of(data.decode())


def test_synthetic_settings_by_hand():
    found = synthetic_settings((FIRST, SECOND))
    assert (found.acceptance_length, found.rates) == (2.4, (0.8, 0.4, 0.2))
    assert json.loads(found.vllm) == {
        "num_speculative_tokens": 3,
        "rejection_sample_method": "synthetic",
        "synthetic_acceptance_rates": [0.8, 0.4, 0.2],
    }
    assert found.sglang.splitlines()[0] == "SGLANG_SIMULATE_ACC_LEN=2.4"
    assert found.tensorrt_llm.startswith("TLLM_SPEC_DECODE_FORCE_NUM_ACCEPTED_TOKENS=1.4")
    assert found.warning == WARNING and "throughput only" in WARNING


def test_synthetic_settings_at_the_ends():
    whole = synthetic_settings((counts([3, 1], [3, 3]),))
    assert whole.tensorrt_llm == "TLLM_SPEC_DECODE_FORCE_NUM_ACCEPTED_TOKENS=2"
    assert "cannot" in synthetic_settings((counts([0], [3]),)).tensorrt_llm
    with pytest.raises(BadInput, match="Nothing was drafted"):
        synthetic_settings((counts([], []),))


@settings(max_examples=20)
@given(any_counts())
def test_synthetic_rates_never_rise_and_make_the_length(found):
    if found.drafts:
        made = synthetic_settings((found,))
        assert all(a >= b for a, b in zip(made.rates, made.rates[1:], strict=False))
        assert 1 + sum(made.rates) == pytest.approx(made.acceptance_length, abs=1e-3)
