"""What the browser receives, and that its script decides, counts, names, finds and walks exactly as Python does."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from mars_viz.analysis.metrics import ending, forced, judged_rounds, summary
from mars_viz.components.explorer.element import RunPayload
from mars_viz.components.explorer.payload import TOP, WINDOW, plain, round_index, run_payload, window
from mars_viz.records import Outcome, Policy, Round
from mars_viz.rules import rule_named, settle
from mars_viz.rules.base import best_p, drafted_p
from mars_viz.run import Piece, Run
from mars_viz.runfiles import load_run
from mars_viz.samples import RUNS
from mars_viz.trace import Trace
from mars_viz.trees import depths_of, siblings_of
from mars_viz.walk import ending_of
from tests.factories import long_run, make_speculation, toy_chat, toy_run
from tests.in_node import AGAINST_STRICT, in_node
from tests.tables import random_tree
from tests.test_metrics import small_run

OUTCOMES = [*Outcome, None]
"""In the script's numbering."""
DECIDING = """
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
  };
})));
"""
SHOWING = """
const run = explorer.readRun(payload);
const reading = new explorer.Reading(run);
const KEYS = ["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown", "Home"];
console.log(JSON.stringify(dials.map((dial) => {
  reading.turn(dial);
  const { slots, pieces } = explorer.writtenTokens(reading);
  const { text, starts } = explorer.joinedText(run, pieces);
  const rounds = Array.from({ length: run.rounds }, (_, r) => {
    const all = Array.from({ length: run.count[r] + 1 }, (_, i) => run.slotAt[r] + i);
    const own = (slot) => (slot === undefined ? null : slot - run.slotAt[r]);
    return {
      shown: explorer.readingOrder(run, reading.now, r).map(own),
      leads: all.map((slot) => KEYS.map((key) => own(explorer.relative(run, reading.now, slot, key)))),
      words: explorer.treeWords(run, reading.now, r),
      places: all.slice(0, -1).map((slot) => explorer.placeOf(run, r, slot - r).join(" · ")),
    };
  });
  return {
    text, rounds, ids: Array.from(pieces, (piece) => run.pieces.ids[piece]), starts: Array.from(starts),
    places: Array.from(slots, (slot) => reading.textIndex(slot)), chunks: explorer.chunked(run, reading.recorded),
    held: Array.from({ length: text.length }, (_, place) => explorer.tokenAt(starts, place)),
  };
})));
"""
FINDING = """
const run = explorer.readRun(payload);
console.log(JSON.stringify(dials.map(([text, wanted, cased]) => explorer.occurrences(text, wanted, cased))));
"""


@pytest.fixture(scope="module")
def scripts(tmp_path_factory):
    """The script's own functions by harness: (run, dials) -> results per dial value."""
    return {text: in_node(tmp_path_factory.mktemp("script"), text) for text in (DECIDING, SHOWING, FINDING)}


@pytest.fixture(scope="module")
def decide(scripts):
    return scripts[DECIDING]


@pytest.fixture(scope="module")
def show(scripts):
    return scripts[SHOWING]


def tree_run(rule: str = "mars", stop: tuple[str, ...] = ()) -> Run:
    """Return a run of forty random trees."""
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


def dials_of(run: Run) -> list[float | None]:
    """Return both ends, the recorded value, a grid, and breakpoints and gaps with their two neighbours."""
    dial = rule_named(run.settings.rule).dial
    if dial is None:
        return [None]
    verdicts, near = [round_.verdicts for round_ in run.rounds], []
    for flips in ([found.breakpoints for found in verdicts], [found.gaps for found in verdicts]):
        exact = [b for b in np.concatenate(flips) if dial.low <= b <= dial.high][:8]
        near += [c for b in exact for c in (b, np.nextafter(b, -9), np.nextafter(b, 9))]
    near = np.clip(near, dial.low, dial.high).tolist()
    return [dial.low, dial.high, run.settings.dial, *np.linspace(dial.low, dial.high, 9).tolist(), *near]


