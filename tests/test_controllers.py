"""Draft-length controllers: against drafts that really are shorter, the target's law, and maps of thresholds."""

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
from rule_cases import unlike

from mars_viz import cli
from mars_viz.axis import Threshold
from mars_viz.controllers import ADAEDL_SLOPE, CONTROLLERS, NONE, Control, control_named
from mars_viz.errors import BadInput
from mars_viz.exploration import DialMap, Walker, explore, mapped, walk
from mars_viz.recording import Mapping, Recording, mapping_of
from mars_viz.records import Round, Speculation
from mars_viz.rules import rule_named, settle
from mars_viz.run import Settings
from mars_viz.runfiles import load_run, save_run
from mars_viz.speculators.backend import Backend
from mars_viz.speculators.draft import DraftBatch
from mars_viz.speculators.evidence import gather_evidence
from mars_viz.walk import Answer, Ending, shortened

NAMES = sorted(CONTROLLERS)


def by_hand(name: str, threshold: float, speculation: Speculation) -> int:
    """Return how many tokens a drafter drafts one at a time, by each controller's source."""
    surviving = 1.0
    if name == "length":
        return min(int(threshold), len(speculation))
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
    """The toy pair with a drafter that drafts exactly as many tokens as a controller allows, without any cut."""

    def __init__(self, settings: Settings, name: str, threshold: float, model_seed: int = 0):
        super().__init__(settings, model_seed=model_seed)
        self._name, self._threshold, self._model_seed = name, threshold, model_seed

    def speculate(self, prefixes: Sequence[tuple[int, ...]]) -> list[Answer]:  # type: ignore[override]
        found = []
        for answer, prefix in zip(super().speculate(list(prefixes)), prefixes, strict=True):
            length = by_hand(self._name, self._threshold, answer.speculation)
            short = ToySpeculator(replace(self.settings, gamma=max(length, 1)), model_seed=self._model_seed)
            nothing = [replace(answer, speculation=shortened(answer.speculation, 0))]
            found += short.speculate([prefix]) if length else nothing
        return found


def told(rounds: Sequence[Round]) -> list[tuple[tuple[int, ...], int, int]]:
    """Return each round's text, drafted and kept tokens."""
    return [(r.token_ids, len(r.speculation), r.kept) for r in rounds]


def alone(
    settings: Settings, name: str, threshold: float, model_seed: int = 0, prompt: tuple[int, ...] = PROMPT
) -> list[tuple[tuple[int, ...], int, int]]:
    """Return the rounds of an independent decode by a drafter that stops."""
    rule = rule_named(settings.rule)
    speculator = Stopping(settings, name, threshold, model_seed)
    ending = Ending(frozenset({0}), settings.max_new_tokens)
    return told(list(walk(speculator, rule, rule.checked_dial(settings.dial), prompt, ending)))


def toy_controller_map(settings: Settings, name: str, model_seed: int = 0) -> DialMap:
    """Return the toy pair's map over a controller's whole threshold."""
    rule, axis = rule_named(settings.rule), Threshold(CONTROLLERS[name], settings.gamma)
    span = axis.span(None, None, (settings.gamma,))
    answers: dict[tuple[int, ...], Answer] = {}
    ending, dial = Ending(frozenset({0}), settings.max_new_tokens), rule.checked_dial(settings.dial)
    speculator = ToySpeculator(settings, model_seed=model_seed)
    for _ in explore(speculator, [Walker(rule, PROMPT, ending, dial=dial, span=span, answers=answers)]):
        pass
    frame = toy_run(rule=settings.rule, max_new_tokens=1).without_rounds
    return DialMap(replace(frame, settings=replace(settings, dial=dial)), span, answers, 0, 0.0)


CHAIN = Settings(rule="mars", max_new_tokens=20, gamma=5)
REJECTION = Settings(rule="rejection-sampling", temperature=1.0, seed=2, max_new_tokens=20, gamma=4)
BLOCK = Settings(rule="block-verification", temperature=0.8, seed=1, max_new_tokens=16, gamma=4)


