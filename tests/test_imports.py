"""Files that engines write: acceptance counts, counters, rounds with a bound on rejections, and logs of whole runs."""

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
from mars_viz.analysis.engine_file import RejectionBound, joined, parse_drafts, parse_log, prefix_key, read_file
from mars_viz.analysis.engines import AcceptanceCounts, EngineRow, Pooling, RequestTotals, acceptance_table
from mars_viz.demo.prompts import STORIES
from mars_viz.errors import BadInput
from mars_viz.imports import import_run
from mars_viz.records import Outcome
from mars_viz.rules import rule_named
from mars_viz.runfiles import load_run, save_run

PLUGIN = Path(__file__).parents[1] / "examples/vllm_draft_log/vllm_draft_log.py"
LLAMA = {"choices": [{"index": 0, "message": {"content": "x"}}], "id": "c", "usage": {"completion_tokens": 16}}
VLLM = {"acceptance_histogram": [2, 2, 1, 1], "num_spec_steps": 6, "num_accepted_draft_tokens": 7}
VLLM |= {"num_draft_tokens": 11, "num_spec_tokens": 3}
SGLANG = {"completion_tokens": 8, "spec_verify_ct": 3, "spec_num_proposed_drafts": 12, "spec_num_correct_drafts": 5}
OLD_SGLANG = {"spec_verify_ct": 3, "spec_accept_token_num": 5, "spec_draft_token_num": 12, "completion_tokens": 8}
UNEVEN = {"spec_verify_ct": 2, "spec_num_proposed_drafts": 7, "spec_correct_drafts_histogram": [1, 0, 1]}
USAGE = {"completion_tokens": 10}
TRT = {"total_accepted_draft_tokens": 6, "total_draft_tokens": 12, "acceptance_rate": 0.5}
TRT_STEPS = TRT | {"num_spec_steps": 4, "acceptance_histogram": [1, 1, 1, 1], "num_spec_tokens": 3}
TRT = {"request_perf_metrics": {"speculative_decoding": TRT}, "usage": USAGE}
MLX = {"predicted_n": 111, "draft_kind": "mtp", "draft_rounds": 30, "draft_n": 90, "draft_n_accepted": 81}
STUDIO = {"tokens_per_second": 9.0, "total_draft_tokens_count": 35, "accepted_draft_tokens_count": 31}
STUDIO_SDK = {"predictedTokensCount": 62, "totalDraftTokensCount": 35, "acceptedDraftTokensCount": 31}


@pytest.fixture(scope="module")
def texts(pair):
    return [served(pair, prompt) for prompt in STORIES[:3]]


def lines(values) -> str:
    return "".join(json.dumps(each) + "\n" for each in values)


def responses(texts: list[Served]) -> str:
    return lines(each.response() for each in texts)


def llama(drafted: int, accepted: int, **more) -> dict:
    return LLAMA | {"timings": {"predicted_n": 16, "draft_n": drafted, "draft_n_accepted": accepted}} | more


def rows_of(found) -> dict[str, EngineRow]:
    return {row.definition.engine: row for row in acceptance_table([each for _, each in found.requests])}


def test_totals_of_each_engine():
    for engine, value, totals in (  # accepted, drafted, steps, γ, tokens, accepted in the text
        ("SGLang", {"choices": [{}], "sglext": {"spec_tokens_details": SGLANG}}, (5, 12, 3, 4, 8)),
        ("SGLang", {"usage": USAGE, "sglext": {"x": {"spec_verify_ct": 3}}}, (None, None, 3, None, 10)),
        ("SGLang", {"meta_info": OLD_SGLANG}, (5, 12, 3, 4, 8)),
        ("SGLang", {"meta_info": UNEVEN}, (2, 7, 2)),
        ("llama.cpp", {"content": "…"} | llama(12, 9), (9, 12, None, None, 16)),
        ("TensorRT-LLM", {"avg_decoded_tokens_per_iter": 2.5} | TRT, (6, 12, 4, None, 10)),
        ("TensorRT-LLM", {"avg_decoded_tokens_per_iter": 2.4} | TRT, (6, 12, None, None, 10)),
        ("TensorRT-LLM", {"choices": [{"speculative_decoding": TRT_STEPS}]}, (6, 12, 4, 3)),
        ("mlx-vlm", {"timings": MLX}, (81, 90, 30, 3, 111)),
        ("LM Studio", {"choices": [{}], "usage": USAGE, "stats": STUDIO}, (31, 35, None, None, 10, 31)),
        ("LM Studio", {"content": "x", "stats": STUDIO_SDK}, (31, 35, None, None, 62, 31)),
    ):
        (found,) = read_file(json.dumps(value)).requests
        assert found == (engine, RequestTotals(value.get("id", "request 1"), *totals))


