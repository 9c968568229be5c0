from __future__ import annotations

import json
import math
from dataclasses import replace
from itertools import groupby
from typing import Any

import pytest

from mars_viz import race as races
from mars_viz.components.race import LOOKS, live_payload, race_payload, racing_payload
from mars_viz.errors import BadInput
from mars_viz.race import Race, RaceLane, RaceTexts, Racing, Solo, load_race, round_clock, save_race
from mars_viz.records import Outcome, Timing
from mars_viz.run import Run, Settings
from tests.factories import toy_run


def clocked(run: Run, step: float) -> Run:
    timing = Timing(draft=step / 4, verify=step / 2, total=step)
    return replace(run, rounds=tuple(replace(round_, timing=timing) for round_ in run.rounds))


def toy_race(**changes: object) -> Race:
    """A relaxed lane beside a strict one, which writes what the target alone writes."""
    strict = clocked(toy_run(rule="strict", max_new_tokens=40), 0.03)
    relaxed = clocked(toy_run(rule="mars", dial=0.5, max_new_tokens=40), 0.03)
    pieces = {**strict.pieces, **relaxed.pieces}
    solo = Solo(strict.token_ids, tuple(0.02 * (i + 1) for i in range(len(strict.token_ids))))
    race = Race("A toy race", solo, replace(strict, pieces=pieces, prompt="Once"), replace(relaxed, prompt="Once"))
    return replace(turned(race, 0.9, 1.0, 1.3), **changes)


def turned(race: Race, *slower: float, disturbed: float = 1.0) -> Race:
    """The race in turns, each slower by a factor; the target alone is disturbed in all turns but the middle one."""
    alone, strict, relaxed = race.seconds.values()
    turns = ((alone * by * (disturbed if by != 1 else 1), strict * by, relaxed * by) for by in slower)
    return replace(race, turns=tuple(turns))


@pytest.fixture(scope="module")
def race():
    return toy_race()


def test_the_pace_counts_tokens_since_texts_differ_in_length(race):
    other = replace(race, relaxed=replace(race.relaxed, rounds=race.relaxed.rounds[:2]), turns=())
    assert len(other.token_ids[RaceLane.RELAXED]) < len(race.token_ids[RaceLane.RELAXED])
    for lane in RaceLane:
        assert other.rows[[*RaceLane].index(lane)]["tokens_per_second_measured"] == pytest.approx(
            len(other.token_ids[lane]) / other.seconds[lane]
        )
    assert race.seconds[RaceLane.ALONE] == pytest.approx(0.02 * len(race.alone.token_ids))
    assert race.seconds[RaceLane.RELAXED] == pytest.approx(0.03 * len(race.relaxed.rounds))
    taken = race.taken[RaceLane.RELAXED].tolist()
    assert taken == pytest.approx([race.seconds[RaceLane.RELAXED] * by for by in (0.9, 1, 1.3)])
    assert all(row["seconds_least"] < row["seconds_measured"] < row["seconds_most"] for row in race.rows)


def test_inconsistent_races_are_refused(race):
    elsewhere = replace(race.relaxed.provenance, device="another")
    for wrong in (
        lambda: Solo((1, 2), (0.1,)),
        lambda: Solo((), ()),
        lambda: Solo((1, 2), (0.2, 0.1)),
        lambda: Solo((1,), (math.nan,)),
        lambda: Solo((1,), (0.0,)),
        lambda: replace(race, strict=replace(race.strict, prompt_ids=(1,))),
        lambda: replace(race, relaxed=clocked(race.relaxed, 0.0)),
        lambda: replace(race, relaxed=replace(race.relaxed, rounds=())),
        lambda: replace(race, alone=Solo((999_999,), (0.1,))),
        lambda: replace(race, relaxed=replace(race.relaxed, provenance=elsewhere)),
        lambda: races.timed(race.strict, race.relaxed.rounds),
        lambda: Racing(None, "Once", Settings(rule="mars"), turns=4),
        lambda: Racing(None, "Once", Settings(rule="strict")),
    ):
        with pytest.raises(BadInput):
            wrong()
    assert races.timed(race.strict, race.strict.rounds).rounds[0].timing == race.strict.rounds[0].timing


