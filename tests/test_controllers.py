"""Draft-length controllers against drafts that really are shorter, the target's law, and the map of their threshold."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from factories import PROMPT, ToySpeculator, processed, toy_run
from scipy import stats

import mars_viz
from mars_viz import cli
from mars_viz.controllers import ADAEDL_SLOPE, CONTROLLERS, NONE, Control, control_named
from mars_viz.costs import Cost, Costs, round_cost
from mars_viz.dialmap import DialMap, controller_span, explore
from mars_viz.errors import BadInput
from mars_viz.recording import Mapping, Recording, mapping_of
from mars_viz.records import COLUMNS, Round, Speculation
from mars_viz.replay import answers_of, shortened
from mars_viz.rules import rule_named, settle
from mars_viz.run import Run, Settings
from mars_viz.run_with_map import mapped
from mars_viz.runfiles import load_run, save_run
from mars_viz.speculators.backend import Backend
from mars_viz.speculators.draft_batch import DraftBatch
from mars_viz.speculators.evidence import gather_evidence
from mars_viz.walk import Answer, Ending, walk

NAMES = sorted(CONTROLLERS)
Told = list[tuple[tuple[int, ...], int, int]]


def by_hand(name: str, threshold: float, speculation: Speculation) -> int:
    """How many tokens a drafter would have drafted, a token at a time, as each controller's source says it."""
    surviving = 1.0
    for drafted in range(len(speculation)):
        q, law_best = float(speculation.q[drafted]), float(speculation.q_max[drafted])
        entropy = max(float(speculation.q_entropy[drafted]), 0.0)
        surviving *= q
        if name == "threshold" and law_best < threshold:
            return drafted
        if name == "adaedl" and 1 - math.sqrt(ADAEDL_SLOPE * entropy) < threshold:
            return drafted
        if name == "confidence" and q < threshold:
            return drafted + 1
        if name == "svip" and math.sqrt(0.15 * entropy) > threshold:
            return drafted + 1
        if name == "specdec++" and 1 - surviving > threshold:
            return drafted + 1
    return len(speculation)


class Stopping(ToySpeculator):
    """The toy pair, whose drafter is told to draft just as many tokens as a controller would have let it: each draft is
    made anew at that length. Shares nothing with the cut."""

    def __init__(self, settings: Settings, name: str, threshold: float, model_seed: int = 0):
        super().__init__(settings, model_seed=model_seed)
        self._name, self._threshold, self._model_seed = name, threshold, model_seed

    def speculate(self, prefixes: Sequence[tuple[int, ...]]) -> list[Answer]:  # type: ignore[override]
        found = []
        for answer, prefix in zip(super().speculate(list(prefixes)), prefixes, strict=True):
            length = by_hand(self._name, self._threshold, answer.speculation)
            if length:
                short = replace(self.settings, gamma=length)
                found += ToySpeculator(short, model_seed=self._model_seed).speculate([prefix])
            else:
                found.append(replace(answer, speculation=shortened(answer.speculation, 0)))
        return found


def told(rounds: Sequence[Round]) -> Told:
    """Of each round its text, how much was drafted and how much of that kept."""
    return [(r.token_ids, len(r.speculation), r.kept) for r in rounds]


def alone(
    settings: Settings, name: str, threshold: float, model_seed: int = 0, prompt: tuple[int, ...] = PROMPT
) -> list[tuple[tuple[int, ...], int, int]]:
    """What an independent decode by a drafter that stops makes."""
    rule = rule_named(settings.rule)
    speculator = Stopping(settings, name, threshold, model_seed)
    ending = Ending(frozenset({0}), settings.max_new_tokens)
    return told(list(walk(speculator, rule, rule.checked_dial(settings.dial), prompt, ending)))


def toy_controller_map(settings: Settings, name: str, model_seed: int = 0) -> DialMap:
    """The map of a controller's whole threshold for the toy pair."""
    rule, span = rule_named(settings.rule), controller_span(CONTROLLERS[name], None, None, (settings.gamma,))
    answers: dict[tuple[int, ...], Answer] = {}
    ending, dial = Ending(frozenset({0}), settings.max_new_tokens), rule.checked_dial(settings.dial)
    speculator = ToySpeculator(settings, model_seed=model_seed)
    for _ in explore(speculator, rule, span, PROMPT, ending, answers, dial=dial):
        pass
    frame = toy_run(rule=settings.rule, max_new_tokens=1).without_rounds
    return DialMap(replace(frame, settings=replace(settings, dial=dial)), span, answers, 0, 0.0)