def test_a_histogram_of_sglang_and_figures_of_sums():
    sglang = {"meta_info": SGLANG | {"spec_correct_drafts_histogram": [1, 0, 1, 1]}}
    ((engine, counts),) = read_file(json.dumps(sglang)).requests
    assert engine == "SGLang" and isinstance(counts, AcceptanceCounts)
    assert counts.accepted.tolist() == [0, 2, 3] and counts.gamma == 4 and not counts.ordered
    rows = rows_of(read_file(json.dumps({"timings": MLX})))
    assert (rows["EAGLE"].length, rows["vLLM"].rate, rows["SGLang, scheduler"].rate) == (3.7, 0.9, 111 / 120)
    rows = rows_of(read_file(json.dumps({"stats": STUDIO_SDK})))
    assert (rows["LM Studio"].rate, rows["vLLM"].rate) == (0.5, 31 / 35) and math.isnan(rows["vLLM"].length)
    rows = rows_of(read_file(lines([llama(12, 3), llama(12, 9)])))
    assert rows["llama.cpp"].rate == 0.5 and rows["vLLM"].rate_within.interval is not None
    unknown = [rows["llama.cpp"].length, rows["EAGLE"].length, rows["SGLang, per request"].length]
    mixed = read_file(json.dumps([{"timings": {"draft_rounds": 2, "draft_n": 4, "predicted_n": 5}}, llama(12, 9)]))
    assert np.isnan([*unknown, rows["LM Studio"].rate, rows_of(mixed)["SpecForge"].length]).all()
    alone = rows_of(read_file(lines([llama(12, 3)])))["vLLM"]
    assert alone.rate == 0.25 and "single request" in alone.rate_within.why


def test_requests_without_counts_are_left_out():
    none = {"choices": [{}, {}], "metrics": {"speculative_decoding": None}}
    for counted, without in (
        (llama(12, 9), LLAMA | {"timings": {"predicted_n": 1}}),
        (llama(12, 9), {"error": {"message": "busy"}}),
        (llama(12, 9), None),
        ({"metrics": {"speculative_decoding": VLLM}}, none),
        ({"request_perf_metrics": {"speculative_decoding": {"total_draft_tokens": 4}}}, {"outputs": [{"text": "x"}]}),
        ({"meta_info": {"spec_verify_ct": 0}}, {"meta_info": {"completion_tokens": 1}}),
    ):
        whole = [counted, counted, without]
        for text in (lines(whole[::-1]), json.dumps(whole), json.dumps({"results": whole})):
            found = read_file(text)
            assert (len(found.requests), found.without) == (2, 1)
        with pytest.raises(BadInput, match="no counts"):
            read_file(json.dumps(without))


