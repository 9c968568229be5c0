"""The race: what its records promise, its folder, how it is run, and what the browser is told of it."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from mars_viz.components.race.payload import LOOKS, live_payload, race_payload
from mars_viz.components.race.script import MODULES, script
from mars_viz.errors import BadInput
from mars_viz.race import Race, Solo, list_races, load_race, save_race
from mars_viz.race.making import Racing, Step, timed
from mars_viz.race.records import Lane, round_clock
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
    return replace(race, **changes)


@pytest.fixture(scope="module")
def race() -> Race:
    return toy_race()


def test_the_pace_counts_tokens_since_texts_differ_in_length(race):
    short = replace(race.relaxed, rounds=race.relaxed.rounds[:2])
    other = replace(race, relaxed=short)
    assert len(other.token_ids[Lane.RELAXED]) < len(race.token_ids[Lane.RELAXED])
    for lane in Lane:
        assert other.pace[lane] == pytest.approx(len(other.token_ids[lane]) / other.seconds[lane])


def test_seconds_are_those_of_the_lanes_clocks(race):
    assert race.seconds[Lane.ALONE] == pytest.approx(0.02 * len(race.alone.token_ids))
    assert race.seconds[Lane.RELAXED] == pytest.approx(0.03 * len(race.relaxed.rounds))
    assert race.token_ids[Lane.STRICT] == race.token_ids[Lane.ALONE]


@pytest.mark.parametrize(
    "wrong",
    [
        lambda race: Solo((1, 2), (0.1,)),
        lambda race: Solo((), ()),
        lambda race: Solo((1, 2), (0.2, 0.1)),
        lambda race: Solo((1,), (math.nan,)),
        lambda race: Solo((1,), (0.0,)),
        lambda race: replace(race, strict=replace(race.strict, prompt_ids=(1,))),
        lambda race: replace(race, relaxed=clocked(race.relaxed, 0.0)),
        lambda race: replace(race, relaxed=replace(race.relaxed, rounds=())),
        lambda race: replace(race, alone=Solo((999_999,), (0.1,))),
        lambda race: replace(
            race, relaxed=replace(race.relaxed, provenance=replace(race.relaxed.provenance, device="another"))
        ),
    ],
)
def test_what_is_no_race_is_refused(race, wrong):
    with pytest.raises(BadInput):
        wrong(race)


def test_a_race_comes_back_from_its_folder(race, tmp_path):
    path = save_race(race, tmp_path / "races" / "one")
    again = load_race(path)
    assert (again.title, again.alone, again.seconds) == (race.title, race.alone, race.seconds)
    assert race_payload(again) == race_payload(race)
    (entry,) = list_races(tmp_path / "races")
    assert (entry.title, entry.error) == ("A toy race", "")
    assert [found.name for found in (tmp_path / "races").iterdir()] == ["one"]
    with pytest.raises(BadInput, match="exists already"):
        save_race(race, path)


def damage(path: Path, how: str) -> None:
    about = json.loads((path / "race.json").read_text())
    if how == "newer":
        about["schema"] = 2
    elif how == "no race":
        about["format"] = "mars-viz-run"
    elif how == "swapped":
        about["manifests"]["strict"], about["manifests"]["relaxed"] = (
            about["manifests"]["relaxed"],
            about["manifests"]["strict"],
        )
    elif how == "backwards":
        about["alone"]["clock"].reverse()
    elif how == "extra":
        about["more"] = 1
    elif how == "missing table":
        (path / "strict" / "nodes.parquet").unlink()
    elif how == "changed table":
        (path / "relaxed" / "rows.parquet").write_bytes(b"PAR1")
    (path / "race.json").write_text("{" if how == "no JSON" else json.dumps(about))


@pytest.mark.parametrize(
    "how", ["newer", "no race", "swapped", "backwards", "extra", "missing table", "changed table", "no JSON"]
)
def test_a_damaged_race_is_refused_with_a_sentence(race, tmp_path, how):
    path = save_race(race, tmp_path / "one")
    damage(path, how)
    with pytest.raises(BadInput, match="one"):
        load_race(path)


def test_listing_a_folder_that_is_not_there_or_holds_no_race(tmp_path):
    (tmp_path / "notes").mkdir()
    assert list_races(tmp_path) == list_races(tmp_path / "nowhere") == []


def test_the_payload_tells_every_token_once_with_its_outcome_and_its_time(race):
    payload = race_payload(race)
    alone, strict, relaxed = payload["lanes"]
    assert [len(lane["rounds"]) for lane in payload["lanes"]] == [
        len(race.alone.token_ids),
        len(race.strict.rounds),
        len(race.relaxed.rounds),
    ]
    assert all(not round_["tokens"] and round_["emission"] for round_ in alone["rounds"])
    assert [round_["settled"] for round_ in relaxed["rounds"]] == round_clock(race.relaxed).tolist()
    began = [0.0, *round_clock(race.strict)]
    for told, round_, start in zip(strict["rounds"], race.strict.rounds, began, strict=False):
        assert told["drafted"] == pytest.approx(start + 0.03 / 4)
        looks = [LOOKS[look] for _, look, _ in told["tokens"]]
        assert looks == [outcome.value for outcome in round_.outcomes]
        ratio, decided_at = round_.speculation.ratio, [row for _, _, row in told["tokens"]]
        assert decided_at == pytest.approx(ratio[round_.speculation.judging_rows].tolist(), rel=1e-5)
        assert told["emission"] is None or told["emission"][2] == pytest.approx(ratio[round_.decision.row], rel=1e-5)
    assert all(round_["emission"][2] is None for round_ in alone["rounds"]) and not alone["judged"]
    gone = {Outcome.REJECTED.value, Outcome.DISCARDED.value}
    text = "".join(
        payload["pieces"][piece]
        for told in relaxed["rounds"]
        for piece, look, _ in [*told["tokens"], *([told["emission"]] if told["emission"] else [])]
        if LOOKS[look] not in gone
    )
    assert text == "".join(race.relaxed.pieces[token].text for token in race.relaxed.token_ids)
    json.dumps(payload, allow_nan=False)


def test_the_board_says_measured_times_and_ratios(race):
    board = race_payload(race)["board"]
    pace = {lane: len(race.token_ids[lane]) / race.seconds[lane] for lane in Lane}
    assert [row[0] for row in board["rows"]] == ["Autoregressive", "Strict", "MARS, θ = 0.50"]
    assert board["rows"][0][3] == "1.00 ×"
    assert board["rows"][2][3] == f"{pace[Lane.RELAXED] / pace[Lane.ALONE]:.2f} ×"
    assert board["rows"][1][-1] == "yes"
    assert all(len(row) == len(board["columns"]) for row in board["rows"])
    assert "measured once on" in board["sentence"]


def test_a_growing_run_only_adds_to_what_was_told(race):
    whole = live_payload(race.relaxed, "Once", "a")
    part = live_payload(replace(race.relaxed, rounds=race.relaxed.rounds[:3]), "Once", "a")
    assert part["lanes"][0]["rounds"] == whole["lanes"][0]["rounds"][:3]
    assert part["pieces"] == whole["pieces"][: len(part["pieces"])]
    assert live_payload(None, "Once", "a")["lanes"][0]["rounds"] == []


def test_the_script_is_joined_whole_from_small_files():
    joined = script()
    assert joined.count("export default") == 1
    assert all(name in joined for name in ("class Clock", "class Track", "class RaceView", "function fill"))
    assert MODULES[-1] == "race"


def test_times_of_another_decode_are_refused(race):
    assert timed(race.strict, race.strict.rounds).rounds[0].timing == race.strict.rounds[0].timing
    with pytest.raises(BadInput, match="same text twice"):
        timed(race.strict, race.relaxed.rounds)


@pytest.fixture(scope="module")
def made() -> Iterator[tuple[Race, list[Step]]]:
    """A real race of the built-in pair."""
    pytest.importorskip("torch")
    from mars_viz.speculators.loading import load_pair

    racing = Racing(load_pair(device="cpu"), "Once upon a time", Settings(rule="mars", gamma=4, max_new_tokens=12))
    with pytest.raises(BadInput, match="not over"):
        racing.race()
    steps = list(racing)
    yield racing.race(), steps


def test_a_real_race_is_decoded_three_times_and_strict_writes_what_the_target_writes(made, tmp_path):
    race, steps = made
    assert race.token_ids[Lane.STRICT] == race.token_ids[Lane.ALONE]
    assert len(race.alone.clock) == len(race.alone.token_ids) == 12
    for lane in (Lane.STRICT, Lane.RELAXED):
        assert {step.timed for step in steps if step.lane is lane} == {True, False}
        assert max(step.tokens for step in steps if step.lane is lane) == len(race.token_ids[lane])
    assert race.relaxed.provenance.seconds == pytest.approx(race.seconds[Lane.RELAXED])
    assert race_payload(load_race(save_race(race, tmp_path / "race"))) == race_payload(race)


def test_a_rule_without_a_dial_cannot_race():
    with pytest.raises(BadInput, match="no dial"):
        Racing(None, "Once", Settings(rule="strict"))


def test_the_race_that_is_shipped_opens_and_is_small():
    path = Path(__file__).parents[1] / "sample_races" / "1-story"
    race = load_race(path)
    assert race.token_ids[Lane.STRICT] == race.token_ids[Lane.ALONE]
    assert sum(file.stat().st_size for file in path.rglob("*") if file.is_file()) < 300_000
