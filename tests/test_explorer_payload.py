"""What the browser is sent, and that the script it runs decides, counts and names exactly as Python does."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from mars_viz.analysis.metrics import ending, forced, judged_rounds, summary
from mars_viz.components.explorer.element import RunPayload
from mars_viz.components.explorer.packing import plain
from mars_viz.components.explorer.payload import TOP, WINDOW, run_payload, window
from mars_viz.components.explorer.round_index import round_index
from mars_viz.records import Outcome, Round
from mars_viz.replay import ending_of
from mars_viz.rules import RULES, rule_named, settle
from mars_viz.rules.base import best_p, drafted_p
from mars_viz.run import Piece, Run
from mars_viz.runfiles import load_run
from mars_viz.samples import RUNS
from mars_viz.trace import Trace
from mars_viz.trees import depths_of, siblings_of
from tests.factories import long_run, make_speculation, toy_chat, toy_run
from tests.in_node import AGAINST_STRICT, in_node
from tests.tables import random_tree
from tests.test_metrics import small_run

OUTCOMES = [*Outcome, None]
"""In the script's numbering."""
HARNESS = """
const run = explorer.readRun(payload);
const reading = new explorer.Reading(run);
const best = (i) => run.rows.top_logit[run.judge[i] * run.rows.top];
console.log(JSON.stringify(dials.map((dial) => {
  reading.turn(dial);
  const { now, values, fromStrict, parted, local } = reading;
  return {
    outcome: Array.from(now.outcome), emission: Array.from(now.emission), length: Array.from(now.length),
    tokens: Array.from(now.tokens, (piece) => run.pieces.ids[piece]), values,
    forced: reading.forced, forcedWords: explorer.forcedWords(reading.forced),
    beside: Array.from(run.nodes.p, (p, i) => explorer.besideBest(run, p, run.nodes.z[i] - best(i))),
    otherwise: local, parted: parted?.index ?? null,
    words: explorer.sentence(run, dial, values, fromStrict, parted, reading.ending()), ending: reading.ending(),
    folded: run.branched.some(Boolean),
    order: Array.from({ length: run.rounds }, (_, r) => explorer.readingOrder(run, now, r)),
    chunks: explorer.chunked(run, reading.recorded),
  };
})));
"""


@pytest.fixture(scope="module")
def decide(tmp_path_factory):
    """Asks the script's own functions: (run, dials) -> what each dial value comes to."""
    return in_node(tmp_path_factory.mktemp("script"), HARNESS)


def tree_run(rule: str = "mars", stop: tuple[str, ...] = ()) -> Run:
    """Forty random trees, one after the other."""
    rng, judge = np.random.default_rng(5), rule_named(rule)
    run = toy_run(rule=rule, dial=0.9, max_new_tokens=6)
    settings = replace(run.settings, max_new_tokens=1000, stop=stop)
    run = replace(run, rounds=(), settings=settings, provenance=replace(run.provenance, eos_ids=()))
    rounds: list[Round] = []
    for _ in range(40):
        count = int(rng.integers(5, 14))
        parents = np.array(random_tree(rng, count), np.int32)
        chain = make_speculation(rng.normal(10, 3, (count + 1, 8)), rng.normal(10, 3, (count, 8)), [0] * count)
        siblings = siblings_of(parents.tolist())
        tokens = chain.top_ids[parents + 1][np.arange(count), np.minimum(siblings, 3)].astype(np.int32)
        shape = {"tokens": tokens, "parents": parents, "siblings": siblings, "depths": depths_of(parents.tolist())}
        speculation = chain.with_columns(shape)
        verdicts = judge.judge(speculation)
        decision = settle(speculation, verdicts, 0.9)
        block = tuple(int(tokens[node]) for node in decision.kept) + (decision.emitted,)
        text = tuple(token for round_ in rounds for token in round_.token_ids)
        rounds.append(Round(speculation, verdicts, decision, ending_of(run).cut(block, 0, text)))
    return replace(run, rounds=tuple(rounds))


LENGTHS = ((0.0, 40, 0), (1.0, 57, 1), (0.7, 200, 2))
CHAINS = {
    f"{name}-{temperature:g}": {"rule": name, "temperature": temperature, "max_new_tokens": limit, "seed": seed}
    for index, name in enumerate(RULES)
    for temperature, limit, seed in (
        LENGTHS if name.startswith("mars") or not RULES[name].monotone else LENGTHS[index % 3 : index % 3 + 1]
    )
}
TREES = {
    "trees, strict first": ("mars", ()),
    "trees, draft order": ("mars:siblings=draft-order", ()),
    "trees, longest": ("mars:siblings=longest", ()),
    "trees that stop": ("mars:siblings=longest", (" w3 w5", "w6 w1")),
}
EMPTY = "no rounds"