CASES: list[Callable[[], Run]] = [
    *(
        partial(toy_run, rule=rule, temperature=temperature, max_new_tokens=limit, seed=seed)
        for rule, temperature, limit, seed in [
            ("strict", 0.0, 40, 0),
            ("block-verification", 1.0, 57, 1),
            ("mars", 0.0, 200, 2),
            ("mars-code", 0.7, 200, 2),
            ("mars-sampling", 1.0, 57, 1),
            ("cascade-token-acceptance", 0.7, 200, 2),
            ("cascade-opt", 0.7, 57, 1),
            ("regret-budget", 0.0, 40, 0),
            ("sglang-acc", 1.0, 57, 1),
        ]
    ),
    tree_run,
    partial(tree_run, "mars:siblings=draft-order"),
    partial(tree_run, "mars:siblings=longest", (" w3 w5", "w6 w1")),
]
COUNTS = {name: name for name in ("tokens", "rounds", "tau", "drafted", "kept", "relaxed")} | AGAINST_STRICT
COUNTS |= {"acceptance_rate": "acceptance", "rolled_back": "rolledBack"}
COUNTS |= {"passes_saved_autoregressive": "savedAutoregressive"}


@pytest.mark.parametrize("make", CASES)
def test_script_decides_and_counts_as_python_does(decide, make):
    run = make()
    dials = dials_of(run)
    for dial, found in zip(dials, decide(run, dials), strict=True):
        first = 0
        for index, round_ in enumerate(judged_rounds(run, dial)):
            nodes = len(round_.speculation)
            outcomes = found["outcome"][first - index : first - index + nodes]
            assert tuple(OUTCOMES[code] for code in outcomes) == round_.outcomes
            assert OUTCOMES[found["emission"][index]] == round_.emission
            assert tuple(found["tokens"][first : first + found["length"][index]]) == round_.token_ids
            first += nodes + 1
        expected, values = summary(run, dial), found["values"]
        for ours, theirs in COUNTS.items():
            assert values[theirs] == pytest.approx(getattr(expected, ours)), (ours, dial)
        assert found["otherwise"] == (expected.basis.value == "block-local")
        assert found["parted"] == expected.first_difference
        assert values["strictExact"] == (expected.strict_basis.value == "exact")
        assert found["forced"] == expected.forced_strict


def sentence(found: dict[str, Any], part: str = "words") -> str:
    return "".join(each if isinstance(each, str) else "…" for each in found[part])


def test_a_run_without_rounds_and_forced_positions(decide, tmp_path):
    (found,) = decide(replace(toy_run(), rounds=()), [0.9])
    assert found["outcome"] == found["emission"] == [] and "no rounds" in sentence(found)
    (found,) = decide(small_run(), [0.9])
    assert found["forced"] == summary(small_run()).forced_strict == 1
    assert found["forcedWords"].startswith("At 1 drafted runner-up")
    run = load_run(replace(small_run(), prompt_ids=(1, 2, 3, 4)).save(tmp_path / "run"))
    sent = run_payload(run)["rounds"]["forced"].tolist()
    assert sent == [int(forced(rule_named("mars"), Trace([round_])).sum()) for round_ in run.rounds] and sum(sent) == 1


def test_sentences_count_and_compare_with_strict(decide):
    loose = toy_run(rule="mars-sampling", temperature=1.0, max_new_tokens=57, dial=0.5)
    words, strict = map(sentence, decide(loose, [0.5, 1.0]))
    assert f"θ = 0.50: {len(loose.rounds)} target passes for 57 tokens" in words and "strict needs" in words
    assert "First difference from strict: token" in words
    assert "θ = 1.00" in strict and "recorded at 0.50" in strict and ", as strict; " in strict
    for count in (1, 2, 3):
        words = sentence(decide(toy_run(rule="mars", dial=0.9, max_new_tokens=count, seed=4), [0.9])[0])
        assert f"limit of {count} token" in words and "strict needs" not in words
        assert ("Strict writes the same" in words) != ("First difference from strict" in words)


