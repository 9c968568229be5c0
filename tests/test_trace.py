"""Evidence is a set of columns; all blocks at once equal one block at a time in decisions, outcomes and numbers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mars_viz.analysis.metrics import OUTCOMES, Basis, judged_rounds, positions, summary
from mars_viz.analysis.rulings import opinion
from mars_viz.components.explorer.payload import run_payload
from mars_viz.errors import BadInput
from mars_viz.exploration import mapped
from mars_viz.records import COLUMNS, Decides, Decision, Outcome, Round
from mars_viz.rules import RULES, rule_named, settle
from mars_viz.run import Run
from mars_viz.runfiles import codec, load_run
from mars_viz.trace import Speculations, Trace
from mars_viz.walk import ending_of
from tests.factories import toy_map, toy_run
from tests.test_runfiles import difference, rewritten, signed

DIALS = (None, 0.0, 0.31, 0.75, 0.9, 1.0)


def random_trees(seed: int) -> Run:
    """Return a run of random trees with random verdicts, some without tokens, with several end tokens."""
    rng = np.random.default_rng(seed)
    run = toy_run(max_new_tokens=60, seed=seed)
    rounds = tuple(grown(round_, rng) for round_ in run.rounds)
    length = sum(len(round_.token_ids) for round_ in rounds)
    ends = tuple(rng.choice(32, 3, replace=False).tolist())
    settings = replace(run.settings, max_new_tokens=length - int(rng.integers(2)))
    return replace(run, rounds=rounds, settings=settings, provenance=replace(run.provenance, eos_ids=ends))


def grown(round_: Round, rng: np.random.Generator) -> Round:
    n = len(round_.speculation) if rng.random() < 0.9 else 0
    parents = np.array([rng.integers(-1, max(i, 1)) if i else -1 for i in range(n)], np.int32)
    cut = round_.speculation.chosen(slice(n), slice(n + 1))
    speculation = replace(round_.speculation, columns=cut | {"parents": parents})
    verdicts = replace(
        round_.verdicts,
        breakpoints=np.where(rng.random(n) < 0.5, rng.random(n), np.nan),
        keep_below=rng.random(n) < 0.7,
        keep_above=rng.random(n) < 0.6,
        keep_strict=rng.random(n) < 0.5,
        row_breakpoints=np.where(rng.random(n + 1) < 0.5, rng.random(n + 1), np.nan),
        emit_below=rng.integers(0, 32, n + 1, np.int32),
        emit_above=rng.integers(0, 32, n + 1, np.int32),
    )
    decision = settle(speculation, verdicts, 0.9)
    return replace(
        round_,
        speculation=speculation,
        verdicts=verdicts,
        decision=decision,
        token_ids=(*(int(speculation.tokens[node]) for node in decision.kept), decision.emitted),
    )


def judged_one_by_one(run: Run, dial: float | None) -> tuple[Round, ...]:
    """Settle and cut each block alone, as a walk does; None is the run's own dial."""
    at = rule_named(run.settings.rule).checked_dial(run.settings.dial if dial is None else dial)
    found, text, last = [], run.token_ids, len(run.rounds) - 1
    for place, round_ in enumerate(run.rounds):
        begin = sum(len(before.token_ids) for before in run.rounds[:place])
        decision = settle(round_.speculation, round_.verdicts, at)
        block = [*(int(round_.speculation.tokens[node]) for node in decision.kept), decision.emitted]
        ending = ending_of(run) if place == last else replace(ending_of(run), limit=begin + len(block))
        found.append(replace(round_, decision=decision, token_ids=ending.cut(block, begin, text[:begin])))
    return tuple(found)