@pytest.fixture
def run(request: pytest.FixtureRequest) -> Run:
    """Made when its test comes, not by every process that looks for tests."""
    if request.param in TREES:
        return tree_run(*TREES[request.param])
    made = toy_run(**CHAINS.get(request.param, next(iter(CHAINS.values()))))
    return replace(made, rounds=()) if request.param == EMPTY else made


def dials_of(run: Run) -> list[float | None]:
    """Both ends, the recorded value, a grid, and breakpoints and beginnings of gaps with their two neighbours."""
    dial = rule_named(run.settings.rule).dial
    if dial is None:
        return [None]
    verdicts = [round_.verdicts for round_ in run.rounds]
    exact: list[float] = []
    for flips in ([found.breakpoints for found in verdicts], [found.gaps for found in verdicts]):
        found = np.concatenate([*flips, np.zeros(0)])
        exact += [b for b in found[np.isfinite(found)] if dial.low <= b <= dial.high][:12]
    near = [float(np.clip(c, dial.low, dial.high)) for b in exact for c in (b, np.nextafter(b, -9), np.nextafter(b, 9))]
    return [dial.low, dial.high, run.settings.dial, *np.linspace(dial.low, dial.high, 21).tolist(), *near]


@pytest.mark.parametrize("run", [*CHAINS, *TREES, EMPTY], indirect=True)
def test_script_decides_as_python_does(decide, run):
    dials = dials_of(run)
    for dial, found in zip(dials, decide(run, dials), strict=True):
        rounds = judged_rounds(run, dial)
        first = 0
        for index, round_ in enumerate(rounds):
            nodes = len(round_.speculation)
            outcomes = found["outcome"][first - index : first - index + nodes]
            assert tuple(OUTCOMES[code] for code in outcomes) == round_.outcomes
            assert OUTCOMES[found["emission"][index]] == round_.emission
            length = found["length"][index]
            assert tuple(found["tokens"][first : first + length]) == round_.token_ids
            first += nodes + 1


@pytest.mark.parametrize("run", [*CHAINS, *TREES], indirect=True)
def test_script_counts_as_python_does(decide, run):
    dials = dials_of(run)
    names = {
        "tokens": "tokens",
        "rounds": "rounds",
        "tau": "tau",
        "drafted": "drafted",
        "kept": "kept",
        "relaxed": "relaxed",
        "acceptance_rate": "acceptance",
        "rolled_back": "rolledBack",
        **AGAINST_STRICT,
        "passes_saved_autoregressive": "savedAutoregressive",
    }
    for dial, found in zip(dials, decide(run, dials), strict=True):
        expected = summary(run, dial)
        for ours, theirs in names.items():
            assert found["values"][theirs] == pytest.approx(getattr(expected, ours)), (ours, dial)
        assert found["otherwise"] == (expected.basis.value == "block-local")
        assert found["parted"] == expected.first_difference
        assert found["values"]["strictExact"] == (expected.strict_basis.value == "exact")
        assert found["forced"] == expected.forced_strict


def test_forced_positions_are_counted_and_said(decide):
    run = small_run()
    (found,) = decide(run, [0.9])
    assert found["forced"] == summary(run).forced_strict == 1
    assert found["forcedWords"].startswith("At 1 drafted runner-up the best logit z1 is at or below 0")
    assert decide(toy_run(rule="top-k-set"), [3.0])[0]["forced"] == 0


def test_forced_positions_of_a_stored_run_are_those_of_their_own_rounds(tmp_path):
    """A stored run's blocks lie end to end, and parents count within their block."""
    run = load_run(replace(small_run(), prompt_ids=(1, 2, 3, 4)).save(tmp_path / "run"))
    told = run_payload(run)["rounds"]["forced"]
    assert told.tolist() == [int(forced(rule_named("mars"), Trace([round_])).sum()) for round_ in run.rounds]
    assert told.sum() == summary(run).forced_strict == 1 and told[0] == 0


@pytest.mark.parametrize(("temperature", "top_p"), [(0.0, 1.0), (0.7, 1.0), (0.7, 0.6)])
def test_a_token_stands_beside_the_best_as_its_probability_does(decide, temperature, top_p):
    run = toy_run(rule="mars", temperature=temperature, top_p=top_p)
    (found,) = decide(run, [0.9])
    parts = [drafted_p(r.speculation) / best_p(r.speculation) for r in run.rounds]
    assert found["beside"] == pytest.approx(np.concatenate(parts).tolist(), rel=1e-4, abs=1e-6)


def test_recorded_dial_gives_the_recorded_text(decide):
    run = toy_run(rule="mars-sampling", temperature=1.0, max_new_tokens=57)
    (found,) = decide(run, [run.settings.dial])
    assert sum(found["length"]) == len(run.token_ids)
    assert found["parted"] is None and not found["otherwise"]


