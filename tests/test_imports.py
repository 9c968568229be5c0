"""What engines tell of their own runs, read: counts, rounds with a bound, and with a log of drafts whole runs."""

from __future__ import annotations

import importlib.util
import json
import math
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from engine_files import Served, served
from tabs import opened, settled

from mars_viz import cli
from mars_viz.analysis.counts import AcceptanceCounts, RequestTotals
from mars_viz.analysis.definitions import Pooling
from mars_viz.analysis.draft_log import joined, parse_drafts, parse_log, prefix_key
from mars_viz.analysis.engine_counts import EngineRequest, parse_counts
from mars_viz.analysis.engine_file import EngineFile, read_file
from mars_viz.analysis.engines import EngineRow, acceptance_table
from mars_viz.analysis.served_rounds import parse_responses, rejection_bound
from mars_viz.demo.prompts import STORIES
from mars_viz.errors import BadInput
from mars_viz.imports import import_run
from mars_viz.records import Outcome
from mars_viz.rules import rule_named
from mars_viz.runfiles import load_run, save_run

PLUGIN = Path(__file__).parents[1] / "examples/vllm_draft_log/vllm_draft_log.py"


@pytest.fixture(scope="module")
def texts(pair):
    return [served(pair, prompt) for prompt in STORIES[:3]]


def responses(texts: list[Served], **how) -> str:
    return "".join(json.dumps(each.response(**how)) + "\n" for each in texts)


def test_counts_of_sglang():
    meta = {"completion_tokens": 8, "spec_verify_ct": 3, "spec_num_proposed_drafts": 12, "spec_num_correct_drafts": 5}
    (found,) = parse_counts(json.dumps({"meta_info": meta | {"spec_correct_drafts_histogram": [1, 0, 1, 1]}}))
    assert found.engine == "SGLang" and isinstance(found.counts, AcceptanceCounts)
    assert found.counts.accepted.tolist() == [0, 2, 3] and found.counts.gamma == 4 and not found.counts.ordered
    openai = {"choices": [{}], "usage": {"completion_tokens": 8}, "sglext": {"spec_tokens_details": meta}}
    (found,) = parse_counts(json.dumps(openai))
    assert found.counts == RequestTotals("request 1", 5, 12, 3, 4, 8)
    older = {"spec_verify_ct": 3, "spec_accept_token_num": 5, "spec_draft_token_num": 12, "completion_tokens": 8}
    assert parse_counts(json.dumps({"meta_info": older}))[0].counts == found.counts


def test_drafts_of_several_lengths_have_no_position():
    meta = {"spec_verify_ct": 2, "spec_num_proposed_drafts": 7, "spec_correct_drafts_histogram": [1, 0, 1]}
    (found,) = parse_counts(json.dumps({"meta_info": meta}))
    assert found.counts == RequestTotals("request 1", 2, 7, 2, None, None)


def test_counts_of_llama_cpp_and_tensorrt_llm():
    timings = {"predicted_n": 16, "draft_n": 12, "draft_n_accepted": 9, "predicted_ms": 4.0}
    (found,) = parse_counts(json.dumps({"content": "…", "timings": timings}))
    assert found.engine == "llama.cpp" and found.counts == RequestTotals("request 1", 9, 12, None, None, 16)
    told = {"total_accepted_draft_tokens": 6, "total_draft_tokens": 12, "acceptance_rate": 0.5}
    output = {"avg_decoded_tokens_per_iter": 2.5, "usage": {"completion_tokens": 10}}
    (found,) = parse_counts(json.dumps(output | {"request_perf_metrics": {"speculative_decoding": told}}))
    assert found.engine == "TensorRT-LLM" and found.counts == RequestTotals("request 1", 6, 12, 4, None, 10)


def test_what_an_engine_does_not_tell_stays_unknown():
    lines = [json.dumps({"timings": {"predicted_n": 16, "draft_n": 12, "draft_n_accepted": n}}) for n in (3, 9)]
    rows = {row.definition.engine: row for row in acceptance_table([e.counts for e in parse_counts("\n".join(lines))])}
    assert rows["llama.cpp"].rate == 0.5 and rows["vLLM"].rate_within.interval is not None
    assert math.isnan(rows["llama.cpp"].length) and math.isnan(rows["EAGLE"].length)
    assert math.isnan(rows["SGLang, per request"].length) and math.isnan(rows["LM Studio"].rate)
    (alone,) = [row for row in acceptance_table([parse_counts(lines[0])[0].counts]) if row.definition.engine == "vLLM"]
    assert alone.rate == 0.25 and "rounds" in alone.rate_within.why


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"meta_info": {"spec_verify_ct": 3, "spec_correct_drafts_histogram": [1, 1]}}, "does not add up"),
        ({"meta_info": {"spec_verify_ct": -1}}, "no count"),
        ({"meta_info": {"spec_verify_ct": 2, "spec_correct_drafts_histogram": ["x"]}}, "no list of counts"),
        (
            {
                "meta_info": {
                    "spec_verify_ct": 1,
                    "spec_num_proposed_drafts": 2,
                    "spec_correct_drafts_histogram": [0, 0, 0, 1],
                }
            },
            "more than it drafted",
        ),
        ({"timings": {"draft_n": 3, "draft_n_accepted": 9}}, "contradict"),
        ({"total_draft_tokens": 0, "avg_decoded_tokens_per_iter": 2.5}, "write zeros"),
        ({"text": "hello"}, "no counts of speculative decoding"),
        ({"meta_info": {"spec_verify_ct": 10**9, "spec_correct_drafts_histogram": [10**9]}}, "more than 5,000,000"),
    ],
)
def test_counts_that_cannot_be(value, said):
    with pytest.raises(BadInput, match=said):
        parse_counts(json.dumps(value))