def thresholds(made: DialMap, drawn: int) -> list[float]:
    """Random ones, every boundary, and the floats on either side of it."""
    found = np.random.default_rng(5).uniform(made.span.low, made.span.high, drawn).tolist()
    for segment in made.segments:
        for edge in (segment.low, segment.high):
            found += [edge, math.nextafter(edge, -math.inf), math.nextafter(edge, math.inf)]
    return [each for each in found if made.span.low <= each <= made.span.high]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "settings",
    [
        Settings(rule="mars", max_new_tokens=20, gamma=5),
        Settings(rule="rejection-sampling", temperature=1.0, seed=2, max_new_tokens=20, gamma=4),
        Settings(rule="block-verification", temperature=0.8, seed=1, max_new_tokens=16, gamma=4),
    ],
    ids=lambda settings: settings.rule,
)
def test_the_map_is_what_decodes_by_drafters_that_stop_are(name: str, settings: Settings) -> None:
    """At 200 random thresholds, on every boundary, and at the floats on either side of it: text, rounds, drafted
    tokens, kept ones. The oracle's drafts are made at their own length, from nothing that the map has."""
    made = toy_controller_map(settings, name)
    assert made.complete and len(made.segments) > 2
    for threshold in thresholds(made, 200):
        expected = alone(settings, name, threshold)
        segment = made.segment(threshold)
        assert told(segment.rounds) == expected
        assert segment.drafted == sum(drafted for _, drafted, _ in expected)
    for segment in made.segments:
        run = made.at(segment.low)
        assert told(run.rounds) == told(segment.rounds)
        assert run.settings.control == Control(CONTROLLERS[name], segment.low)
    for one, other in itertools.pairwise(made.segments):
        assert one.high == other.low
        assert told(one.rounds) != told(other.rounds)


@pytest.mark.parametrize("name", NAMES)
def test_breakpoints_are_those_of_a_drafter_that_stops(name: str) -> None:
    controller, rng = CONTROLLERS[name], np.random.default_rng(1)
    lengths = set()
    for model_seed, temperature in itertools.product(range(4), (0.0, 1.0)):
        asked = ToySpeculator(Settings(temperature=temperature, gamma=7), model_seed=model_seed)
        whole = asked.speculate([PROMPT])[0].speculation
        stops = controller.breakpoints(whole)
        order = -1 if controller.shorter_is_high else 1
        assert (np.diff(order * stops[np.isfinite(stops)]) >= 0).all()
        finite = stops[np.isfinite(stops)]
        edges = [*finite, *np.nextafter(finite, -np.inf), *np.nextafter(finite, np.inf)]
        for threshold in [*edges, *rng.uniform(controller.dial.low, controller.dial.high, 50), controller.longest]:
            length = Control(controller, float(threshold)).length(whole)
            assert length == by_hand(name, float(threshold), whole)
            lengths.add(length)
        assert Control(controller, controller.longest).length(whole) == 7
    assert min(lengths) == int(controller.keeps_last) and max(lengths) == 7


@pytest.mark.parametrize("temperature", [0.0, 0.9])
def test_a_block_without_drafts_is_all_rows_and_no_nodes(temperature: float) -> None:
    whole = ToySpeculator(Settings(temperature=temperature)).speculate([PROMPT])[0].speculation
    nothing = shortened(whole, 0)
    assert len(nothing) == 0
    for name, column in nothing.columns.items():
        assert len(column) == (0 if COLUMNS[name].per.value == "node" else 1), name


@pytest.mark.parametrize("name", NAMES)
def test_a_strict_greedy_text_is_the_targets_at_any_threshold(name: str) -> None:
    settings = Settings(rule="strict", max_new_tokens=40, gamma=6)
    made = toy_controller_map(settings, name)
    texts = {segment.token_ids for segment in made.segments}
    plain = toy_run(rule="strict", max_new_tokens=40)
    assert texts == {plain.token_ids}
    assert len({(len(segment.rounds), segment.drafted) for segment in made.segments}) > 5