def test_the_script_describes_the_end_of_a_text_as_python_does(decide):
    for by, limit in (("token", 40), ("limit", 1), ("limit", 40), ("stop", 2), ("hand", 40)):
        run = toy_run(rule="mars", dial=0.9, max_new_tokens=limit, seed=4)
        last = run.token_ids[-1]
        if by == "token":
            pieces = {**run.pieces, last: Piece(b"<|im_end|>", special=True)}
            run = replace(run, pieces=pieces, provenance=replace(run.provenance, eos_ids=(last,)))
        elif by == "stop":
            run = replace(run, settings=replace(run.settings, max_new_tokens=99, stop=(run.pieces[last].text,)))
        elif by == "hand":
            run = replace(run, rounds=run.rounds[:-1])
        text, words = run.pieces[run.token_ids[-1]].text, ending(run)
        parts = {"token": f"id {last}", "limit": f"limit of {limit} token", "stop": repr(text)}
        assert parts.get(by, f"after {len(run.token_ids)} tokens") in words
        written = sentence(decide(run, [0.9])[0], "ending").replace("…", "<|im_end|>")
        assert written == words.replace(repr(text), f"“{text}”")


@pytest.mark.parametrize(("temperature", "top_p"), [(0.0, 1.0), (0.7, 1.0), (0.7, 0.6)])
def test_probabilities_relative_to_the_best(decide, temperature, top_p):
    run = toy_run(rule="mars", temperature=temperature, top_p=top_p)
    (found,) = decide(run, [0.9])
    parts = [drafted_p(r.speculation) / best_p(r.speculation) for r in run.rounds]
    assert found["beside"] == pytest.approx(np.concatenate(parts).tolist(), rel=1e-4, abs=1e-6)


def test_only_a_prompt_within_a_template_is_sent_completely():
    run = toy_chat()
    first, second = "é".encode()[:1], "é".encode()[1:] + b"\n\x1b"
    pieces = {**run.pieces, 101: Piece(first), 102: Piece(second), 103: Piece(b"Hello")}
    chat = replace(run, pieces=pieces, prompt_ids=(100, 101, 102, 100, 100, 103), prompt="Hello")
    start = ["<|im_start|>", True]
    sent = [start, ["é\nU+001B", False], start, start, ["Hello", False]]
    assert run_payload(chat)["run"]["whole_prompt"] == sent
    for plain_ids in ((100, 103), (103,)):
        assert run_payload(replace(chat, prompt_ids=plain_ids))["run"]["whole_prompt"] == []
    assert load_run(RUNS / "1-story-mars").provenance.chat is None
    assert run_payload(load_run(RUNS / "1-story-mars"))["run"]["whole_prompt"] == []


def test_a_payload_is_json_and_identifies_its_run():
    run = toy_run(rule="mars", pieces={3: b"<img src=x onerror=alert(1)>", 4: b"\x00\xff", 5: "\u202e".encode()})
    payload = run_payload(run)
    sent = plain(payload)
    assert json.loads(json.dumps(sent)) == sent
    assert run_payload(toy_run(rule="mars", pieces=None))["id"] != payload["id"]
    assert run_payload(replace(run))["id"] == payload["id"]
    with pytest.raises(KeyError):
        run_payload(replace(run, pieces={0: Piece(b"only one")}))
    ids = payload["pieces"]["ids"]
    texts = dict(zip(ids.tolist(), payload["pieces"]["text"], strict=True))
    assert all(texts[token] == run.pieces[token].text for token in run.token_ids)


def test_a_long_run_is_small_and_its_evidence_comes_in_windows():
    run = long_run(30_000)
    sent = RunPayload.of(run, None)
    assert sent.columns.nbytes + len(json.dumps(sent.head)) < 110 * len(run.token_ids)
    assert sent.windows * WINDOW >= len(run.rounds) > (sent.windows - 1) * WINDOW
    assert RunPayload.of(long_run(300), None).windows == 0
    lean, whole = run_payload(run, evidence=False), run_payload(run)
    for part in ("nodes", "rows"):
        for name, column in lean[part].items():
            if not name.startswith(("token", "emit")):  # their vocabularies differ
                np.testing.assert_array_equal(column, whole[part][name])


def test_a_window_equals_its_part_of_the_complete_payload():
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


LONGEST = "mars:siblings=longest"


def children(round_: Round, row: int) -> list[int]:
    return np.flatnonzero(round_.speculation.parents + 1 == row).tolist()


