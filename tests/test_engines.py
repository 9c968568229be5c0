"""Acceptance by every engine's definition: by hand, of walks, vLLM's metrics both ways, synthetic settings."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from factories import make_speculation
from hypothesis import given, settings
from hypothesis import strategies as st

from mars_viz.analysis import engines
from mars_viz.analysis.engine_counts import acceptance_records, vllm_metrics
from mars_viz.analysis.engine_file import read_file
from mars_viz.analysis.engines import AcceptanceCounts, acceptance_table, position_rates, synthetic_settings
from mars_viz.analysis.intervals import Bootstrap, Method
from mars_viz.errors import BadInput
from mars_viz.exploration import walk
from mars_viz.rules import rule_named
from mars_viz.run import Piece
from mars_viz.walk import Answer, Ending


def vllm_counts_of(value) -> list[AcceptanceCounts]:
    return [each for _, each in read_file(json.dumps(value, allow_nan=False)).requests]


def table(requests, **how):
    return {row.definition.engine: row for row in acceptance_table(requests, **how)}


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
    rows = table([FIRST, SECOND])
    assert list(rows) == list(BY_HAND)
    for engine, row in rows.items():
        alone = [table([each])[engine].length for each in (FIRST, SECOND)]
        assert (row.length, row.rate, *alone) == pytest.approx(BY_HAND[engine], nan_ok=True), engine
    # of 5 drafts, 4 had at least one token accepted, 2 two, 1 three
    assert rows["vLLM"].unconditional.tolist() == rows["llama.cpp"].unconditional.tolist() == [4 / 5, 2 / 5, 1 / 5]
    assert rows["specdec_bench"].conditional.tolist() == [4 / 5, 2 / 4, 1 / 2]
    assert rows["specdec_bench"].joint.tolist() == pytest.approx([4 / 5, 2 / 5, 1 / 5])
    assert rows["specdec_bench"].unconditional is None and rows["vLLM"].joint is None
    assert rows["EAGLE"].unconditional is None and rows["EAGLE"].conditional is None


def test_what_is_undefined_is_nan():
    unconditional, conditional, joint = position_rates((counts([0, 1], [3, 3]),))
    assert unconditional.tolist() == joint.tolist() == [0.5, 0, 0]
    assert conditional.tolist()[:2] == [0.5, 0] and math.isnan(conditional[2])
    assert np.isnan(position_rates((counts([], []),))).all()
    empty = counts([], [], completion=0)
    assert all(math.isnan(row.length) and math.isnan(row.rate) for row in acceptance_table([empty]))
    assert table([FIRST, empty])["SpecForge"].length == 9 / 4  # SGLang reports nothing for the other
    rows = table([FIRST, counts([1], [3])])
    assert math.isnan(rows["SpecForge"].length) and math.isnan(rows["LM Studio"].rate)
    assert rows["vLLM"].length == 1 + 7 / 5
    with pytest.raises(BadInput, match="at least one"):
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
}


class Script:
    """Drafts these blocks, one after another, and knows the target's own tokens."""

    def __init__(self, blocks):
        self.blocks = iter(blocks)

    def speculate(self, prefixes):
        drafted, own = next(self.blocks)
        rows = np.full((len(own), 8), -20.0)
        rows[np.arange(len(own)), own] = 10.0
        return [Answer(make_speculation(rows, np.zeros((len(drafted), 8)), drafted, start=len(prefixes[0])))]


@pytest.mark.parametrize("name", ENDINGS)
def test_what_a_text_holds_of_what_was_accepted_however_it_ends(name):
    blocks, limit, expected = ENDINGS[name]
    pieces = {token: Piece(f" w{token}".encode()) for token in range(8)}
    ending = Ending(frozenset({EOS}), limit, (f"w{STOP}".encode(),), pieces)
    rounds = tuple(walk(Script(blocks), rule_named("strict"), None, (1,), ending))
    found = AcceptanceCounts.of_rounds("a", rounds, 3, sum(len(round_.token_ids) for round_ in rounds))
    assert (found.steps, found.accepted_total, found.completion_tokens, found.reached_total) == expected
    unordered = replace(found, accepted=np.sort(found.accepted), ordered=False)
    assert unordered.reached_total == found.reached_total  # as sweeps keep it
    rows = table([found])
    assert rows["LM Studio"].rate == expected[3] / expected[2]
    assert rows["EAGLE"].length == rows["vLLM"].length == pytest.approx(1 + expected[1] / expected[0])
    assert rows["SGLang, per request"].length == rows["SpecForge"].length == expected[2] / expected[0]
    for row in rows.values():
        for value, within in ((row.length, row.length_within), (row.rate, row.rate_within)):
            assert within.interval is None or within.interval.estimate == pytest.approx(value)