def same_as_one_by_one(run: Run, dial: float | None) -> None:
    at, own = positions(run, dial), rule_named(run.settings.rule).dial
    judged, strict = judged_one_by_one(run, dial), judged_one_by_one(run, None if own is None else own.strict)
    assert [(r.decision, r.token_ids) for r in judged_rounds(run, dial)] == [(r.decision, r.token_ids) for r in judged]
    settled, firsts = run.trace.settled(at.dial), run.trace.firsts
    for place, (first, round_) in enumerate(zip(firsts.tolist(), judged, strict=True)):
        kept = tuple(np.flatnonzero(settled.kept[first : first + len(round_.speculation)]).tolist())
        assert Decision(kept, int(settled.rows[place]), int(settled.emitted[place])) == round_.decision
    assert [OUTCOMES[code] for code in at.outcomes] == [one for round_ in judged for one in round_.outcomes]
    assert [OUTCOMES[code] for code in at.strict_outcomes] == [one for round_ in strict for one in round_.outcomes]
    changed = any(new.decision != old.decision for new, old in zip(judged, run.rounds, strict=True))
    assert at.basis is (Basis.BLOCK_LOCAL if changed else Basis.EXACT)
    found, outcomes = summary(run, dial), [one for round_ in judged for one in round_.outcomes]
    assert found.basis is at.basis
    assert (found.tokens, found.rounds) == (sum(len(round_.token_ids) for round_ in judged), len(judged))
    assert (found.drafted, found.kept) == (len(outcomes), sum(round_.kept for round_ in judged))
    assert found.rolled_back == sum(round_.rolled_back for round_ in judged)
    assert found.relaxed == outcomes.count(Outcome.RELAXED)
    assert found.strict_tokens == sum(len(round_.token_ids) for round_ in strict)
    assert found.strict_tau == found.strict_tokens / len(strict)
    specs = [round_.speculation for round_ in judged]
    for name, read in {
        "z1": lambda s: s.z1[s.judging_rows],
        "z2": lambda s: s.z2[s.judging_rows],
        "ratio": lambda s: s.ratio[s.judging_rows],
        "runner_up": lambda s: s.top_ids[s.judging_rows, 1] == s.tokens,
    }.items():
        found, wanted = getattr(at, name), np.concatenate([read(spec) for spec in specs])
        assert found.dtype == wanted.dtype
        np.testing.assert_array_equal(found, wanted)
    assert at.movable.tolist() == [not np.isnan(b) for round_ in judged for b in round_.verdicts.breakpoints]
    assert at.round_index.tolist() == [i for i, spec in enumerate(specs) for _ in range(len(spec))]


@pytest.mark.parametrize("seed", range(8))
def test_trees_with_several_ends(seed):
    run = random_trees(seed)
    for dial in DIALS:
        same_as_one_by_one(run, dial)


@pytest.mark.parametrize("rule", ["strict", "mars", "mars-code", "cascade-token-acceptance", "regret-budget"])
def test_rules_with_and_without_gaps(rule):
    own, run = rule_named(rule).dial, toy_run(rule=rule, temperature=0.8, seed=5, max_new_tokens=47)
    for value in (None,) if own is None else (None, own.low, own.high, (own.low + own.high) / 2):
        same_as_one_by_one(run, value)


@pytest.mark.parametrize(("seed", "stop"), [(0, ("w1", "5 w2")), (1, ("3",)), (2, ("2 w1", "no")), (3, (" w7 w",))])
def test_stop_strings_that_end_blocks_before_the_last(seed, stop):
    run = toy_run(temperature=0.9, seed=seed, max_new_tokens=60)
    stopped = replace(run, settings=replace(run.settings, stop=stop))
    changes = [r.outcomes for r in judged_rounds(run, 0.5)] != [r.outcomes for r in judged_rounds(stopped, 0.5)]
    assert changes or stop != ("w1", "5 w2")
    for dial in DIALS:
        same_as_one_by_one(stopped, dial)


def test_traces_of_versions_of_a_run():
    run = toy_run(max_new_tokens=80)
    assert run.trace is run.trace and len(replace(run, rounds=run.rounds[:1]).trace) == 1
    assert run.trace.settled(run.settings.dial).same_as(run.trace.recorded)
    assert not run.trace.settled(1.0).same_as(run.trace.recorded)
    assert len(Trace(())) == len(positions(replace(run, rounds=()))) == 0