@pytest.mark.parametrize("kind", ["chains", "trees"])
def test_the_text_is_the_path_of_each_dial_value_and_the_rejected_children(show, kind: str):
    run = tree_run(LONGEST) if kind == "trees" else toy_run(rule="mars", dial=0.9, gamma=4, max_new_tokens=300)
    dials = [0.5, 0.9, 0.95]
    for dial, at in zip(dials, show(run, dials), strict=True):
        judged = judged_rounds(run, dial)
        ids = [token for round_ in judged for token in round_.token_ids]
        assert at["ids"] == ids and at["text"] == run.decode(tuple(ids))
        assert at["places"] == list(range(len(ids))), "each slot is the one that wrote the token"
        assert all(at["starts"][token] <= place < at["starts"][token + 1] for place, token in enumerate(at["held"]))
        chunks = [r for chunk in at["chunks"] for r in range(chunk["first"], chunk["last"] + 1)]
        assert chunks == list(range(len(run.rounds)))
        for round_, found in zip(judged, at["rounds"], strict=True):
            emitted, kept, drafts = round_.emission, [*round_.decision.kept[: round_.kept]], len(round_.speculation)
            rejected = children(round_, round_.decision.row) if emitted is Outcome.CORRECTED else []
            after = [drafts] if emitted else []
            assert found["shown"] == ([*kept, *rejected, *after] if kind == "trees" else [*range(drafts), *after])
            if kind == "chains":
                assert found["places"] == [f"draft {i + 1} of {drafts}" for i in range(drafts)]


def test_arrow_keys_walk_parents_children_and_siblings_and_a_tree_has_words(show):
    run, seen = tree_run(LONGEST), set()
    (found,) = show(run, [0.9])
    for index, (round_, at) in enumerate(zip(judged_rounds(run, 0.9), found["rounds"], strict=True)):
        spec = round_.speculation
        parents, emission, siblings = spec.parents.tolist(), len(spec), siblings_of(spec.parents.tolist())
        head = f"Round {index + 1}: a tree of {emission} drafted tokens, {spec.depths.max()} deep; {round_.kept} kept; "
        assert at["words"].startswith(head)
        for node, (left, right, up, down, home) in enumerate(at["leads"]):
            row = round_.decision.row if node == emission else parents[node] + 1
            level = [*children(round_, row), *([emission] if row == round_.decision.row else [])]
            below = [] if node == emission else children(round_, node + 1)
            below += [emission] if node != emission and node + 1 == round_.decision.row else []
            place = level.index(node)
            assert left == (row - 1 if row else node) and home is None
            assert right in (sorted({*round_.decision.kept, emission} & {*below}) or below[:1] or [node])
            assert (up, down) == (level[max(place - 1, 0)], [*level, node][place + 1])
            seen.add((left != node, right != node, up != node, down != node))
            if node < emission:
                among = len(children(round_, row))
                sibling = f" · sibling {siblings[node] + 1} of {among}" if among > 1 else ""
                assert at["places"][node] == f"depth {spec.depths[node]} · node {node + 1} of {emission}{sibling}"
    assert len(seen) > 8
    names = [*(rule_named("mars").choosing(policy).name for policy in Policy), "mars-code"]
    words = {show(tree_run(name), [0.9])[0]["rounds"][0]["words"].split("; ")[-1] for name in names}
    assert len(words) == len(names), "every policy has its own"


TEXT = "The cat saw a\n  cat. THE  Cat\u00a0sat (a+b) on é. It is 3.5, not 375 \U0001f600 fin"


def test_words_are_found_over_white_space_and_taken_as_they_stand(scripts) -> None:
    asked = [
        ("cat", False, "(?i)cat"),
        ("cat", True, "cat"),
        ("a cat", False, r"(?i)a\s+cat"),
        ("cat sat", False, r"(?i)cat\s+sat"),
        ("3.5", False, r"3\.5"),
        ("(a+b)", False, r"\(a\+b\)"),
        ("e\u0301", False, "é"),
        ("\U0001f600 f", False, "\U0001f600 f"),
        ("[", False, r"\["),
        ("", False, "(?!)"),
        (" ", False, r"\s+"),
    ]
    found = scripts[FINDING](toy_run(rule="strict", max_new_tokens=4), [[TEXT, *each[:2]] for each in asked])
    wide = TEXT.encode("utf-16-le")  # a script counts in units of 16 bits
    for (wanted, _, pattern), places in zip(asked, found, strict=True):
        pieces = [wide[2 * begin : 2 * end].decode("utf-16-le") for begin, end in places]
        assert pieces == re.findall(pattern, TEXT) and all(pieces), wanted