LLAMA = {"choices": [{"index": 0, "message": {"content": "x"}}], "id": "c", "usage": {"completion_tokens": 16}}
VLLM = {
    "acceptance_histogram": [2, 2, 1, 1],
    "num_spec_steps": 6,
    "num_accepted_draft_tokens": 7,
    "num_draft_tokens": 11,
    "num_spec_tokens": 3,
}


def llama(drafted: int, accepted: int, **more) -> dict:
    return LLAMA | {"timings": {"predicted_n": 16, "draft_n": drafted, "draft_n_accepted": accepted}} | more


def rows_of(found: EngineFile) -> dict[str, EngineRow]:
    return {row.definition.engine: row for row in acceptance_table([each.counts for each in found.requests])}


@pytest.mark.parametrize(
    ("counted", "without"),
    [
        (llama(12, 9), LLAMA | {"timings": {"predicted_n": 1}}),
        (llama(12, 9), {"error": {"message": "busy"}}),
        (llama(12, 9), None),
        ({"metrics": {"speculative_decoding": VLLM}}, {"choices": [{}, {}], "metrics": {"speculative_decoding": None}}),
        ({"request_perf_metrics": {"speculative_decoding": {"total_draft_tokens": 4}}}, {"outputs": [{"text": "x"}]}),
        ({"timings": {"draft_rounds": 3, "draft_n": 9}}, {"timings": {"draft_rounds": None, "draft_n": None}}),
        ({"meta_info": {"spec_verify_ct": 0}}, {"meta_info": {"completion_tokens": 1}}),
    ],
)
def test_a_request_without_counts_does_not_spoil_the_file(counted, without):
    lines = "\n".join(map(json.dumps, (without, counted, counted)))
    for text in (lines, json.dumps([counted, counted, without]), json.dumps({"results": [counted, counted, without]})):
        found = read_file(text)
        assert (len(found.requests), found.without) == (2, 1)
    with pytest.raises(BadInput, match="no counts of speculative decoding"):
        read_file(json.dumps(without))