def test_the_payload_has_every_token_once_with_its_outcome_and_its_time(race):
    payload = race_payload(race)
    alone, strict, relaxed = payload["lanes"]
    lengths = [len(race.alone.token_ids), len(race.strict.rounds), len(race.relaxed.rounds)]
    assert [len(lane["rounds"]) for lane in payload["lanes"]] == lengths and not alone["judged"]
    assert all(not each["tokens"] and each["emission"] and each["emission"][2] is None for each in alone["rounds"])
    assert [each["settled"] for each in relaxed["rounds"]] == round_clock(race.relaxed).tolist()
    began = [0.0, *round_clock(race.strict)]
    for sent, round_, start in zip(strict["rounds"], race.strict.rounds, began, strict=False):
        assert sent["drafted"] == pytest.approx(start + 0.03 / 4)
        assert [LOOKS[look] for _, look, _ in sent["tokens"]] == [outcome.value for outcome in round_.outcomes]
        ratio, decided_at = round_.speculation.ratio, [row for _, _, row in sent["tokens"]]
        assert decided_at == pytest.approx(ratio[round_.speculation.judging_rows].tolist(), rel=1e-5)
        assert sent["emission"] is None or sent["emission"][2] == pytest.approx(ratio[round_.decision.row], rel=1e-5)
    shown = [each for sent in relaxed["rounds"] for each in [*sent["tokens"], *filter(None, [sent["emission"]])]]
    gone = {Outcome.REJECTED.value, Outcome.DISCARDED.value}
    text = "".join(payload["pieces"][piece] for piece, look, _ in shown if LOOKS[look] not in gone)
    assert text == "".join(race.relaxed.pieces[token].text for token in race.relaxed.token_ids)
    json.dumps(payload, allow_nan=False)


def test_a_race_of_one_turn_has_no_interval_and_is_read_as_before(race, tmp_path):
    once = replace(race, turns=())
    board = race_payload(once)["board"]
    assert "measured once, so without an interval" in board["sentence"] and "(" not in board["rows"][2][3]
    path = save_race(once, tmp_path / "one")
    about = json.loads((path / "race.json").read_text())
    (path / "race.json").write_text(json.dumps({k: v for k, v in about.items() if k != "turns"} | {"schema": 1}))
    assert race_payload(load_race(path)) == race_payload(once)


def test_nothing_is_faster_than_tau_over_the_target_alone(race):
    one = replace(race, turns=(race.turns[0], race.turns[1], (30.0, *race.turns[2][1:])))
    found = one.over(RaceLane.RELAXED, RaceLane.ALONE)
    assert one.objection == "" and found.high == race.relaxed.tau and found.estimate < found.high
    two = turned(race, 0.9, 1.0, 1.3, disturbed=40.0)
    assert "cannot be with τ" in two.objection and "race again" in two.objection
    board = race_payload(two)["board"]
    assert board["sentence"] == two.objection and [row[3] for row in board["rows"]] == ["1.00 ×", *["disturbed"] * 2]
    assert [(row["over_autoregressive_measured"], row["turns"]) for row in two.rows] == [(None, 3)] * 3


def test_lanes_are_shown_as_far_as_they_have_got(race):
    def written(payload: dict[str, Any]) -> list[list[str]]:
        return [[payload["pieces"][piece] for piece, *_ in each["tokens"]] for each in payload["lanes"][1]["rounds"]]

    strict, mars = replace(race.strict, rounds=race.strict.rounds[:2]), Settings(rule="mars", gamma=4)
    first = racing_payload(RaceTexts(("a", "b"), strict), "Once", mars, "job")
    assert [len(lane["rounds"]) for lane in first["lanes"]] == [2, 2, 0] and first["live"] and first["board"] is None
    later, whole = racing_payload(RaceTexts(("a",), race.strict, race.relaxed), "Once", mars, "job"), race_payload(race)
    assert [len(lane["rounds"]) for lane in later["lanes"]][1:] == [len(lane["rounds"]) for lane in whole["lanes"]][1:]
    assert later["id"] == first["id"] and written(later)[:2] == written(first)
    rounds = live_payload(race.relaxed, "Once", "a")["lanes"][0]["rounds"]
    part = live_payload(replace(race.relaxed, rounds=race.relaxed.rounds[:3]), "Once", "a")
    assert part["lanes"][0]["rounds"] == rounds[:3] and live_payload(None, "Once", "a")["lanes"][0]["rounds"] == []
    tree = Settings(rule="mars", gamma=10, tree="dynamic:depth=4,topk=3")
    drafted = replace(race, relaxed=replace(race.relaxed, settings=tree))
    for payload in (race_payload(drafted), racing_payload(RaceTexts(()), "Once", tree, "job")):
        notes = [lane["note"] for lane in payload["lanes"]]
        assert all("tree of 10 nodes, depth 4, branching 3" in note for note in notes[1:])
        assert "lossless" in notes[1] and "relaxed" in notes[2]