def test_every_slot_is_read_once_and_chunks_cover_every_round(decide):
    for run in (tree_run(), toy_run(rule="mars", max_new_tokens=300)):
        (found,) = decide(run, [0.7])
        nodes = [len(round_.speculation) for round_ in run.rounds]
        for emission, order, count in zip(found["emission"], found["order"], nodes, strict=True):
            assert len(set(order)) == len(order) <= count + (emission != 6)
            assert found["folded"] or len(order) == count + (emission != 6)
        rounds = [r for chunk in found["chunks"] for r in range(chunk["first"], chunk["last"] + 1)]
        assert rounds == list(range(len(run.rounds)))


def test_sentence_speaks_of_strict_and_of_what_was_recorded(decide):
    def words(run: Run, dial: float) -> str:
        (found,) = decide(run, [dial])
        return "".join(part if isinstance(part, str) else "…" for part in found["words"])

    loose = toy_run(rule="mars-sampling", temperature=1.0, max_new_tokens=57, dial=0.5)
    said = words(loose, 0.5)
    assert said.startswith(f"At θ = 0.50: {len(loose.rounds)} target passes for 57 tokens; strict needs about ")
    assert "First difference from strict: token" in said and ", about" in said
    assert words(loose, 1.0).startswith("At θ = 1.00, judged on the text recorded at 0.50: ")
    assert ", as strict; " in words(loose, 1.0)


def ended(run: Run, by: str) -> Run:
    """The run as if its text had ended in that way."""
    if by == "token":
        eos = run.token_ids[-1]
        pieces = {**run.pieces, eos: Piece(b"<|im_end|>", special=True)}
        return replace(run, pieces=pieces, provenance=replace(run.provenance, eos_ids=(eos,)))
    if by == "stop":
        stop = run.pieces[run.token_ids[-1]].text
        return replace(run, settings=replace(run.settings, max_new_tokens=99, stop=(stop,)))
    return replace(run, rounds=run.rounds[:-1]) if by == "hand" else run


@pytest.mark.parametrize(
    ("by", "words"),
    [
        ("token", "ended with <|im_end|> (id {last})"),
        ("limit", "stopped at the limit of {count} token{s}"),
        ("stop", "stopped at the stop string {text}"),
        ("hand", "cut short after {count} tokens"),
    ],
)
@pytest.mark.parametrize("limit", [1, 2, 40])
def test_the_script_says_how_a_text_ended_as_python_does(decide, by: str, words: str, limit: int):
    run = ended(toy_run(rule="mars", dial=0.9, max_new_tokens=40 if by == "hand" else limit, seed=4), by)
    count = len(run.token_ids)
    (found,) = decide(run, [0.9])
    said = "".join(part if isinstance(part, str) else "<|im_end|>" for part in found["ending"])
    text = run.pieces[run.token_ids[-1]].text
    wanted = words.format(last=run.token_ids[-1], count=count, s="s" * (count > 1), text=repr(text))
    assert ending(run) == wanted
    assert said == wanted.replace(repr(text), f"“{text}”")


def test_sentence_of_a_short_text_says_what_was_written_and_how_it_ended(decide):
    def words(run: Run, dial: float | None = 0.9) -> str:
        (found,) = decide(run, [dial])
        return "".join(part if isinstance(part, str) else "…" for part in found["words"])

    for count in (1, 2, 3):
        short = toy_run(rule="mars", dial=0.9, max_new_tokens=count, seed=4)
        assert len(short.rounds) <= 2
        said = words(short)
        assert f"stopped at the limit of {count} token" in said
        assert ("Strict writes the same" in said) != ("First difference from strict" in said)
        assert "strict needs" not in said and "target passes for" not in said
    at_once = ended(toy_run(rule="mars", dial=0.9, max_new_tokens=1, seed=4), "token")
    assert words(at_once).startswith("At θ = 0.90: the target ended the text at once, with …. ")
    assert words(replace(at_once, rounds=())) == "This run has no rounds: nothing was decoded."
    strict = ended(toy_run(rule="strict", max_new_tokens=2, seed=4), "token")
    assert "Strict writes" not in words(strict, None) and "ended with …" in words(strict, None)