@pytest.mark.parametrize(
    ("value", "requests"),
    [
        ({"model": "m", "results": [llama(12, 9)] * 70}, 70),
        ({"first": llama(12, 9), "second": {"response": llama(12, 9)}}, 2),
        ({"choices": [{"meta_info": {"spec_verify_ct": 3}}, {"meta_info": {"spec_verify_ct": 4}}], "id": "n = 2"}, 2),
        ([[{"meta_info": {"spec_verify_ct": 3}}] * 2, [{"meta_info": {"spec_verify_ct": 3}}] * 2], 4),
        (llama(12, 9, __verbose={"timings": {"draft_n": 12, "draft_n_accepted": 9}}), 1),
        ({"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "response": llama(12, 9)}]}, 1),
    ],
)
def test_every_request_in_an_object_counts(value, requests):
    found = read_file(json.dumps(value))
    assert (len(found.requests), found.without) == (requests, 0)


def test_the_tokens_of_two_choices_are_not_counted_for_each():
    meta = {"spec_verify_ct": 3, "spec_num_correct_drafts": 5}
    found = read_file(json.dumps({"choices": [{"meta_info": meta}] * 2, "usage": {"completion_tokens": 16}}))
    assert [each.counts.completion_tokens for each in found.requests] == [None, None]


def test_only_newlines_end_a_line():
    values = [llama(12, 9, text="a\u2028b\u2029c\x85d"), llama(12, 3)]
    for indent, end in ((None, "\n"), (None, "\r\n\r\n"), (2, "\n")):
        text = "".join(json.dumps(each, ensure_ascii=False, indent=indent) + end for each in values)
        assert rows_of(read_file(text))["llama.cpp"].rate == 0.5
    with pytest.raises(BadInput, match="Line 2"):
        read_file("".join(json.dumps(each) + "\n" for each in values)[:-9])


def test_drafts_of_variable_length_have_an_interval():
    by_length = {"acceptance_histogram_by_draft_length": {"0": [1], "1": [0, 2], "3": [1, 0, 1, 1]}}
    reported = {"mean_acceptance_length": 1 + 7 / 6, "draft_acceptance_rate": 7 / 11}
    row = rows_of(read_file(json.dumps(VLLM | by_length | reported)))["vLLM"]
    assert (row.length, row.rate) == (reported["mean_acceptance_length"], reported["draft_acceptance_rate"])
    assert row.rate_within.interval.low < 7 / 11 < row.rate_within.interval.high
    assert rows_of(read_file(json.dumps(VLLM)))["vLLM"].rate_within.interval is None
    steps = {"per_step_accepted": [0, 1, 1, 0, 2, 3], "per_step_drafted": [0, 1, 1, 3, 3, 3]}
    detailed = rows_of(read_file(json.dumps(VLLM | steps)))["vLLM"]
    assert (detailed.length, detailed.rate_within) == (row.length, row.rate_within)
    for wrong in ({"3": [2, 2, 1, 1, 0]}, {"3": [2, 2, 1]}, {"x": [1]}, [1], {"1": [2, 2], "3": [0, 0, 2, 0]}):
        with pytest.raises(BadInput, match="by_draft_length"):
            read_file(json.dumps(VLLM | {"acceptance_histogram_by_draft_length": wrong}))


def test_counts_of_mlx_vlm_and_lm_studio():
    timings = {"predicted_n": 111, "draft_kind": "mtp", "draft_rounds": 30, "draft_n": 90, "draft_n_accepted": 81}
    found = read_file(json.dumps({"timings": timings}))
    rows = rows_of(found)
    assert found.requests[0] == EngineRequest("mlx-vlm", RequestTotals("request 1", 81, 90, 30, 3, 111))
    assert (rows["EAGLE"].length, rows["vLLM"].rate, rows["SGLang, scheduler"].rate) == (3.7, 0.9, 111 / 120)
    stats = {"tokens_per_second": 9.0, "total_draft_tokens_count": 35, "accepted_draft_tokens_count": 31}
    rows = rows_of(read_file(json.dumps({"choices": [{}], "usage": {"completion_tokens": 62}, "stats": stats})))
    assert (rows["LM Studio"].rate, rows["vLLM"].rate) == (0.5, 31 / 35) and math.isnan(rows["vLLM"].length)
    sdk = {"predictedTokensCount": 62, "totalDraftTokensCount": 35, "acceptedDraftTokensCount": 31}
    assert rows_of(read_file(json.dumps({"content": "x", "stats": sdk})))["LM Studio"].rate == 0.5


def test_a_mean_over_requests_needs_all_of_them():
    found = read_file(json.dumps([{"timings": {"draft_rounds": 2, "draft_n": 4, "predicted_n": 5}}, llama(12, 9)]))
    assert math.isnan(rows_of(found)["SpecForge"].length)


def events(chunks, end: str = "\n\n") -> str:
    return "".join(f"data: {json.dumps(each)}{end}" for each in chunks) + f"data: [DONE]{end}"


def chunk(name: str | None = "c", **more) -> dict:
    made = {"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {"content": "x"}}]} | more
    return made if name is None else made | {"id": name}


@pytest.mark.parametrize("end", ["\n\n", "\r\n\r\n", "\n"])
def test_streams_one_after_the_other(end):
    growing = [chunk(timings={"predicted_n": n, "draft_n": 2 * n, "draft_n_accepted": n}) for n in (3, 4, 5)]
    last = [chunk("d"), chunk("d", choices=[], usage={"completion_tokens": 9}, metrics={"speculative_decoding": VLLM})]
    head = f"HTTP/1.1 200 OK{end}content-type: text/event-stream{end}: ping{end}event: message{end}"
    text = (
        head + events(growing, end) + events(last, end) + events([chunk("e"), chunk("e")], end) + events(growing, end)
    )
    found = read_file(text)
    assert [each.counts.accepted_total for each in found.requests] == [5, 7, 5] and found.without == 1
    assert found.requests[1].counts.completion_tokens == 9


def test_streams_that_are_mixed_or_unnamed():
    counts = {"draft_n": 4, "draft_n_accepted": 1}
    first, second = chunk("a", timings=counts), chunk("b", timings=counts)
    assert len(read_file("\n".join(map(json.dumps, (chunk("a"), chunk("b"), first, second)))).requests) == 2
    plain = [{"content": "x", "stop": False}, {"content": "", "stop": True, "timings": counts}] * 2
    assert len(read_file("".join(f"data: {json.dumps(each)}\n\n" for each in plain)).requests) == 2
    sglang = [{"text": "x", "index": i % 2, "meta_info": {"id": str(i % 2), "spec_verify_ct": i}} for i in range(4)]
    found = read_file(events(sglang))
    assert [each.counts.steps for each in found.requests] == [2, 3] and found.without == 0


def test_a_stream_has_the_rounds_of_its_response(texts):
    response = texts[0].response()
    choice = response["choices"][0]
    ids, lists = choice["token_ids"], choice["logprobs"]
    pieces = []
    for at in range(0, len(ids), 3):
        part = {"index": 0, "token_ids": ids[at : at + 3], "logprobs": {k: v[at : at + 3] for k, v in lists.items()}}
        part["prompt_token_ids"] = None if at else choice["prompt_token_ids"]
        pieces.append(chunk("cmpl-1", model="served", choices=[part]))
    told = chunk("cmpl-1", choices=[], usage=response["usage"], metrics=response["metrics"])
    ((streamed,), (whole,)) = (read_file(each).served for each in (events([*pieces, told]), json.dumps(response)))
    assert (streamed.token_ids, streamed.prompt_ids, streamed.name) == (whole.token_ids, whole.prompt_ids, whole.name)
    assert np.array_equal(streamed.best, whole.best)
    assert streamed.counts.drafted.tolist() == whole.counts.drafted.tolist()


def prometheus(drafts, drafted, accepted, positions=(), *, engine="vllm:", labels='model_name="m"', more="") -> str:
    start = f"# HELP {engine}spec_decode_num_drafts_total drafts\n# TYPE {engine}spec_decode_num_drafts_total counter\n"
    values = {"drafts": drafts, "draft_tokens": drafted, "accepted_tokens": accepted}
    lines = [f"{engine}spec_decode_num_{name}_total{{{labels}}} {float(value)}" for name, value in values.items()]
    name = f"{engine}spec_decode_num_accepted_tokens_per_pos_total"
    lines += [f'{name}{{{labels},position="{place}"}} {float(value)}' for place, value in enumerate(positions)]
    return start + "\n".join(lines) + "\n" + more


def test_counters_of_several_engines_are_added():
    one = prometheus(10, 30, 12, (8, 3, 1), labels='engine="0",model_name="m"')
    two = prometheus(30, 90, 24, (12, 9, 3), labels='engine="1",model_name="m"')
    created = 'vllm:spec_decode_num_drafts_created{engine="0",model_name="m"} 1.756736798e+09 # {trace="}"} 1.0\n'
    found = read_file(one + two + created + 'vllm:generation_tokens_total{model_name="m"} 100.0\n')
    rows = rows_of(found)
    assert len(found.requests) == found.scrapes == 1
    assert rows["vLLM"].length == rows["EAGLE"].length == 1 + 36 / 40 and rows["vLLM"].rate == 36 / 120
    assert rows["vLLM"].unconditional.tolist() == [20 / 40, 12 / 40, 4 / 40]
    assert rows["SGLang, scheduler"].rate == 76 / 160
    for row in rows.values():  # sums over requests have no interval and no mean of requests
        assert row.length_within.interval is row.rate_within.interval is None
        if row.definition.pooling is Pooling.MEAN:
            assert math.isnan(row.length) and math.isnan(row.rate)


@pytest.mark.parametrize("engine", ["vllm:", "llamacpp:", "trtllm_", "ray_vllm_"])
def test_counters_without_positions(engine):
    found = read_file(prometheus(43, 129, 10, (4,), engine=engine, labels=""))
    rows = rows_of(found)
    assert (rows["vLLM"].length, rows["vLLM"].rate) == (1 + 10 / 43, 10 / 129)
    assert not len(rows["vLLM"].unconditional) and math.isnan(rows["SGLang, scheduler"].rate)


@pytest.mark.parametrize(("engine", "positions"), [("vllm:", [0.8, 0.3, 0.1]), ("llamacpp:", [])])
def test_only_vllm_has_a_counter_for_every_position(engine, positions):
    rows = rows_of(read_file(prometheus(10, 25, 12, (8, 3, 1), engine=engine)))
    assert rows["vLLM"].unconditional.tolist() == positions and rows["vLLM"].rate == 12 / 25


def test_scrapes_count_what_lies_between_them():
    first, last = prometheus(10, 30, 12, (8, 3, 1)), prometheus(20, 60, 18, (11, 5, 2))
    found = read_file(first + prometheus(15, 45, 15, (9, 4, 2)) + last)
    assert found.scrapes == 3 and "3 scrapes" in found.summary
    assert rows_of(found)["vLLM"].length == 1 + 6 / 10
    assert rows_of(found)["vLLM"].unconditional.tolist() == [0.3, 0.2, 0.1]
    with pytest.raises(BadInput, match="one server since its last start"):
        read_file(last + first)
    created = [f'vllm:spec_decode_num_drafts_created{{model_name="m"}} {when}\n' for when in (1.7e9, 1.8e9)]
    with pytest.raises(BadInput, match="one server since its last start"):
        read_file(first + created[0] + last + created[1])
    with pytest.raises(BadInput, match="Nothing was drafted between"):
        read_file(first + first)


def test_counters_of_sglang_and_tensorrt_llm():
    text = "".join(f'sglang:generation_tokens_total{{is_streaming="{x}"}} {n}\n' for x, n in (("a", 60), ("b", 40)))
    found = read_file(text + "sglang:spec_verify_calls_total 40\nsglang:spec_accept_rate 0.7\n")
    assert found.requests[0].engine == "SGLang" and "2.500 each" in found.summary
    assert all(math.isnan(row.length) and math.isnan(row.rate) for row in rows_of(found).values())
    names = {"drafted": (30, 30), "accepted": (20, 10)}
    text = "".join(
        f'trtllm_spec_decode_{name}_tokens_total{{token_position="{place}"}} {value}\n'
        for name, values in names.items()
        for place, value in enumerate(values)
    )
    rows = rows_of(read_file(text))
    assert (rows["TensorRT-LLM"].length, rows["vLLM"].rate) == (2.0, 0.5)


def test_models_are_counted_apart():
    found = read_file(prometheus(10, 30, 12) + prometheus(10, 30, 3, labels='model_name="n"'))
    assert [each.counts.name for each in found.requests] == ["m", "n"] and rows_of(found)["vLLM"].rate == 15 / 60


@pytest.mark.parametrize("value", ["NaN", "1.5", "-3", "+Inf", "x"])
def test_counters_that_are_no_counts(value):
    with pytest.raises(BadInput, match="Save the metrics again"):
        read_file(prometheus(10, 30, 12, more=f"llamacpp:spec_decode_num_drafts_total {value}\n"))


def test_rounds_of_a_response(texts):
    for told, own in zip(parse_responses(responses(texts)), texts, strict=True):
        assert told.token_ids == own.token_ids and told.prompt_ids == own.prompt and told.raw
        lengths = [1, *(len(each.token_ids) for each in own.rounds)]
        assert told.round_index.tolist() == np.repeat(np.arange(len(lengths)), lengths).tolist()
        outcomes = [Outcome.BONUS, *(o for each in own.rounds for o in written(each))]
        assert told.drafted.tolist() == [o is Outcome.MATCHED for o in outcomes]
        assert told.corrected.tolist() == [o is Outcome.CORRECTED for o in outcomes]
        ratios = [r for each in (own.first, *own.rounds) for r in each.speculation.ratio[: len(each.token_ids)]]
        assert told.ratio == pytest.approx(ratios) and told.tau == (len(told.texts) - 1) / len(own.rounds)


def written(round_) -> list[Outcome]:
    kept = [Outcome.MATCHED] * round_.kept
    return kept + ([round_.emission] if round_.emission else [])


def test_the_bound_is_one(texts):
    bound, rule = rejection_bound(parse_responses(responses(texts))), rule_named("mars")
    stopped = [each for text in texts for each in text.rounds if each.emission is Outcome.CORRECTED]
    assert bound.rejections == len(stopped) > 10 and bound.unknown == 0 and bound.by_ratio
    forgiven = []
    for dial in np.linspace(0.3, 1, 71):
        really = sum(bool(rule.judge(r.speculation).keeps(dial)[r.stopped_by[0]]) for r in stopped)
        close = sum(float(r.speculation.ratio[r.decision.row]) > dial for r in stopped)
        assert really <= bound.at(dial) == close
        forgiven.append(really)
    assert forgiven[0] > 2 and bound.at(1.0) == 0


def test_log_probabilities_give_margins_alone(texts):
    told = parse_responses(responses(texts, normalised=True))
    assert not told[0].raw and np.isnan(told[0].ratio).all()
    raw = parse_responses(responses(texts))
    assert told[0].margin == pytest.approx(raw[0].margin, abs=1e-5)
    bound = rejection_bound(told)
    assert not bound.by_ratio and bound.at(100.0) == bound.rejections and bound.at(0.0) == 0
    with pytest.raises(BadInput, match="one after the other"):
        rejection_bound([told[0], raw[0]])


def test_a_row_that_is_not_told_might_be_forgiven(texts):
    response = texts[0].response(ids=False)
    rows = response["choices"][0]["logprobs"]["top_logprobs"]
    (told,) = parse_responses(json.dumps(response))
    place = int(np.flatnonzero(told.corrected)[0])
    del rows[place][list(rows[place])[1]]  # two tokens that read alike came as one
    (less,) = parse_responses(json.dumps(response))
    assert np.isnan(less.margin[place]) and np.isnan(less.best).sum() == 2
    bound = rejection_bound([less])
    assert bound.unknown == 1 and bound.at(1.0) == 1


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda r: r["choices"][0].pop("logprobs"), "no log-probabilities"),
        (lambda r: r["choices"][0]["logprobs"]["token_logprobs"].__setitem__(2, -50.0), "greedily"),
        (lambda r: r["metrics"]["speculative_decoding"].pop("per_step_accepted"), "one by one"),
        (lambda r: r["choices"][0]["token_ids"].pop(), "Ask for it again"),
        (lambda r: shorter(r), "without a draft"),
        (lambda r: r["choices"].append({}), "no log-probabilities"),
    ],
)
def test_responses_that_cannot_be_read(texts, change, said):
    response = texts[0].response()
    change(response)
    with pytest.raises(BadInput, match=said):
        parse_responses(json.dumps(response))