def test_lanes_of_a_real_race_take_turns_and_strict_writes_the_targets_text(pair, tmp_path):
    racing = Racing(pair, "Once upon a time", Settings(rule="mars", gamma=4, max_new_tokens=12), turns=3)
    assert racing.texts() == RaceTexts()
    with pytest.raises(BadInput, match="not over"):
        racing.race()
    steps = []
    for step in racing:
        steps.append(step)
        if step.turn == races.RECORDED:
            texts = racing.texts()
            speculative = [run and run.token_ids for run in (texts.strict, texts.relaxed)]
            assert len(dict(zip(RaceLane, [texts.alone, *speculative], strict=True))[step.lane]) == step.tokens
    race = racing.race()
    assert race.token_ids[RaceLane.STRICT] == race.token_ids[RaceLane.ALONE]
    assert len(race.alone.clock) == len(race.alone.token_ids) == 12
    order = [key for key, _ in groupby(steps, key=lambda step: (step.turn, step.lane))]
    assert order == [(turn, lane) for turn in range(4) for lane in RaceLane]
    assert len(race.turns) == 3 and (race.objection == "" or "cannot be" in race.objection)
    for lane in (RaceLane.STRICT, RaceLane.RELAXED):
        assert max(step.tokens for step in steps if step.lane is lane) == len(race.token_ids[lane])
    assert race.relaxed.provenance.seconds == pytest.approx(race.seconds[RaceLane.RELAXED])
    assert race_payload(load_race(save_race(race, tmp_path / "race"))) == race_payload(race)


def test_a_damaged_race_is_refused_with_its_name(race, tmp_path):
    path = save_race(race, tmp_path / "one")
    sound = (path / "race.json").read_text()
    manifests = json.loads(sound)["manifests"]
    assert list(manifests) == ["strict", "relaxed"]
    damaged = [("race.json", b"{"), ("strict/nodes.parquet", b"PAR1"), ("relaxed/rows.parquet", None)]
    for damage in (
        lambda about: about.update(schema=3),
        lambda about: about.update(format="mars-viz-run"),
        lambda about: about.update(manifests=dict(zip(("relaxed", "strict"), manifests.values(), strict=True))),
        lambda about: about["turns"].__setitem__(1, [1.0, 2.0, 3.0]),
        lambda about: about["turns"][0].pop(),
        lambda about: about["alone"]["clock"].reverse(),
        lambda about: about.update(more=1),
    ):
        about = json.loads(sound)
        damage(about)
        damaged.append(("race.json", json.dumps(about).encode()))
    for file, data in damaged:
        before = (path / file).read_bytes()
        (path / file).unlink() if data is None else (path / file).write_bytes(data)
        with pytest.raises(BadInput, match="one"):
            load_race(path)
        (path / file).write_bytes(before)
    assert load_race(path)


def test_the_board_has_measured_times_and_ratios(race):
    board = race_payload(race)["board"]
    pace = {lane: len(race.token_ids[lane]) / race.seconds[lane] for lane in RaceLane}
    assert [row[0] for row in board["rows"]] == ["Autoregressive", "Strict", "MARS, θ = 0.50"]
    assert board["rows"][0][3] == "1.00 ×" and board["rows"][0][1] == "0.80 s (0.72 to 1.04)"
    assert board["rows"][2][3] == f"{pace[RaceLane.RELAXED] / pace[RaceLane.ALONE]:.2f} ×"  # all turns alike
    assert board["rows"][1][-1] == "yes" and "3 turns" in board["sentence"]
    assert all(len(row) == len(board["columns"]) for row in board["rows"])
    varied = replace(race, turns=((0.9, 0.5, 1.2), race.turns[1], (0.6, 0.5, 1.1)))
    ratio = varied.over(RaceLane.RELAXED, RaceLane.ALONE)
    assert race_payload(varied)["board"]["rows"][2][3].endswith(f"({ratio.low:.2f} to {ratio.high:.2f})")
