from __future__ import annotations

import inspect
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from factories import ToySpeculator, processed, rank, toy_run

from mars_viz import frames
from mars_viz.records import Outcome
from mars_viz.rules import RULES
from mars_viz.run import Piece, Run

LEADING = "round depth token_id text outcome z1 z2 ratio margin z_x rank p_x q_x logsumexp entropy coin breakpoint"
DRAFTED = "q_x coin breakpoint gap_from node sibling q_max q_entropy total_variation kl_pq kl_qp js"
DRAFTED_ONLY = DRAFTED.split()


@pytest.fixture(scope="module")
def run() -> Run:
    return toy_run(rule="mars-sampling", temperature=0.8, top_p=0.95, dial=0.85, seed=3)


@pytest.fixture(scope="module")
def frame(run: Run) -> pd.DataFrame:
    return run.to_frame()


def emitted(frame: pd.DataFrame) -> pd.DataFrame:
    return frame[frame.position.notna()]


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_emitted_rows_are_the_text_in_order(rule: str, temperature: float) -> None:
    run = toy_run(rule=rule, temperature=temperature, seed=1)
    text = emitted(run.to_frame())
    assert tuple(text.token_id) == run.token_ids
    assert list(text.position) == list(range(len(run.prompt_ids), len(run.prompt_ids) + len(run.token_ids)))
    assert "".join(text.text) == run.text + ("<end>" if run.token_ids[-1] == 0 else "")


def test_there_is_a_row_for_every_draft_and_every_emission(run: Run, frame: pd.DataFrame) -> None:
    assert list(frame.columns[: len(LEADING.split())]) == LEADING.split()
    for index, round_ in enumerate(run.rounds):
        rows = frame[frame["round"] == index]
        outcomes = [outcome.name for outcome in round_.outcomes]
        outcomes += [round_.emission.name] if round_.emission else []
        assert list(rows.outcome) == outcomes
        assert list(rows.depth[: len(round_.speculation)]) == list(range(1, len(round_.speculation) + 1))
        if round_.emission:
            assert rows.depth.iloc[-1] == round_.kept + 1
    assert {"MATCHED", "RELAXED", "REJECTED", "DISCARDED", "CORRECTED"} <= set(frame.outcome)
    assert (frame.position.isna() == frame.outcome.isin(["REJECTED", "DISCARDED"])).all()


def test_a_row_says_what_the_models_said(run: Run, frame: pd.DataFrame) -> None:
    toy = ToySpeculator(run.settings)
    s = run.settings
    context = [*run.prompt_ids, *run.token_ids]
    for _, rows in frame.groupby("round"):
        before = context[run.rounds[int(rows["round"].iloc[0])].speculation.start - 1]
        drafts = {-1: before} | dict(zip(rows.node.dropna(), rows.token_id[rows.node.notna()], strict=True))
        for row in rows.itertuples():
            z = toy.target[drafts[row.parent]]
            best = np.sort(z)[::-1]
            law = processed(z, s.temperature, s.top_k, s.top_p)
            plain = processed(z, 0.0)
            assert (row.z1, row.z2, row.z_x) == (best[0], best[1], z[row.token_id])
            assert row.ratio == float(best[1]) / float(best[0]) and row.margin == float(best[0]) - float(best[1])
            assert row.rank == rank(z, row.token_id)
            assert row.p_x == pytest.approx(law[row.token_id], rel=1e-5)
            assert row.logsumexp == pytest.approx(np.log(np.exp(z.astype(float)).sum()), rel=1e-6)
            assert row.entropy == pytest.approx(-(plain * np.log(plain)).sum(), rel=1e-5)
            if row.outcome not in ("CORRECTED", "BONUS"):
                q = processed(toy.drafter[drafts[row.parent]], s.temperature, s.top_k, s.top_p)
                assert row.q_x == pytest.approx(q[row.token_id], rel=1e-5)
                assert row.q_max == pytest.approx(q.max(), rel=1e-5)
                assert row.total_variation == pytest.approx(abs(law - q).sum() / 2, rel=1e-4)


def test_only_drafts_have_what_only_drafts_have(frame: pd.DataFrame) -> None:
    added = frame.outcome.isin(["CORRECTED", "BONUS"])
    assert frame.loc[added, DRAFTED_ONLY].isna().all(axis=None)
    always = [name for name in DRAFTED_ONLY if name not in ("breakpoint", "gap_from")]
    assert frame.loc[~added, always].notna().all(axis=None)
    assert frame.drop(columns=[*DRAFTED_ONLY, "position"]).notna().all(axis=None)