def shorter(response):
    """As where a step in the middle had no draft: vLLM does not count it."""
    told = response["metrics"]["speculative_decoding"]
    accepted, drafted = told["per_step_accepted"].pop(1), told["per_step_drafted"].pop(1)
    told["acceptance_histogram"][accepted] -= 1
    told["num_spec_steps"] -= 1
    told["num_accepted_draft_tokens"] -= accepted
    told["num_draft_tokens"] -= drafted
    del told["mean_acceptance_length"], told["draft_acceptance_rate"]


def test_a_run_of_responses_and_drafts(pair, texts, tmp_path):
    own = texts[0]
    (told,) = parse_responses(json.dumps(own.response()))
    made = import_run(joined(told, parse_drafts(own.drafts())), pair)
    assert made.ties == 0 and made.run.token_ids == own.token_ids and made.run.settings.dial == 1.0
    assert [len(each.speculation) for each in made.run.rounds] == [0, *(len(e.speculation) for e in own.rounds)]
    for ours, its in zip(own.rounds, made.run.rounds[1:], strict=True):
        assert its.decision.kept == ours.decision.kept and its.outcomes == ours.outcomes
        for dial in (0.5, 0.8, 0.9):
            assert its.verdicts.keeps(dial).tolist() == rule_named("mars").judge(ours.speculation).keeps(dial).tolist()
        assert not {"q", "draft_ids", "js"} & its.speculation.columns.keys()  # the drafter's law is not told
    again = load_run(save_run(made.run, tmp_path / "run"))
    assert again.text == made.run.text and again.provenance.seconds == 0
    with pytest.raises(BadInput, match="another rule"):
        import_run(joined(told, parse_drafts(own.drafts())), pair, rule="fuzzy")