@pytest.fixture(scope="module")
def sampled() -> tuple[np.ndarray, np.ndarray, list[Speculation]]:
    """10,000 blocks of three drafted tokens of bigram models over three tokens, through the real draws and evidence;
    the target's law [4, 3] by the token before (the prompt is 3), what was drafted [B, 4], and the records."""
    total, gamma, rng = 10_000, 3, np.random.default_rng(7)
    p_logits, q_logits = rng.normal(0, 1.2, (2, 4, 3)).astype(np.float32)
    p, q = (np.stack([processed(row, 1.0) for row in table]) for table in (p_logits, q_logits))
    drafts = np.full((total, gamma + 1), 3, np.int64)
    for depth in range(gamma):
        drafts[:, depth + 1] = pick(q[drafts[:, depth]], rng)
    blocks = DraftBatch.of(
        tuple(range(4, total + 4)),
        torch.from_numpy(drafts[:, 1:]),
        torch.from_numpy(q_logits[drafts[:, :-1]]),
        torch.from_numpy(p_logits[drafts]),
        sampled=True,
    )
    return p, drafts, gather_evidence(blocks, Settings(temperature=1.0, seed=9))


def pick(mass: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """One id per row of `mass`."""
    total = mass.cumsum(1)
    return np.asarray((rng.random(len(mass))[:, None] * total[:, -1:] >= total).sum(1))


def p_value(
    rule: str, lengths: Sequence[int], p: np.ndarray, drafts: np.ndarray, speculations: Sequence[Speculation]
) -> float:
    """Of a chi-square test over all 81 texts of four tokens: what is written after drafts cut to these lengths, and
    where that is shorter continued by the target, against the target's own."""
    rng, judge = np.random.default_rng(6), rule_named(rule)
    texts = np.empty((len(drafts), 4), np.int64)
    for i, (whole, length) in enumerate(zip(speculations, lengths, strict=True)):
        cut = shortened(whole, length)
        decision = settle(cut, judge.judge(cut), None)
        texts[i, : decision.row] = drafts[i, 1 : decision.row + 1]
        texts[i, decision.row] = decision.emitted
        texts[i, decision.row + 1 :] = -1
    for depth in range(1, 4):
        beyond = texts[:, depth] < 0
        texts[beyond, depth] = pick(p[texts[beyond, depth - 1]], rng)
    law = p[3]
    for _ in range(3):
        law = (law.reshape(-1, 3)[:, :, None] * p[None, :3]).reshape(-1)
    return float(stats.chisquare(np.bincount(texts @ 3 ** np.arange(3, -1, -1), minlength=81), law * len(texts)).pvalue)


@pytest.mark.parametrize(
    ("control", "rule"),  # the cut knows nothing of the rule: each controller with one, the first with both
    [
        ("confidence:0.4", "rejection-sampling"),
        ("confidence:0.4", "block-verification"),
        ("threshold:0.5", "rejection-sampling"),
        ("svip:0.37", "block-verification"),
        ("adaedl:0.55", "rejection-sampling"),
        ("specdec++:0.6", "block-verification"),
    ],
)
def test_sampling_keeps_the_targets_law(
    control: str, rule: str, sampled: tuple[np.ndarray, np.ndarray, list[Speculation]]
) -> None:
    """False-alarm probability one in a million a case."""
    p, drafts, speculations = sampled
    found = control_named(control)
    assert found is not None
    lengths = [found.length(each) for each in speculations]
    assert len(set(lengths)) >= 2 and min(np.bincount(lengths)[-1], np.bincount(lengths)[:-1].sum()) > 500
    assert p_value(rule, lengths, p, drafts, speculations) > 1e-6


def test_a_cut_that_drops_the_very_token_it_looks_at_would_not(
    sampled: tuple[np.ndarray, np.ndarray, list[Speculation]],
) -> None:
    """The plain threshold by q(x) in place of max q: the test above can fail."""
    p, drafts, speculations = sampled
    lengths = [int(np.argmax(np.append(each.q < 0.4, True))) for each in speculations]
    assert p_value("rejection-sampling", lengths, p, drafts, speculations) < 1e-9


PROMPT_TEXT = "Once upon a time, there was a little girl"


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("svip", Settings(rule="mars", max_new_tokens=24)),
        ("threshold", Settings(rule="rejection-sampling", temperature=1.0, seed=3, max_new_tokens=24, gamma=4)),
    ],
)
def test_a_map_of_real_models_is_what_recordings_by_the_controller_are(
    pair: Backend, name: str, settings: Settings
) -> None:
    wished, span = mapping_of(replace(settings, controller=name), "controller", None, None, (settings.gamma,))
    assert wished == settings
    run = Recording(pair, PROMPT_TEXT, settings).finish()
    made = Mapping(pair, PROMPT_TEXT, settings, span, run=run).finish()
    assert made.complete and len(made.segments) > 5
    assert told(made.segment(CONTROLLERS[name].longest).rounds) == told(run.rounds)
    for segment in made.segments[:: max(1, len(made.segments) // 8)]:
        control = Control(CONTROLLERS[name], (segment.low + segment.high) / 2)
        cut = Recording(pair, PROMPT_TEXT, replace(settings, controller=control.name)).finish()
        assert told(cut.rounds) == told(segment.rounds)
        assert cut.settings.control == control


def test_a_run_and_its_controller_map_go_to_a_file_and_back(pair: Backend, tmp_path: Path) -> None:
    settings = Settings(rule="mars", max_new_tokens=16)
    span = controller_span(CONTROLLERS["svip"], None, None, (6,))
    run = Recording(pair, PROMPT_TEXT, settings).finish()
    joined = mapped(run, Mapping(pair, PROMPT_TEXT, settings, span, run=run).finish())
    assert joined.dial_map is None and joined.controller_map is not None
    again = load_run(save_run(joined, tmp_path / "mapped"))
    assert again.dial_map is None and again.controller_map is not None
    assert again.controller_map.span == span
    for ours, theirs in zip(joined.controller_map.segments, again.controller_map.segments, strict=True):
        assert (ours.low, ours.high, told(ours.rounds)) == (theirs.low, theirs.high, told(theirs.rounds))
    cut = again.controller_map.at(0.1)
    assert len(cut.rounds) > len(run.rounds)
    back = load_run(save_run(cut, tmp_path / "cut"))
    assert back.settings == cut.settings and told(back.rounds) == told(cut.rounds)
    text = (tmp_path / "cut" / "manifest.json").read_text(encoding="utf-8")
    assert '"controller": "svip:0.1"' in text
    older = text.replace(',\n  "controller": "svip:0.1"', "")
    assert older != text
    (tmp_path / "cut" / "manifest.json").write_text(older, encoding="utf-8")
    assert load_run(tmp_path / "cut").settings.controller == NONE


def test_modelled_seconds_follow_what_was_drafted() -> None:
    def cost(seconds: float) -> Cost:
        return Cost(seconds, seconds, seconds)

    costs = Costs(
        device="",
        dtype="",
        target="",
        drafter="",
        cache_length=1,
        repeats=30,
        target_pass=tuple(cost(1 + 0.1 * n) for n in range(6)),
        drafter_step=cost(0.2),
        rest=tuple(cost(0.01 * n) for n in range(1, 6)),
    )
    settings = Settings(rule="mars", max_new_tokens=24, gamma=5)
    for name, extra in (("confidence", 0), ("threshold", 1)):
        made = toy_controller_map(settings, name)
        whole = made.segment(CONTROLLERS[name].longest)
        assert made.modelled_seconds(costs, whole) == pytest.approx(len(whole.rounds) * round_cost(costs, 5).seconds)
        for segment in made.segments:
            expected = 0.0
            for round_ in segment.rounds:
                n = len(round_.speculation)
                expected += 0.2 * min(5, n + extra) + 1 + 0.1 * n + 0.01 * max(n, 1)
            assert made.modelled_seconds(costs, segment) == pytest.approx(expected)


def test_names_are_written_in_one_way_and_what_is_none_is_refused() -> None:
    assert Settings(controller="svip").controller == "svip:0.3"
    assert Settings(controller="confidence:1").controller == "confidence:1"
    assert Settings().control is None
    for name in NAMES:
        control = control_named(f"{name}:0.12345678901234567")
        assert control is not None and control_named(control.name) == control
    for wrong, why in (
        ("slow", "no draft-length controller"),
        ("svip:x", "no threshold of SVIP"),
        ("svip:nan", "between 0 and 1.5"),
        ("confidence:2", "between 0 and 1"),
        (3, "must be a controller's name"),
    ):
        with pytest.raises(BadInput, match=why):
            Settings(controller=wrong)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="cuts chains"):
        Settings(controller="svip", tree="dynamic:depth=4,topk=3", gamma=8)
    with pytest.raises(BadInput, match="no controller whose threshold"):
        mapping_of(Settings(), "controller", None, None, (6,))
    with pytest.raises(BadInput, match="a map is one over"):
        mapping_of(Settings(), "γ", None, None, (6,))
    bare = ToySpeculator(Settings()).speculate([PROMPT])[0].speculation
    bare = replace(bare, columns={name: each for name, each in bare.columns.items() if name != "q_entropy"})
    with pytest.raises(BadInput, match="q entropy"):
        CONTROLLERS["svip"].breakpoints(bare)


def test_maps_of_a_cut_run_are_over_the_rules_dial_by_cut_drafts(pair: Backend) -> None:
    settings = Settings(rule="mars", max_new_tokens=20, controller="svip:0.2")
    run = Recording(pair, PROMPT_TEXT, settings).finish()
    assert {len(round_.speculation) for round_ in run.rounds} - {6}
    assert {len(answer.speculation) for answer in answers_of(run).values()} == {len(r.speculation) for r in run.rounds}
    span = mars_viz.dialmap.span_of(rule_named("mars"), 0.5, 1.0, (6,))
    made = Mapping(pair, PROMPT_TEXT, settings, span, run=run).finish()
    joined: Run = mapped(run, made)
    assert joined.dial_map is not None
    for segment in joined.dial_map.segments[::3]:
        dial = (segment.low + segment.high) / 2
        assert told(Recording(pair, PROMPT_TEXT, replace(settings, dial=dial)).finish().rounds) == told(segment.rounds)


def test_the_command_maps_a_threshold(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["map", "--prompt", "Once upon", "--over", "controller", "--controller", "svip", "--max-new-tokens", "12"]
    assert cli.main([*asked, "--out", str(tmp_path / "a"), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    made = load_run(tmp_path / "a").controller_map
    assert made is not None and told["over"] == "svip" and told["complete"]
    found = [(each["low"], each["rounds"], each["drafted"]) for each in told["segments"]]
    assert found == [(segment.low, len(segment.rounds), segment.drafted) for segment in made.segments]
    assert cli.main([*asked, "--out", str(tmp_path / "b"), "--low", "0.2", "--high", "0.4"]) == 0
    table = capsys.readouterr().out
    assert "Map from λ = 0.20 to 0.400 of SVIP: exact everywhere" in table and "drafted" in table
    assert cli.main(["record", "--prompt", "Once", "--controller", "svip:0.2", "--out", str(tmp_path / "c")]) == 0
    assert "γ = 6 cut by SVIP at λ = 0.2" in (said := capsys.readouterr().out) and "all γ tokens drafted" in said


@pytest.mark.parametrize(
    ("more", "why"),
    [
        (["--over", "controller"], "There is no controller whose threshold could be mapped"),
        (["--over", "controller", "--controller", "svip", "--gammas", "1,2"], "mapped at one draft length"),
        (["--over", "controller", "--controller", "svip", "--low", "2"], "must lie between 0 and 1.5"),
        (["--controller", "svip:much"], "is no threshold of SVIP"),
        (["--controller", "svip", "--tree", "dynamic:depth=4,topk=3,nodes=8"], "SVIP cuts chains"),
    ],
)
def test_what_cannot_be_mapped_is_refused(
    more: list[str], why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["map", "--prompt", "a", "--out", str(tmp_path / "a"), *more]) == 2
    assert why in capsys.readouterr().err and not list(tmp_path.iterdir())