def test_breakpoints_decide(run: Run, frame: pd.DataFrame) -> None:
    relaxed = frame[frame.outcome == "RELAXED"]
    assert len(relaxed) and (relaxed.breakpoint > run.settings.dial).all()
    assert (relaxed.breakpoint == relaxed.ratio).all()
    assert frame.gap_from.isna().all()


def test_gaps_decide() -> None:
    runs = [toy_run(rule="cascade-token-acceptance", temperature=1.0, seed=seed) for seed in range(12)]
    frame, at = pd.concat([frames.run_frame(run) for run in runs]), runs[0].settings.dial
    told = frame[frame.gap_from.notna() & (frame.outcome != "DISCARDED")]
    inside = (told.gap_from <= at) & (at < told.breakpoint)
    assert len(told) > len(told[inside]) > 0
    assert (told.outcome[inside] == "REJECTED").all() and (told.outcome[~inside] == "MATCHED").all()


def test_a_text_cut_inside_a_block_has_no_correction_row() -> None:
    runs = (toy_run(temperature=1.0, seed=seed, max_new_tokens=7) for seed in range(99))
    run = next(run for run in runs if run.rounds[-1].emission is None)
    last = run.to_frame().query(f"round == {len(run.rounds) - 1}")
    assert len(last) == len(run.rounds[-1].speculation)
    assert last.position.count() == len(run.rounds[-1].token_ids)


def test_a_tree_is_listed_by_depth(run: Run) -> None:
    first = run.rounds[0]
    s = first.speculation
    shape = {
        "parents": np.array([-1, 0, -1], np.int32),
        "depths": np.array([1, 2, 1], np.int32),
        "siblings": np.array([0, 0, 1], np.int32),
    }
    v = first.verdicts
    verdicts = replace(
        v,
        **{
            name: getattr(v, name)[: 4 if "row" in name or "emit" in name else 3]
            for name in v.__slots__
            if isinstance(getattr(v, name), np.ndarray)
        },
    )
    decision = replace(first.decision, kept=(), row=0, emitted=int(s.emissions[0, 0]))
    tree = replace(
        first,
        speculation=replace(s, columns=s.chosen(slice(3), slice(4)) | shape),
        verdicts=verdicts,
        decision=decision,
    )
    frame = replace(run, rounds=(replace(tree, token_ids=(decision.emitted,)),)).to_frame()
    assert list(frame.node) == [0, 2, 1, pd.NA]
    assert list(frame.token_id[:3]) == [s.tokens[0], s.tokens[2], s.tokens[1]]
    assert list(frame.parent) == [-1, -1, 0, -1]
    assert list(frame.outcome) == ["REJECTED", "DISCARDED", "DISCARDED", "CORRECTED"]
    assert frame.z1[1] == s.z1[0] and frame.z1[2] == s.z1[1]  # siblings share the row that judges them


def test_ties_and_odd_texts_are_told(run: Run) -> None:
    first = run.rounds[0]
    logits = first.speculation.top_logits.copy()
    logits[0, :] = 12.0
    tied = replace(first, speculation=first.speculation.with_columns({"top_logits": logits}))
    token = int(first.speculation.tokens[0])
    odd = replace(run, rounds=(tied,), pieces={**run.pieces, token: Piece(b"<b>\xf0\x9f")})
    frame = odd.to_frame()
    assert frame.tie[0] and not frame.tie[1]
    assert frame.ratio[0] == 1 and frame.margin[0] == 0
    assert frame.text[0] == "<b>\\xf0\\x9f"


def test_types_do_not_depend_on_the_run(run: Run, frame: pd.DataFrame) -> None:
    empty = replace(run, rounds=()).to_frame()
    assert len(empty) == 0 and empty.dtypes.equals(frame.dtypes)
    greedy = toy_run(rule="strict", gamma=1, max_new_tokens=3).to_frame()
    assert greedy.dtypes.equals(frame.dtypes)


def test_every_column_is_explained(frame: pd.DataFrame) -> None:
    lines = [line.split("|")[1] for line in inspect.getdoc(frames.run_frame).splitlines() if line.startswith("| ")]
    explained = [name.strip() for line in lines[1:] for name in line.split(",")]
    assert explained == list(frame.columns)
    assert all(outcome.name in inspect.getdoc(frames.run_frame) for outcome in Outcome)