@pytest.mark.parametrize(
    ("name", "settings"), [*((name, CHAIN) for name in NAMES), ("threshold", REJECTION), ("svip", BLOCK)]
)
def test_a_map_is_exact(name: str, settings: Settings) -> None:
    """At random thresholds, on every boundary and at the floats next to it, against drafts of their own length."""
    made = toy_controller_map(settings, name)
    assert made.complete and len(made.segments) > 2
    low, high = made.span.low, made.span.high
    edges = [edge for segment in made.segments for edge in (segment.low, segment.high)]
    edges += [math.nextafter(edge, side) for edge in edges for side in (-math.inf, math.inf)]
    for threshold in [*np.random.default_rng(5).uniform(low, high, 50).tolist(), *edges]:
        if low <= threshold <= high:
            expected, segment = alone(settings, name, threshold), made.segment(threshold)
            assert told(segment.rounds) == expected
            assert segment.drafted == sum(drafted for _, drafted, _ in expected)
    run = made.at(made.segments[1].low)
    assert run.settings.control == Control(CONTROLLERS[name], made.segments[1].low)


@pytest.mark.parametrize("name", NAMES)
def test_breakpoints_and_lengths_are_those_of_a_drafter_that_stops(name: str) -> None:
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


def pick(mass: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Draw one id per row of `mass`."""
    total = mass.cumsum(1)
    return np.asarray((rng.random(len(mass))[:, None] * total[:, -1:] >= total).sum(1))


@pytest.fixture(scope="module")
def sampled() -> tuple[np.ndarray, np.ndarray, list[Speculation]]:
    """The target's law [4, 3] by the token before (the prompt is 3), 10,000 drafts [B, 4], and their evidence."""
    total, gamma, rng = 10_000, 3, np.random.default_rng(7)
    p_logits, q_logits = rng.normal(0, 1.2, (2, 4, 3)).astype(np.float32)
    p, q = (np.stack([processed(row, 1.0) for row in table]) for table in (p_logits, q_logits))
    drafts = np.full((total, gamma + 1), 3, np.int64)
    for depth in range(gamma):
        drafts[:, depth + 1] = pick(q[drafts[:, depth]], rng)
    parts = (torch.from_numpy(each) for each in (drafts[:, 1:], q_logits[drafts[:, :-1]], p_logits[drafts]))
    blocks = DraftBatch(tuple(range(4, total + 4)), *parts, sampled=True)
    return p, drafts, gather_evidence(blocks, Settings(temperature=1.0, seed=9))


@pytest.mark.parametrize(
    ("control", "rule"),
    [
        ("none", "rejection-sampling"),
        ("none", "block-verification"),
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
    """All 81 texts of four tokens, written with drafts cut by the controller and continued by the target.

    False-alarm probability one in a million a case.
    """
    p, drafts, speculations = sampled
    found, judge, rng = control_named(control), rule_named(rule), np.random.default_rng(6)
    lengths = [3 if found is None else found.length(each) for each in speculations]
    shares = np.bincount(lengths)
    assert found is None or min(shares[-1], shares[:-1].sum()) > 500
    texts = np.full((len(drafts), 4), -1, np.int64)
    for i, (whole, length) in enumerate(zip(speculations, lengths, strict=True)):
        cut = shortened(whole, length)
        decision = settle(cut, judge.judge(cut), None)
        texts[i, : decision.row + 1] = *drafts[i, 1 : decision.row + 1], decision.emitted
    for depth in range(1, 4):
        beyond = texts[:, depth] < 0
        texts[beyond, depth] = pick(p[texts[beyond, depth - 1]], rng)
    law = p[3]
    for _ in range(3):
        law = (law.reshape(-1, 3)[:, :, None] * p[None, :3]).reshape(-1)
    assert not unlike(np.bincount(texts @ 3 ** np.arange(3, -1, -1), minlength=81), law)


def test_names_are_canonical_and_impossible_maps_are_refused() -> None:
    assert Settings(controller="svip").controller == "svip:0.3"
    assert Settings(controller="confidence:1").controller == "confidence:1"
    assert Settings().control is None
    for name in NAMES:
        control = control_named(f"{name}:{1.2345678901234567 - (name != 'length')!r}")
        assert control is not None and control_named(control.name) == control
    for over, message in (("controller", "no controller"), ("γ", "over")):
        with pytest.raises(BadInput, match=message):
            mapping_of(Settings(), over, None, None, (6,))
    for wrong, message in (
        ({"controller": "slow"}, "slow"),
        ({"controller": "svip:x"}, "a number such as 0.3"),
        ({"controller": "svip:nan"}, "from 0 to 1.5"),
        ({"controller": "confidence:2"}, "from 0 to 1"),
        ({"controller": 3}, "must be"),
        ({"controller": "svip", "tree": "dynamic:depth=4,topk=3", "gamma": 8}, "chains"),
    ):
        with pytest.raises(BadInput, match=message):
            Settings(**wrong)
    bare = ToySpeculator(Settings()).speculate([PROMPT])[0].speculation
    bare = replace(bare, columns={name: each for name, each in bare.columns.items() if name != "q_entropy"})
    with pytest.raises(BadInput, match="q entropy"):
        CONTROLLERS["svip"].breakpoints(bare)


def test_the_command_maps_a_threshold(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["map", "--prompt", "Once upon", "--over", "controller", "--controller", "svip", "--max-new-tokens", "12"]
    assert cli.main([*asked, "--low", "0.2", "--high", "0.4", "--out", str(tmp_path / "a"), "--json"]) == 0
    output, made = json.loads(capsys.readouterr().out), load_run(tmp_path / "a").map
    assert made is not None and output["over"] == "svip" and output["complete"]
    assert (made.span.low, made.span.high) == (0.2, 0.4)
    listed = [(each["low"], each["rounds"], each["drafted"]) for each in output["segments"]]
    assert listed == [(segment.low, len(segment.rounds), segment.drafted) for segment in made.segments]
    for more in (["--low", "2"], ["--controller", "svip:much"], ["--gammas", "1,2"]):
        assert cli.main([*asked, *more, "--out", str(tmp_path / "b")]) == 2
        assert capsys.readouterr().err and not (tmp_path / "b").exists()


def test_a_map_of_real_models_continues_their_run_and_goes_to_a_file_and_back(pair: Backend, tmp_path: Path) -> None:
    prompt, settings = "Once upon a time, there was a little girl", Settings(rule="mars", max_new_tokens=20)
    wished, span = mapping_of(replace(settings, controller="svip"), "controller", None, None, (6,))
    assert wished == settings
    run = Recording(pair, prompt, settings).finish()
    made = Mapping(pair, prompt, settings, span, run=run).finish()
    assert made.complete and len(made.segments) > 4
    assert told(made.segment(CONTROLLERS["svip"].longest).rounds) == told(run.rounds)
    again = load_run(save_run(mapped(run, made), tmp_path / "mapped")).map
    assert again.span == span
    for ours, theirs in zip(made.segments, again.segments, strict=True):
        assert (ours.low, ours.high, told(ours.rounds)) == (theirs.low, theirs.high, told(theirs.rounds))
    cut = again.at(0.1)
    alone = Recording(pair, prompt, replace(settings, controller="svip:0.1")).finish()
    back = load_run(save_run(cut, tmp_path / "cut"))
    assert back.settings == cut.settings == alone.settings and told(back.rounds) == told(cut.rounds) == told(
        alone.rounds
    )
    manifest = tmp_path / "cut" / "manifest.json"
    text = manifest.read_text(encoding="utf-8")
    manifest.write_text(older := text.replace(',\n  "controller": "svip:0.1"', ""), encoding="utf-8")
    assert older != text and load_run(tmp_path / "cut").settings.controller == NONE