def test_every_request_in_an_object_counts():
    for value, tokens in (
        ({"model": "m", "results": [llama(12, 9)] * 70}, [16] * 70),
        ({"first": llama(12, 9), "second": {"response": llama(12, 9)}}, [16] * 2),
        ({"choices": [{"meta_info": SGLANG}] * 2, "id": "n = 2"}, [8] * 2),
        ([[{"meta_info": SGLANG}] * 2, [{"meta_info": SGLANG}] * 2], [8] * 4),
        (llama(12, 9, __verbose={"timings": {"draft_n": 12, "draft_n_accepted": 9}}), [16]),
        ({"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "response": llama(12, 9)}]}, [16]),
        # tokens of both choices together belong to neither
        ({"choices": [{"meta_info": {"spec_verify_ct": 3}}] * 2, "usage": {"completion_tokens": 16}}, [None] * 2),
    ):
        found = read_file(json.dumps(value))
        assert [each.completion_tokens for _, each in found.requests] == tokens and found.without == 0


def test_only_newlines_end_a_line():
    values = [llama(12, 9, text="a\u2028b\u2029c\x85d"), llama(12, 3)]
    for indent, end in ((None, "\n"), (None, "\r\n\r\n"), (2, "\n")):
        text = "".join(json.dumps(each, ensure_ascii=False, indent=indent) + end for each in values)
        assert rows_of(read_file(text))["llama.cpp"].rate == 0.5
    with pytest.raises(BadInput, match="Line 2"):
        read_file(lines(values)[:-9])


def test_drafts_of_variable_length_have_the_length_of_each():
    by_length = {"acceptance_histogram_by_draft_length": {"0": [1], "1": [0, 2], "3": [1, 0, 1, 1]}}
    steps = {"per_step_accepted": [0, 1, 1, 0, 2, 3], "per_step_drafted": [0, 1, 1, 3, 3, 3]}
    for more in (by_length, steps):
        ((_, counts),) = read_file(json.dumps(VLLM | more)).requests
        assert counts.accepted.tolist() == [0, 1, 1, 0, 2, 3] and counts.drafted.tolist() == [0, 1, 1, 3, 3, 3]
        row = acceptance_table([counts, counts])[0]
        assert (row.length, row.rate) == (1 + 7 / 6, 7 / 11)
    assert read_file(json.dumps(VLLM)).requests[0][1].drafted is None


def events(chunks, end: str = "\n\n") -> str:
    return "".join(f"data: {json.dumps(each)}{end}" for each in chunks) + f"data: [DONE]{end}"


def chunk(name: str = "c", **more) -> dict:
    content = {"choices": [{"index": 0, "delta": {"content": "x"}}], "id": name}
    return {"object": "chat.completion.chunk"} | content | more


def test_streams_one_after_the_other_mixed_or_unnamed():
    usage = {"choices": [], "usage": USAGE, "metrics": {"speculative_decoding": VLLM}}
    for end in ("\n\n", "\r\n\r\n", "\n"):
        growing = events([chunk(timings={"draft_n": 2 * n, "draft_n_accepted": n}) for n in (3, 4, 5)], end)
        head = f"HTTP/1.1 200 OK{end}content-type: text/event-stream{end}: ping{end}event: message{end}"
        last = events([chunk("d"), chunk("d", **usage)], end) + events([chunk("e"), chunk("e")], end)
        found = read_file(head + growing + last + growing)
        assert [each.accepted_total for _, each in found.requests] == [5, 7, 5] and found.without == 1
        assert found.requests[1][1].completion_tokens == 10
    counts = {"draft_n": 4, "draft_n_accepted": 1}
    mixed = [chunk("a"), chunk("b"), chunk("a", timings=counts), chunk("b", timings=counts)]
    plain = [{"content": "x", "stop": False}, {"content": "", "stop": True, "timings": counts}] * 2
    for text in (lines(mixed), events(plain)):
        assert len(read_file(text).requests) == 2
    sglang = [{"text": "x", "index": i % 2, "meta_info": {"id": str(i % 2), "spec_verify_ct": i}} for i in range(4)]
    found = read_file(events(sglang))
    assert [each.steps for _, each in found.requests] == [2, 3] and found.without == 0


def prometheus(drafts, drafted, accepted, positions=(), *, engine="vllm:", labels='model_name="m"') -> str:
    values = {"drafts": drafts, "draft_tokens": drafted, "accepted_tokens": accepted}
    samples = [f"{engine}spec_decode_num_{name}_total{{{labels}}} {float(value)}" for name, value in values.items()]
    name = f"{engine}spec_decode_num_accepted_tokens_per_pos_total"
    samples += [f'{name}{{{labels},position="{place}"}} {float(value)}' for place, value in enumerate(positions)]
    return "\n".join([f"# TYPE {engine}spec_decode_num_drafts_total counter", *samples, ""])


ONE, TWO = (
    prometheus(n, 3 * n, sum(at), at, labels=f'engine="{n}",model_name="m"')
    for n, at in ((10, (8, 3, 1)), (30, (12, 9, 3)))
)
CREATED = 'vllm:spec_decode_num_drafts_created{engine="0",model_name="m"} 1.756736798e+09 # {trace="}"} 1.0\n'
TWO += CREATED + 'vllm:generation_tokens_total{model_name="m"} 100.0\n'
SCRAPES = [prometheus(n, 3 * n, sum(at), at) for n, at in ((10, (8, 3, 1)), (15, (9, 4, 2)), (20, (11, 5, 2)))]
TOTAL = "sglang:generation_tokens_total"
SGLANG_TEXT = f'{TOTAL}{{stream="a"}} 60\n{TOTAL}{{stream="b"}} 40\nsglang:spec_verify_calls_total 40\n'
TRT_TEXT = "".join(
    f'trtllm_spec_decode_{name}_tokens_total{{token_position="{place}"}} {value}\n'
    for name, values in {"drafted": (30, 30), "accepted": (20, 10)}.items()
    for place, value in enumerate(values)
)
SCHEDULER = ("SGLang, scheduler", "rate")


@pytest.mark.parametrize(
    ("text", "length", "rate", "positions", "further"),  # the first three as vLLM defines them
    [
        (ONE + TWO, 1 + 36 / 40, 36 / 120, [20 / 40, 12 / 40, 4 / 40], {SCHEDULER: 76 / 160, ("EAGLE", "length"): 1.9}),
        *(
            (prometheus(43, 129, 10, (4,), engine=engine, labels=""), 1 + 10 / 43, 10 / 129, [], {SCHEDULER: math.nan})
            for engine in ("vllm:", "llamacpp:", "trtllm_", "ray_vllm_")
        ),
        (prometheus(10, 25, 12, (8, 3, 1)), 2.2, 12 / 25, [0.8, 0.3, 0.1], {}),
        (prometheus(10, 25, 12, (8, 3, 1), engine="llamacpp:"), 2.2, 12 / 25, [], {}),
        ("".join(SCRAPES), 1 + 6 / 10, 6 / 30, [0.3, 0.2, 0.1], {}),
        (SGLANG_TEXT, math.nan, math.nan, [], {}),
        (TRT_TEXT, 2.0, 0.5, [20 / 30, 10 / 30], {SCHEDULER: 60 / 90, ("TensorRT-LLM", "length"): 2}),
        (prometheus(10, 30, 12) + prometheus(10, 30, 3, labels='model_name="n"'), 1.75, 15 / 60, [], {}),
    ],
)
def test_counters(text, length, rate, positions, further):
    found = read_file(text)
    rows = rows_of(found)
    assert found.scrapes == (3 if text == "".join(SCRAPES) else 1) == 1 + 2 * ("3 scrapes" in found.summary)
    names = [name for name in ("m", "n") if f'="{name}"' in text] or ["the server"]
    assert [each.name for _, each in found.requests] == names
    assert ("2.500 each" in found.summary) == (text == SGLANG_TEXT)
    assert (rows["vLLM"].length, rows["vLLM"].rate) == pytest.approx((length, rate), nan_ok=True)
    unconditional = rows["vLLM"].unconditional
    assert ([] if unconditional is None else unconditional.tolist()) == pytest.approx(positions)
    for (engine, figure), value in further.items():
        assert getattr(rows[engine], figure) == pytest.approx(value, nan_ok=True)
    for row in rows.values():  # sums over requests have no interval and no mean of requests
        assert row.length_within.interval is row.rate_within.interval is None
        assert row.definition.pooling is not Pooling.MEAN or np.isnan([row.length, row.rate]).all()


BY_LENGTH = ({"3": [2, 2, 1, 1, 0]}, {"3": [2, 2, 1]}, {"x": [1]}, [1], {"1": [2, 2], "3": [0, 0, 2, 0]})
REFUSED = [
    ({"meta_info": {"spec_verify_ct": 3, "spec_correct_drafts_histogram": [1, 1]}}, "contradict"),
    ({"meta_info": SGLANG | {"spec_correct_drafts_histogram": [1, 0, 2]}}, "contradict"),
    ({"meta_info": {"spec_verify_ct": -1}}, "contradict"),
    ({"meta_info": {"spec_verify_ct": 2, "spec_correct_drafts_histogram": ["x"]}}, "contradict"),
    ({"meta_info": UNEVEN | {"spec_num_proposed_drafts": 2}}, "contradict"),
    ({"meta_info": {"spec_verify_ct": 10**9, "spec_correct_drafts_histogram": [10**9]}}, "5,000,000"),
    ({"timings": {"draft_n": 3, "draft_n_accepted": 9}}, "contradict"),
    ({"total_draft_tokens": 0, "avg_decoded_tokens_per_iter": 2.5}, "are zeros"),
    ({"text": "hello"}, "no counts"),
    *((VLLM | {"acceptance_histogram_by_draft_length": wrong}, "contradict") for wrong in BY_LENGTH),
    (SCRAPES[2] + SCRAPES[0], "one server"),
    (SCRAPES[0] * 2, "Nothing was drafted between"),
    *(
        (SCRAPES[0] + f"llamacpp:spec_decode_num_drafts_total {value}\n", "Save the metrics again")
        for value in ("NaN", "1.5", "-3", "+Inf", "x")
    ),
    # a file without counts is answered with the options that make engines write them
    ("slot print_timing: id  1 | draft acceptance = 0.64 (  167 accepted /   259 generated)", "in timings"),
    ("vllm:num_requests_running 0.0", "n = 1"),
    ({"id": "x", "choices": [{"text": "SGLang"}], "timings": {"predicted_n": 1}}, "in timings"),
    ({"choices": [], "metrics": {"speculative_decoding": None}}, "n = 1"),
]


@pytest.mark.parametrize(("file", "said"), REFUSED)
def test_files_that_cannot_be_used_are_refused(file, said):
    with pytest.raises(BadInput, match=said):
        read_file(file if isinstance(file, str) else json.dumps(file))


def test_rounds_of_a_response(texts):
    for told, own in zip(read_file(responses(texts)).served, texts, strict=True):
        assert told.token_ids == own.token_ids and told.prompt_ids == own.prompt
        lengths = [1, *(len(each.token_ids) for each in own.rounds)]
        assert told.round_index.tolist() == np.repeat(np.arange(len(lengths)), lengths).tolist()
        outcomes = [Outcome.BONUS]
        for each in own.rounds:
            outcomes += [Outcome.MATCHED] * each.kept + [each.emission] * bool(each.emission)
        assert told.drafted.tolist() == [o is Outcome.MATCHED for o in outcomes]
        assert told.corrected.tolist() == [o is Outcome.CORRECTED for o in outcomes]
        ratios = [r for each in (own.first, *own.rounds) for r in each.speculation.ratio[: len(each.token_ids)]]
        assert told.ratio == pytest.approx(ratios) and told.tau == (len(told.texts) - 1) / len(own.rounds)


def test_the_bound_on_forgiven_rejections(texts):
    raw = read_file(responses(texts)).served
    bound, rule = RejectionBound.of(raw), rule_named("mars")
    stopped = [each for text in texts for each in text.rounds if each.emission is Outcome.CORRECTED]
    assert bound.rejections == len(stopped) > 10 and bound.unknown == 0
    forgiven = []
    for dial in np.linspace(0.3, 1, 71):
        really = sum(bool(rule.judge(r.speculation).keeps(dial)[r.stopped_by[0]]) for r in stopped)
        close = sum(float(r.speculation.ratio[r.decision.row]) > dial for r in stopped)
        assert really <= bound.at(dial) == close
        forgiven.append(really)
    assert forgiven[0] > 2 and bound.at(1.0) == 0
    found = read_file(lines(each.response(normalised=True) for each in texts))
    assert not found.served and "raw_logits" in found.unread and len(found.requests) == len(texts)


def test_an_unknown_row_counts_as_forgiven(texts):
    response = texts[0].response(ids=False)
    rows = response["choices"][0]["logprobs"]["top_logprobs"]
    (told,) = read_file(json.dumps(response)).served
    place = int(np.flatnonzero(told.corrected)[0])
    del rows[place][list(rows[place])[1]]  # two tokens that read alike came as one
    (less,) = read_file(json.dumps(response)).served
    bound = RejectionBound.of([less])
    assert np.isnan(less.margin[place]) and bound.unknown == 1 and bound.at(1.0) == 1


def test_a_run_of_responses_and_drafts(pair, texts, tmp_path):
    own = texts[0]
    (told,) = read_file(json.dumps(own.response())).served
    run, ties = import_run(joined(told, parse_drafts(own.drafts())), pair)
    assert ties == 0 and run.token_ids == own.token_ids and run.settings.dial == 1.0
    assert [len(each.speculation) for each in run.rounds] == [0, *(len(e.speculation) for e in own.rounds)]
    for ours, its in zip(own.rounds, run.rounds[1:], strict=True):
        assert its.decision.kept == ours.decision.kept and its.outcomes == ours.outcomes
        mars = rule_named("mars").judge(ours.speculation)
        assert [its.verdicts.keeps(d).tolist() for d in (0.5, 0.9)] == [mars.keeps(d).tolist() for d in (0.5, 0.9)]
        assert not {"q", "draft_ids", "js"} & its.speculation.columns.keys()  # the draft distribution is unknown
    again = load_run(save_run(run, tmp_path / "run"))
    assert again.text == run.text and again.provenance.seconds == 0
    with pytest.raises(BadInput, match="another rule"):
        import_run(joined(told, parse_drafts(own.drafts())), pair, rule="fuzzy")
    with pytest.raises(BadInput, match="lacks round 1"):
        joined(told, parse_drafts(texts[1].drafts()))
    with pytest.raises(BadInput, match="prefix_sha256"):
        parse_drafts('{"drafted": [1]}')


def log_lines(text: Served) -> list[dict]:
    return [json.loads(line) for line in text.log().splitlines()]


def test_a_log_without_rows_needs_models_and_one_without_some_logits_does_not(pair, texts):
    own = texts[1]
    (told,) = parse_log(own.log(rows=False))
    with pytest.raises(BadInput, match="--target"):
        import_run(told)
    assert import_run(told, pair)[0].token_ids == own.token_ids
    log = log_lines(own)
    for line in log[1:]:  # logits of drafted tokens that are not among the two best are left out
        for row, token in zip(line["rows"], [*line["drafted"], None], strict=True):
            keep = [place for place, each in enumerate(row["topk_ids"]) if each != token or place < 2]
            row |= {"z_x": None} | {key: [row[key][place] for place in keep] for key in ("topk_ids", "topk_values")}
    (told,) = parse_log(lines(log))
    run, _ = import_run(told)
    assert run.token_ids == own.token_ids and run.pieces[told.prompt_ids[0]].text == f"[{told.prompt_ids[0]}]"
    assert any("z" not in each.speculation.columns for each in run.rounds)


def test_a_tie_is_settled_as_the_engine_did_and_other_rules_are_refused(texts):
    log = log_lines(texts[0])[:3]
    row = log[-1]["rows"][log[-1]["n_accepted"]]
    row["topk_values"][1] = row["topk_values"][0] - 5e-4
    log[-1]["emitted"][-1] = row["topk_ids"][1]
    (told,) = parse_log(lines(log))
    run, ties = import_run(told)
    assert ties == 1 and run.token_ids[-1] == row["topk_ids"][1]
    with pytest.raises(BadInput, match="does not prefer"):
        import_run(told, tolerance=1e-4)
    fewer = log_lines(texts[0])  # accepted fewer drafted tokens than the rule
    index = next(i for i, line in enumerate(fewer[1:], 1) if line["n_accepted"] > 1)
    fewer[index] |= {"n_accepted": 1, "emitted": fewer[index]["emitted"][:2]}
    with pytest.raises(BadInput, match="engine accepted 1 drafted"):
        import_run(*parse_log(lines(fewer[: index + 1])))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda r: r["choices"][0].pop("logprobs"), "no log-probabilities"),
        (lambda r: r["choices"][0]["logprobs"]["token_logprobs"].__setitem__(2, -50.0), "greedily"),
        (lambda r: r["metrics"]["speculative_decoding"].pop("per_step_accepted"), "one by one"),
        (lambda r: r["choices"][0]["token_ids"].pop(), "Ask for it again"),
        (lambda r: r["choices"].append({}), "no log-probabilities"),
        (lambda log: log.pop(0), "before any header"),
        (lambda log: log[2].update(n_accepted=99), "does not add up"),
        (lambda log: log[2].update(drafted=["x"]), "no drafted"),
        (lambda log: log[2].update(parents=[-1] * 4), "only chains"),
        (lambda log: log[2].update(prefix_len=3), "begins after 3 tokens"),
        (lambda log: log[0].update(temperature=0.7), "was sampled"),
        (lambda log: log[0].update(logits_scale="logprobs"), "raw_logits"),
        (lambda log: log[2]["rows"][0].pop("topk_ids"), "without topk_ids"),
        (lambda log: log.__delitem__(slice(1, None)), "no rounds"),
        (lambda log: log[0].update(prompt_ids=[]), "no prompt_ids"),
        (lambda log: log[2].pop("n_accepted"), "no n_accepted"),
    ],
)
def test_unreadable_responses_and_logs_are_refused(texts, change, said):
    of_log = change.__code__.co_varnames[0] == "log"
    content = log_lines(texts[0]) if of_log else texts[0].response()
    change(content)
    with pytest.raises(BadInput, match=said):
        parse_log(lines(content)) if of_log else read_file(json.dumps(content), "")