def test_a_run_of_a_log_needs_no_models(texts, tmp_path):
    (told,) = parse_log(texts[1].log())
    made = import_run(told)
    assert made.run.token_ids == texts[1].token_ids
    ratio = [r for each in texts[1].rounds for r in each.speculation.ratio]
    assert np.concatenate([e.speculation.ratio for e in made.run.rounds[1:]]) == pytest.approx(ratio)
    again = load_run(save_run(made.run, tmp_path / "run"))
    assert again.pieces[told.prompt_ids[0]].text == f"[{told.prompt_ids[0]}]"


def test_rows_that_are_not_told_are_asked_for(pair, texts):
    (told,) = parse_log(texts[1].log(rows=False))
    with pytest.raises(BadInput, match="--target"):
        import_run(told)
    assert import_run(told, pair).run.token_ids == texts[1].token_ids


def test_a_logit_that_is_not_told(texts):
    text = texts[1].log()
    lines = [json.loads(line) for line in text.splitlines()]
    lines[1]["rows"] = [row | {"z_x": None} for row in lines[1]["rows"]]
    for line in lines[2:]:
        for row, token in zip(line["rows"], line["drafted"], strict=False):
            keep = [place for place, each in enumerate(row["topk_ids"]) if each != token or place < 2]
            row |= {"z_x": None, "topk_ids": [row["topk_ids"][place] for place in keep]}
            row["topk_values"] = [row["topk_values"][place] for place in keep]
    run = import_run(*parse_log("\n".join(map(json.dumps, lines)))).run
    lacking = [each for each in run.rounds if "z" not in each.speculation.columns]
    assert lacking and run.token_ids == texts[1].token_ids