@pytest.mark.parametrize(("rule", "evidence"), [("mars", True), ("cascade-token-acceptance", False), ("strict", True)])
def test_a_loaded_run_has_the_payload_of_its_rounds(tmp_path, rule, evidence):
    run = load_run(toy_run(rule=rule, temperature=0.8, seed=3, max_new_tokens=70).save(tmp_path / "run"))
    anew = replace(run, rounds=tuple(map(replace, run.rounds)))
    assert run_payload(run, evidence=evidence)["id"] == run_payload(anew, evidence=evidence)["id"]


@pytest.fixture(scope="module")
def run():
    made = toy_run(rule="mars-sampling", temperature=0.8, max_new_tokens=30)
    return mapped(made, toy_map(replace(made.settings, dial=None), 0.5)[0])


def test_without_a_column_that_all_rules_decide_by_a_file_is_refused(run):
    files = codec.encode(run)
    for name, column in COLUMNS.items():
        if column.decides is not Decides.NEVER:
            table = "nodes" if column.per.value == "node" else "rows"
            less = rewritten(files[f"{table}.parquet"], lambda columns, name=name: columns.drop_columns([name]))
            with pytest.raises(BadInput, match=f"{table}.parquet lacks the column {name}"):
                codec.decode(signed(files, **{table: less}))


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_a_run_of_deciding_columns_alone_opens_and_says_what_rules_lack(tmp_path, temperature):
    whole = toy_run(temperature=temperature, max_new_tokens=30)
    kept, rounds = {name for name, column in COLUMNS.items() if column.required(temperature)}, []
    for round_ in whole.rounds:
        held = {name: column for name, column in round_.speculation.columns.items() if name in kept}
        rounds.append(replace(round_, speculation=replace(round_.speculation, columns=held)))
    light = load_run(replace(whole, rounds=rounds).save(tmp_path / "run"))
    assert light.token_ids == whole.token_ids and summary(light) == summary(whole)
    assert light.trace.speculations.columns.keys() < whole.trace.speculations.columns.keys()
    first = light.rounds[0].speculation
    assert np.isnan(first.js).all() and first.draft_ids.shape == (len(first), 0) and not first.ranks.any()
    assert light.to_frame().js.isna().all() and run_payload(light)["nodes"]["top"] == 0
    for name, rule in RULES.items():
        lacks = set(rule.needed(first)) - first.columns.keys()
        assert bool(opinion(rule, light).lacks) >= bool(lacks), name
        if not lacks and not rule.lacks(first):
            ours, theirs = (opinion(rule, each).verdicts.keep_strict for each in (light, whole))
            np.testing.assert_array_equal(ours, theirs)


def test_rounds_of_a_trace_are_views_of_its_columns(run):
    trace = codec.decode(codec.encode(run)).trace
    assert trace[0] is trace[0] and trace[-1] is trace[len(trace) - 1]
    assert np.shares_memory(trace[1].speculation.z, trace.speculations.columns["z"])
    part = trace[1:4]
    assert isinstance(part, Trace) and len(part) == 3 and not difference(part[1], trace[2])
    assert part.text.tolist() == [token for round_ in list(trace)[1:4] for token in round_.token_ids]
    assert len(trace[3:1]) == 0 and [r.token_ids for r in trace[::-1]] == [r.token_ids for r in reversed(list(trace))]
    assert len((*trace[:2], *trace[2:])) == len(trace) and not difference(Trace((*trace[:2], *trace[2:]))[2], trace[2])
    one, other = (round_.speculation for round_ in run.rounds[:2])
    less = replace(other, columns={name: column for name, column in other.columns.items() if name != "js"})
    both = Speculations.of([one, less])  # which has the columns that both have
    assert both.columns.keys() == one.columns.keys() - {"js"} and RULES["fuzzy"].lacks_for(both)


def test_unknown_columns_are_ignored(run):
    files = codec.encode(run)
    more = rewritten(files["nodes.parquet"], lambda columns: columns.append_column("later", columns["z"]))
    assert not difference(codec.decode(signed(files, nodes=more)), run)