def test_of_a_response_the_prefills_token_is_no_steps():
    metrics = vllm_metrics(counts([1, 3], [3, 3]))
    for completion, reached in ((1 + 2 + 4, 4), (1 + 2 + 3, 4), (1 + 2 + 2, 3), (1 + 2 + 1, 2)):
        (found,) = vllm_counts_of({"usage": {"completion_tokens": completion}, "metrics": {"x": metrics}})
        assert found.reached_total == reached
        assert acceptance_table([found])[-1].rate == reached / completion


def total(requests, name):
    return sum(getattr(request, name) for request in requests)


LENGTHS = np.random.default_rng(5)
MANY = tuple(
    counts(accepted, [3] * len(accepted), completion=sum(accepted) + len(accepted) - place % 2)
    for place in range(40)
    for accepted in [LENGTHS.integers(0, 4, LENGTHS.integers(2, 30)).tolist()]
)
"""Requests of different lengths, some of whose texts lack their last token."""
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
    rows = acceptance_table(MANY, units=None if turns == 1 else np.arange(40) // turns, how=PERCENTILE)
    for row in rows:
        for name in ("length", "rate"):
            value, within = getattr(row, name), getattr(row, f"{name}_within")
            assert (within.interval is None) == (getattr(row.definition, name) is None), row.definition.engine
            assert within.why == ""
            if within.interval is not None:
                assert within.interval.low < value < within.interval.high
                assert within.interval.estimate == pytest.approx(value)
    rng = np.random.default_rng(11)
    drawn = [
        [MANY[group * turns + turn] for group in rng.integers(40 // turns, size=40 // turns) for turn in range(turns)]
        for _ in range(1000)
    ]
    ends = [(1 - PERCENTILE.confidence) / 2, (1 + PERCENTILE.confidence) / 2]
    for (place, name), value in BY_COUNTS.items():
        low, high = np.quantile([value(each) for each in drawn], ends)
        found = getattr(rows[place], f"{name}_within").interval
        assert (found.low, found.high) == pytest.approx((low, high), abs=0.15 * (high - low))


def test_what_has_no_interval_says_why():
    rows = table([counts([1], [3], completion=2)])
    assert rows["vLLM"].length_within.interval is None and "single request" in rows["vLLM"].length_within.why
    assert rows["vLLM"].rate == 1 / 3
    rows = table([*MANY, counts([1], [3])])
    assert rows["SpecForge"].length_within.interval is None and "requests" in rows["SpecForge"].length_within.why
    assert rows["vLLM"].length_within.interval is not None


DOCUMENTED = {  # the example of vLLM's documentation
    **{"mean_acceptance_length": 1.2325581395348837, "draft_acceptance_rate": 0.07751937984496124},
    **{"acceptance_histogram": [39, 1, 0, 3], "num_spec_steps": 43, "num_accepted_draft_tokens": 10},
    **{"num_draft_tokens": 129, "num_spec_tokens": 3},
}


def test_export_by_hand():
    assert vllm_metrics(FIRST) == {
        **{"mean_acceptance_length": 2.5, "draft_acceptance_rate": 6 / 11, "acceptance_histogram": [1, 1, 1, 1]},
        **{"num_spec_steps": 4, "num_accepted_draft_tokens": 6, "num_draft_tokens": 11, "num_spec_tokens": 3},
        **{"per_step_accepted": [3, 0, 2, 1], "per_step_drafted": [3, 3, 3, 2]},
    }
    assert vllm_metrics(SECOND)["per_step_accepted"] == [1]  # a step without a draft is none
    empty = vllm_metrics(counts([], []))
    assert (empty["num_spec_steps"], empty["mean_acceptance_length"], empty["acceptance_histogram"]) == (0, 1, [0] * 4)
    response = {"id": "c", "usage": {"completion_tokens": 10}, "metrics": {"speculative_decoding": vllm_metrics(FIRST)}}
    first, second = vllm_counts_of([response, DOCUMENTED])
    assert (first.name, first.completion_tokens, first.ordered, second.name) == ("c", 10, True, "request 2")
    assert (second.steps, second.accepted_total, second.ordered, second.completion_tokens) == (43, 10, False, None)
    assert vllm_metrics(second) == DOCUMENTED
    row = acceptance_table([second])[0]
    assert (row.length, row.rate) == (DOCUMENTED["mean_acceptance_length"], DOCUMENTED["draft_acceptance_rate"])


@st.composite
def any_counts(draw):
    gamma = draw(st.integers(1, 5))
    drafted = draw(st.lists(st.integers(0, gamma), max_size=12))
    accepted = [draw(st.integers(0, most)) for most in drafted]
    return counts(accepted, drafted, completion=draw(st.none() | st.integers(0, 99)), gamma=gamma)


@settings(max_examples=20)
@given(any_counts())
def test_metrics_are_read_as_written_and_rates_add_up_to_the_length(found):
    (again,) = vllm_counts_of(vllm_metrics(found))
    drafts = found.drafted > 0
    assert again.accepted.tolist() == found.accepted[drafts].tolist()
    assert again.drafted.tolist() == found.drafted[drafts].tolist()
    assert vllm_metrics(again) == vllm_metrics(found)
    written = acceptance_records([found, found])
    both = read_file(written)
    assert [engine for engine, _ in both.requests] == ["MARS Viz"] * 2 and "no rounds" in both.unread
    first, second = (each for _, each in both.requests)
    assert acceptance_records([first, second]) == written
    assert (first.accepted.tolist(), first.drafted.tolist()) == (again.accepted.tolist(), again.drafted.tolist())
    assert (first.name, first.gamma, first.completion_tokens) == (found.name, found.gamma, found.completion_tokens)
    rows = table([found])
    assert rows["specdec_bench"].joint == pytest.approx(rows["vLLM"].unconditional, nan_ok=True)
    if found.drafts:
        assert np.sum(rows["vLLM"].unconditional) + 1 == pytest.approx(rows["vLLM"].length)
        synthetic = synthetic_settings((found,))
        assert list(synthetic["rates"]) == sorted(synthetic["rates"], reverse=True)
        assert 1 + sum(synthetic["rates"]) == pytest.approx(synthetic["acceptance_length"], abs=1e-3)


SUMMARY = {  # a record as AIPerf writes it: its histogram is sparse, and unknown fields are left out
    **{"engine": "vllm", "mean_acceptance_length": 2.2, "draft_acceptance_rate": 0.4, "num_spec_steps": 5},
    **{"acceptance_histogram": {"0": 3, "3": 2}, "num_accepted_draft_tokens": 6},
    **{"num_draft_tokens": 15, "num_spec_tokens": 3, "completion_tokens": 12},
}
DETAILED = SUMMARY | {"per_step_accepted": [3, 0, 3, 0, 0], "per_step_drafted": [3, 3, 3, 3, 3]}
UNBOUNDED = {key: value for key, value in SUMMARY.items() if key != "num_spec_tokens"} | {"engine": "sglang"}


def test_records_of_aiperf():
    metrics = {"output_token_count": {"value": 12, "unit": "tokens"}}
    lines = [
        {"metadata": {"session_num": n, "x_request_id": f"r{n}"}, "metrics": metrics, "spec_decode_acceptance": each}
        for n, each in enumerate((SUMMARY, DETAILED, UNBOUNDED, DETAILED | {"num_spec_tokens": None}))
    ]
    lines.append({"metadata": {"session_num": 4}, "metrics": {}, "error": {"code": 500, "message": "busy"}})
    found = read_file("".join(json.dumps(line) + "\n" for line in lines))
    assert found.without == 1 and [engine for engine, _ in found.requests] == ["vLLM", "vLLM", "SGLang", "vLLM"]
    summary, detailed, sums, unbounded = (each for _, each in found.requests)
    assert (summary.name, summary.accepted.tolist(), summary.ordered) == ("r0", [0, 0, 0, 3, 3], False)
    assert detailed.accepted.tolist() == [3, 0, 3, 0, 0] and detailed.prefilled == 1 == unbounded.prefilled
    assert sums == engines.RequestTotals("r2", 6, 15, 5, None, 12) and unbounded.gamma == 3
    (line,) = acceptance_records([detailed]).splitlines()
    assert json.loads(line)["spec_decode_acceptance"] == DETAILED | {"engine": "mars_viz"}
    assert vllm_counts_of(SUMMARY)[0].accepted.tolist() == [0, 0, 0, 3, 3]  # a record by itself


def test_contradictory_records_of_aiperf_are_refused():
    histograms = ({"0": 3, "1": 1, "2": 1, "3": 1}, {"0": 4, "6": 1}, {"x": 1}, {"0": -1}, {"0": [5]}, [2, 1, 1, 1])
    changes = [{"acceptance_histogram": each} for each in histograms]
    changes += [{"num_draft_tokens": 5}, {"num_spec_tokens": 2}, {"num_spec_steps": 5.0}, {"completion_tokens": -1}]
    changes += [{"per_step_accepted": [3, 0, 2, 0]}, {"per_step_drafted": [2, 4, 3, 3, 3]}]
    for change in changes:
        with pytest.raises(BadInput, match="'request 1' contradict each other"):
            read_file(json.dumps(DETAILED | change))


STEPS = {"per_step_accepted": [3, 3, 3, 1] + [0] * 39}


MANY_STEPS = {"num_spec_steps": 10**12, "acceptance_histogram": [10**12, 0, 0, 0]}
CONTRADICTIONS = [
    *({"num_spec_steps": 42}, {"acceptance_histogram": [39, 1, 3]}, {"num_spec_steps": True}),
    *({"acceptance_histogram": [39, 1, 0, "3"]}, {"num_accepted_draft_tokens": 11}, {"num_draft_tokens": 130}),
    *({"per_step_accepted": [3, 3, 3]}, {"per_step_accepted": [0] * 43}),
    *(STEPS | {"per_step_drafted": [3] * 42}, STEPS | {"per_step_drafted": [2] * 43}),
]


def test_metrics_that_contradict_themselves():
    for change in CONTRADICTIONS:
        with pytest.raises(BadInput, match="'request 2' contradict"):
            vllm_counts_of([DOCUMENTED, DOCUMENTED | change])
    for change in (MANY_STEPS, {"num_spec_tokens": 10**9}):
        with pytest.raises(BadInput, match="more than 5,000,000 steps in it, or 4,096 tokens"):
            vllm_counts_of(DOCUMENTED | change)


def test_contradictory_counts_and_files_without_metrics_are_refused():
    wrong = [([4], [3], 1), ([-1], [3], 1), ([1], [4], 1), ([1, 1], [3], 1), ([1], [3], -1)]
    for accepted, drafted, completion in wrong:
        with pytest.raises(BadInput, match="contradict"):
            counts(accepted, drafted, completion)
    with pytest.raises(BadInput, match="contradict"):
        AcceptanceCounts("a", np.array([1]), None, 4, 3, None)
    for text, reason in (
        ("{", "Line 1 is no JSON"),
        ("[]", "no metrics"),
        ('{"metrics": null}', "no counts"),
        ("[" * 10**5, "is no JSON"),
        ('{"usage": {"completion_tokens": -1}, "metrics": {"a": {"num_spec_steps": 0}}}', "contradict"),
    ):
        with pytest.raises(BadInput, match=reason):
            read_file(text)


def test_synthetic_settings_by_hand():
    found = synthetic_settings((FIRST, SECOND))
    assert (found["acceptance_length"], found["rates"]) == (2.4, (0.8, 0.4, 0.2))
    method = {"rejection_sample_method": "synthetic", "synthetic_acceptance_rates": [0.8, 0.4, 0.2]}
    assert json.loads(found["vllm"]) == method | {"num_speculative_tokens": 3}
    assert found["sglang"].splitlines()[0] == "SGLANG_SIMULATE_ACC_LEN=2.4"
    assert found["tensorrt_llm"].startswith("TLLM_SPEC_DECODE_FORCE_NUM_ACCEPTED_TOKENS=1.4")
    whole = synthetic_settings((counts([3, 1], [3, 3]),))
    assert whole["tensorrt_llm"] == "TLLM_SPEC_DECODE_FORCE_NUM_ACCEPTED_TOKENS=2"
    assert "cannot" in synthetic_settings((counts([0], [3]),))["tensorrt_llm"]
    with pytest.raises(BadInput, match="Nothing was drafted"):
        synthetic_settings((counts([], []),))