def test_a_text_of_other_weights_is_refused(pair, texts):
    lines = [json.loads(line) for line in texts[0].log(rows=False).splitlines()]
    lines[3]["emitted"][-1] = (lines[3]["emitted"][-1] + 1) % 500
    (told,) = parse_log("\n".join(map(json.dumps, lines)))
    with pytest.raises(BadInput, match="does not prefer"):
        import_run(told, pair)


def test_a_tie_is_settled_as_the_engine_did(pair, texts):
    lines = [json.loads(line) for line in texts[0].log().splitlines()][:3]
    last = lines[-1]
    row = last["rows"][last["n_accepted"]]
    row["topk_values"][1] = row["topk_values"][0] - 5e-4
    last["emitted"][-1] = row["topk_ids"][1]
    (told,) = parse_log("\n".join(map(json.dumps, lines)))
    made = import_run(told)
    assert made.ties == 1 and made.run.token_ids[-1] == row["topk_ids"][1]
    with pytest.raises(BadInput, match="does not prefer"):
        import_run(told, tolerance=1e-4)


def test_an_engine_that_keeps_fewer_than_strict_is_refused(pair, texts):
    lines = [json.loads(line) for line in texts[0].log(rows=False).splitlines()]
    index = next(i for i, line in enumerate(lines[1:], 1) if line["n_accepted"] > 1)
    del lines[index + 1 :]
    lines[index]["n_accepted"] = 1
    lines[index]["emitted"] = lines[index]["emitted"][:2]
    (told,) = parse_log("\n".join(map(json.dumps, lines)))
    with pytest.raises(BadInput, match="engine accepted 1 drafted"):
        import_run(told, pair)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda lines: lines.pop(0), "before any header"),
        (lambda lines: lines[2].update(n_accepted=99), "does not add up"),
        (lambda lines: lines[2].update(drafted=["x"]), "no drafted"),
        (lambda lines: lines[2].update(parents=[-1] * 4), "only chains"),
        (lambda lines: lines[2].update(prefix_len=3), "begins after 3 tokens"),
        (lambda lines: lines[0].update(temperature=0.7), "not decoded greedily"),
        (lambda lines: lines[0].update(logits_scale="logprobs"), "raw_logits"),
        (lambda lines: lines[2]["rows"][0].pop("topk_ids"), "without topk_ids"),
        (lambda lines: lines.__delitem__(slice(1, None)), "no rounds"),
        (lambda lines: lines[0].update(prompt_ids=[]), "no prompt_ids"),
        (lambda lines: lines[2].pop("n_accepted"), "no n_accepted"),
    ],
)
def test_logs_that_cannot_be_read(texts, change, said):
    lines = [json.loads(line) for line in texts[0].log().splitlines()]
    change(lines)
    with pytest.raises(BadInput, match=said):
        parse_log("\n".join(map(json.dumps, lines)))