def test_the_plugin_names_prefixes_as_the_reader_does():
    spec = importlib.util.spec_from_file_location("vllm_draft_log", PLUGIN)
    plugin = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(plugin)
    ids = np.zeros((3, 9), np.int32)
    ids[2, :4] = 5, 600, 70000, 8
    batch = SimpleNamespace(req_id_to_index={"r": 2}, num_tokens_no_spec=np.array([0, 0, 4]), token_ids_cpu=ids)
    line = plugin.line_of(batch, "r", [1, 2])
    assert line["prefix_sha256"] == prefix_key((5, 600, 70000, 8)) and line["drafted"] == [1, 2]
    assert parse_drafts(json.dumps(line)) == {prefix_key((5, 600, 70000, 8)): (1, 2)}


def test_the_command(texts, tmp_path, capsys):
    file, log, out = tmp_path / "responses.jsonl", tmp_path / "drafts.jsonl", tmp_path / "runs"

    def imported(content: str, *options: object) -> str:
        file.write_text(content)
        assert cli.main(["import", str(file), *map(str, options)]) == 0
        return capsys.readouterr().out

    bound = RejectionBound.of(read_file(responses(texts)).served)
    said = imported(responses(texts), "--target", "built-in")
    assert f"at most {bound.at(0.9)} of {bound.rejections}" in said and "vLLM: 3 requests" in said
    facts = json.loads(imported(responses(texts), "--json"))
    assert facts["bound"]["rejections"] == bound.rejections and facts["no_rounds"] is None
    log.write_text(texts[0].drafts() + texts[1].drafts())
    assert "Saved to" in imported(responses(texts[:2]), "--drafts", log, "--target", "built-in", "--out", out)
    assert [load_run(out / name).token_ids for name in "12"] == [each.token_ids for each in texts[:2]]
    said = imported(lines([llama(12, 9)]))
    assert "no rounds with raw logits" in said and "0.750" in said