def test_only_a_prompt_inside_other_text_is_sent_whole():
    run = toy_chat()
    first, second = "é".encode()[:1], "é".encode()[1:] + b"\n\x1b"
    pieces = {**run.pieces, 101: Piece(first), 102: Piece(second), 103: Piece(b"Hello")}
    chat = replace(run, pieces=pieces, prompt_ids=(100, 101, 102, 100, 100, 103), prompt="Hello")
    sent = [
        ["<|im_start|>", True],
        ["é\nU+001B", False],
        ["<|im_start|>", True],
        ["<|im_start|>", True],
        ["Hello", False],
    ]
    assert run_payload(chat)["run"]["whole_prompt"] == sent
    for plain_ids in ((100, 103), (103,)):
        assert run_payload(replace(chat, prompt_ids=plain_ids))["run"]["whole_prompt"] == []
    assert load_run(RUNS / "1-story-mars").provenance.chat is None
    assert run_payload(load_run(RUNS / "1-story-mars"))["run"]["whole_prompt"] == []


def test_payload_survives_json_and_knows_equal_runs():
    run = toy_run(rule="mars", pieces={3: b"<img src=x onerror=alert(1)>", 4: b"\x00\xff", 5: "\u202e".encode()})
    payload = run_payload(run)
    sent = plain(payload)
    assert json.loads(json.dumps(sent)) == sent
    assert run_payload(toy_run(rule="mars", pieces=None))["id"] != payload["id"]
    assert run_payload(replace(run))["id"] == payload["id"]
    ids = payload["pieces"]["ids"]
    texts = dict(zip(ids.tolist(), payload["pieces"]["text"], strict=True))
    assert all(texts[token] == run.pieces[token].text for token in run.token_ids)


def test_payload_carries_every_rule_and_the_evidence():
    run = toy_run(rule="mars-sampling", temperature=1.0)
    payload = run_payload(run)
    assert [rule["name"] for rule in payload["rules"]] == list(RULES)
    follows = {rule["name"]: rule["follows"] for rule in payload["rules"]}
    assert follows == {name: rule.dial == RULES["mars-sampling"].dial for name, rule in RULES.items()}
    for sent in payload["rules"]:
        keeps = np.concatenate([RULES[sent["name"]].judge(round_.speculation).keep_strict for round_ in run.rounds])
        assert np.array_equal(sent["keep"] & 4 > 0, keeps)
    first = run.rounds[0].speculation
    ids = payload["pieces"]["ids"]
    width = payload["rows"]["top"]
    assert ids[payload["rows"]["top_token"][:width]].tolist() == first.top_ids[0, :10].tolist()
    assert np.array_equal(payload["nodes"]["top_logit"][:width], first.draft_logits[0, :10])
    chance = payload["rows"]["p_above"][0]
    emitted = run.rounds[0].verdicts.emit_above[0]
    assert chance == first.emission_p[0][first.emissions[0].tolist().index(emitted)]


def test_piece_missing_from_a_run_is_not_sent_as_something_else():
    run = toy_run(rule="mars")
    with pytest.raises(KeyError):
        run_payload(replace(run, pieces={0: Piece(b"only one")}))


def test_a_long_run_is_sent_small_and_its_evidence_in_windows():
    run = long_run(30_000)
    sent = RunPayload.of(run, None)
    assert sent.whole.columns.nbytes + len(json.dumps(sent.whole.head)) < 110 * len(run.token_ids)
    assert sent.windows * WINDOW >= len(run.rounds) > (sent.windows - 1) * WINDOW
    assert RunPayload.of(long_run(300), None).windows == 0
    lean, whole = run_payload(run, evidence=False), run_payload(run)
    for part in ("nodes", "rows"):
        for name, column in lean[part].items():
            if not name.startswith(("token", "emit")):  # of which the vocabularies differ
                np.testing.assert_array_equal(column, whole[part][name])
    assert [rule["name"] for rule in lean["rules"]] == [rule["name"] for rule in whole["rules"]]


def test_a_window_says_of_its_rounds_what_the_whole_says_of_them():
    run = long_run(3_000)
    whole = run_payload(run)
    nodes = np.concatenate([[0], np.cumsum(whole["rounds"]["nodes"])])
    last = (len(run.rounds) - 1) // WINDOW
    for index in (0, 3, last):
        first, end = index * WINDOW, min((index + 1) * WINDOW, len(run.rounds))
        part = window(run, None, round_index(run), index)
        for name in ("p", "q", "z", "rank", "coin", "breakpoint"):
            np.testing.assert_array_equal(part["nodes"][name], whole["nodes"][name][nodes[first] : nodes[end]])
        ids = (part["pieces"]["ids"], whole["pieces"]["ids"])
        rows = slice(TOP * (nodes[first] + first), TOP * (nodes[end] + end))
        np.testing.assert_array_equal(
            ids[0][part["rows"]["top_token"]], ids[1][whole["rows"]["top_token"][rows]], strict=False
        )
        for one, all_ in zip(part["rules"], whole["rules"], strict=True):
            np.testing.assert_array_equal(one["keep"], all_["keep"][nodes[first] : nodes[end]], one["name"])