def test_drafts_of_another_server(texts):
    (told,) = parse_responses(json.dumps(texts[0].response()))
    with pytest.raises(BadInput, match="lacks round 1"):
        joined(told, parse_drafts(texts[1].drafts()))
    with pytest.raises(BadInput, match="prefix_sha256"):
        parse_drafts('{"drafted": [1]}')


def test_the_plugin_names_prefixes_as_they_are_looked_for():
    spec = importlib.util.spec_from_file_location("vllm_draft_log", PLUGIN)
    plugin = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(plugin)
    ids = np.zeros((3, 9), np.int32)
    ids[2, :4] = 5, 600, 70000, 8
    batch = SimpleNamespace(req_id_to_index={"r": 2}, num_tokens_no_spec=np.array([0, 0, 4]), token_ids_cpu=ids)
    line = plugin.line_of(batch, "r", [1, 2])
    assert line["prefix_sha256"] == prefix_key((5, 600, 70000, 8)) and line["drafted"] == [1, 2]
    assert parse_drafts(json.dumps(line)) == {prefix_key((5, 600, 70000, 8)): (1, 2)}


def command(*arguments, capsys):
    code = cli.main(["import", *map(str, arguments)])
    said = capsys.readouterr()
    return code, said.out, said.err


def test_the_command_saves_runs(texts, tmp_path, capsys):
    file, log, out = tmp_path / "responses.jsonl", tmp_path / "drafts.jsonl", tmp_path / "runs"
    file.write_text(responses(texts[:2]))
    log.write_text(texts[0].drafts() + texts[1].drafts())
    code, said, _ = command(file, "--drafts", log, "--target", "built-in", "--out", out, capsys=capsys)
    assert code == 0 and "Saved to" in said
    assert [load_run(out / name).token_ids for name in "12"] == [each.token_ids for each in texts[:2]]


@pytest.mark.parametrize(
    ("content", "more", "said"),
    [
        ("[]", (), "no metrics"),
        ('{"timings": {"draft_n": 1}}', ("--out", "runs"), "drafted"),
        ('{"timings": {"draft_n": 1}}', ("--tolerance", "-1"), "tolerance"),
        ('{"timings": {"draft_n": 1}}', ("--rule", "nonsense"), "no rule"),
        ('{"timings": {"draft_n": 1}}', ("--drafts", "nowhere"), "nowhere"),
        ('{"timings": {"draft_n": 1}}', ("--target", "./nowhere"), "no folder"),
        (b"\xff\xfe", (), "not UTF-8"),
    ],
)
def test_the_command_refuses(tmp_path, monkeypatch, capsys, content, more, said):
    monkeypatch.chdir(tmp_path)
    Path("file.json").write_bytes(content if isinstance(content, bytes) else content.encode())
    code, _, err = command("file.json", *more, capsys=capsys)
    assert code == 2 and said in err and len(err.strip().splitlines()) == 1 and not Path("runs").exists()


SERVED = 'class="mv-served"'


def told_by_hand(words: str = "dog") -> dict:
    """Two rounds of γ = 2: the first accepts one drafted token, the second none."""
    pairs = [(9.0, 8.0), (9.0, 4.5), (9.0, 8.5), (9.0, 8.9)]
    rows = [{words: first, "cat": second, "cow": 1.0} for first, second in pairs]
    logprobs = {"tokens": [words] * 4, "token_logprobs": [9.0] * 4, "top_logprobs": rows}
    metrics = {
        "num_spec_steps": 2,
        "num_accepted_draft_tokens": 1,
        "num_draft_tokens": 4,
        "num_spec_tokens": 2,
        "acceptance_histogram": [1, 1, 0],
        "per_step_accepted": [1, 0],
        "per_step_drafted": [2, 2],
    }
    choices = [{"logprobs": logprobs}]
    return {"model": "m", "choices": choices, "metrics": {"speculative_decoding": metrics}}