def test_explore_shows_an_engines_file(texts):
    tab, served_rounds = opened("pages/explore.py"), 'class="mv-served"'

    def upload(name: str, data: str) -> str:
        tab.file_uploader(key="zip").upload(name, data.encode("latin-1"), "application/json")
        return "".join(each.proto.body for each in settled(tab.run()).get("html"))

    response, own = responses(texts[:1]), texts[0]
    bound = RejectionBound.of(read_file(response).served)
    shown = upload("served.jsonl", response)
    assert served_rounds in shown and f"{len(own.token_ids)} tokens in {len(own.rounds)} rounds" in shown
    assert any(f"of {bound.rejections} rejections" in each.proto.alt for each in tab.get("plotly_chart"))
    settled(tab.button(key="close-engine-file").click().run())
    assert not [each for each in settled(tab.run()).get("html") if served_rounds in each.proto.body]  # nor read again
    shown = upload("llama.txt", events([llama(12, 9)]) + events([chunk("d")]))
    assert served_rounds not in shown and "1 request without counts" in shown
    (table, *_) = tab.dataframe
    assert table.value.set_index("engine").loc["llama.cpp", "rate"].startswith("0.750")
    for data, said in (("{", "is no JSON"), ('{"prompt_ids": [1]}', "no rounds"), ("\xff", "not UTF-8")):
        assert said in upload("a.json", data)
    shown = upload("log.jsonl", texts[1].log())
    assert tab.selectbox(key="run").value.startswith("upload-") and served_rounds not in shown