def uploaded(name: str, data: str):
    tab = opened("pages/explore.py")
    tab.file_uploader(key="zip").upload(name, data.encode(), "application/json")
    return settled(tab.run())


def html_of(tab) -> str:
    return "".join(each.proto.body for each in tab.get("html"))


def test_the_rounds_by_hand():
    (told,) = parse_responses(json.dumps(told_by_hand()))
    assert told.round_index.tolist() == [0, 1, 1, 2] and told.tau == 1.5
    assert told.drafted.tolist() == [False, True, False, False]
    assert told.corrected.tolist() == [False, False, True, True]
    bound = rejection_bound([told])
    assert [bound.at(dial) for dial in (0.9, 0.95, 0.99)] == [2, 1, 0] and bound.share(0.95) == 0.5


def test_explore_shows_an_engines_file():
    tab = uploaded("served.jsonl", json.dumps(told_by_hand("<b>dog</b>")))
    shown = html_of(tab)
    assert SERVED in shown and "&lt;b&gt;dog" in shown and "<b>dog" not in shown
    assert "4 tokens in 2 rounds" in shown and "0.944" in shown
    assert any("2 of 2 rejections" in each.proto.alt for each in tab.get("plotly_chart"))
    settled(tab.button(key="close-engine-file").click().run())
    assert SERVED not in html_of(settled(tab.run()))  # the upload that is still there is not read again


def test_explore_shows_counts_alone():
    tab = uploaded("llama.txt", events([llama(12, 9)]) + events([chunk("d")]))
    assert SERVED not in html_of(tab) and "1 request without counts" in html_of(tab)
    (table, *_) = tab.dataframe
    assert table.value.set_index("engine").loc["llama.cpp", "rate"].startswith("0.750")
    for data, said in (("{", "is no JSON"), ('{"prompt_ids": [1]}', "no rounds"), ("\udcff", "not UTF-8")):
        tab.file_uploader(key="zip").upload("a.json", data.encode("utf-8", "surrogateescape"), "application/json")
        tab = settled(tab.run())
        assert said in html_of(tab)


def test_explore_opens_the_run_of_a_log(texts):
    tab = uploaded("log.jsonl", texts[1].log())
    assert tab.selectbox(key="run").value.startswith("upload-") and SERVED not in html_of(tab)


@pytest.mark.parametrize(
    ("line", "ask"),
    [
        ("slot print_timing: id  1 | task 0 | draft acceptance = 0.64 (  167 accepted /   259 generated)", "draft_n"),
        ("(APIServer pid=1) INFO 05-01 14:24:50 [metrics.py:101] SpecDecoding metrics: Accepted: 89", "n = 1"),
        ("INFO 10-16 19:05:47 metrics.py:367] Speculative metrics: Draft acceptance rate: 0.642", "n = 1"),
        ("vllm:num_requests_running 0.0", "n = 1"),
        ("[2025-03-24 02:56:41 TP0] Decode batch. #running-req: 32, token usage: 0.01, accept len: 2.54", "meta_info"),
        ("sglang:spec_accept_length 2.5", "--enable-metrics"),
        ("[09/17/2026-11:00:00] [TRT-LLM] [I] iter = 1, host_step_time = 3", "return_perf_metrics"),
        ("[2025-10-06 10:00:00][INFO][LM STUDIO SERVER] Running chat completion", "/api/v0"),
        ("# HELP tgi_request_skipped_tokens x", "does not report"),
        ('{"log": "INFO 05-01 [metrics.py:101] SpecDecoding metrics: Accepted: 89", "stream": "stdout"}', "n = 1"),
        ('{"id": "x", "choices": [{"text": "SGLang"}], "timings": {"predicted_n": 1}}', "draft_n"),
        ('{"choices": [], "metrics": {"speculative_decoding": null}}', "n = 1"),
    ],
)
def test_a_log_without_counts_names_the_option_to_ask_for(line, ask):
    with pytest.raises(BadInput, match=ask):
        read_file(f"{line}\n{line}\n")


def test_the_command_prints_rounds_and_a_bound(texts, tmp_path, capsys):
    file = tmp_path / "responses.jsonl"
    file.write_text(responses(texts))
    code, out, _ = command(file, "--target", "built-in", capsys=capsys)
    bound = rejection_bound(parse_responses(responses(texts)))
    assert code == 0 and f"at most {bound.at(0.9)} of {bound.rejections}" in out and "vLLM: 3 requests" in out
    code, out, _ = command(file, "--json", capsys=capsys)
    facts = json.loads(out)
    assert code == 0 and facts["bound"]["rejections"] == bound.rejections and len(facts["rounds"]) == 3
    assert facts["requests"][0]["engine"] == "vLLM" and facts["no_rounds"] is None
    file.write_text('{"timings": {"predicted_n": 16, "draft_n": 12, "draft_n_accepted": 9}}')
    code, out, _ = command(file, capsys=capsys)
    assert code == 0 and "lists no other" in out and "0.750" in out
