"""Numbers and texts of files have bounds, and options are declared once for forms, links, files and commands."""

import argparse
import json
import types
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Union, get_args, get_origin, get_type_hints

import numpy as np
import pytest
from factories import make_speculation, toy_run

import mars_viz
from mars_viz import cli, options
from mars_viz.axis import Threshold
from mars_viz.bounds import NUMBERS, TOKENS, VOCABULARY
from mars_viz.components.compare import run_pane
from mars_viz.components.explorer.element import RunPayload
from mars_viz.controllers import LENGTH, Control
from mars_viz.costs import Costs
from mars_viz.errors import BadInput, SettingError
from mars_viz.options import options_of
from mars_viz.race import RaceManifest
from mars_viz.recording import mapping_of
from mars_viz.report import report_html
from mars_viz.run import Provenance, Settings, settings_from
from mars_viz.runfiles import codec, load_run, manifest
from mars_viz.runfiles.manifest import Manifest
from mars_viz.speculators.backend import Backend
from mars_viz.sweep.plan import Plan
from mars_viz.ui import links
from tests.test_runfiles import described, run_with_map


def records(kind):
    if is_dataclass(kind) and isinstance(kind, type):
        yield kind
        for hint in get_type_hints(kind).values():
            yield from records(hint)
    elif get_origin(kind) in (Union, types.UnionType, tuple, Mapping):
        for argument in get_args(kind):
            yield from records(argument)


def holds_numbers(hint):
    return hint in (int, float) or (not is_dataclass(hint) and any(map(holds_numbers, get_args(hint))))


@pytest.mark.parametrize("file", [Manifest, RaceManifest, Plan, Costs])
def test_every_number_that_a_file_holds_has_bounds(file):
    for kind in set(records(file)):
        wanted = {field.name for field in fields(kind) if holds_numbers(get_type_hints(kind)[field.name])}
        assert {*NUMBERS, *options_of(kind)} >= wanted, kind


def test_a_number_or_text_beyond_its_bounds_is_named():
    files = codec.encode(run_with_map(0.8, gammas=(1, 2), max_new_tokens=6))
    for changes, message in (
        ({"prompt_ids": [2**63]}, "prompt_ids is 9223372036854775808"),
        ({"settings.max_new_tokens": 2**31}, "max_new_tokens is 2147483648"),
        ({"provenance.vocabulary_size": 2**31}, "vocabulary_size is"),
        ({"provenance.vocabulary_size": 5}, "vocabulary of 5"),
        ({"provenance.seconds": 1e300}, "seconds is 1e"),
        ({"provenance.device": "x" * 20_000}, "device has 20,000 characters"),
        ({"provenance.versions": {str(n): "1" for n in range(999)}}, "versions has 999 names"),
        ({"provenance.versions": {"x" * 20_000: "1"}}, "versions has 20,000 characters"),
        ({"settings.rule": "x" * 20_000}, "rule has 20,000 characters"),
        ({"schema": "x" * 20_000}, "has the schema"),
    ):
        with pytest.raises(BadInput, match=message) as refused:
            codec.decode(described(files, changes))
        assert len(str(refused.value)) < 300
    for data in (b'{"a":' + b"[]," * 400_000, b"[" + b"1," * (5 << 20), b"[" * 600_000):
        with pytest.raises(BadInput, match=r"manifest\.json is (far too large|damaged)"):
            manifest.from_json(data)


def test_the_largest_values_can_be_shown(tmp_path):
    run = run_with_map(0.8, gammas=(1, 2), max_new_tokens=6)
    read = codec.decode(described(codec.encode(run), {"settings.max_new_tokens": TOKENS}))
    assert read.settings == replace(run.settings, max_new_tokens=TOKENS)
    assert RunPayload.of(read, read.settings.gamma).windows >= 0 and run_pane(read) and report_html(read, most_steps=2)
    run = replace(toy_run(), provenance=Provenance(vocabulary_size=VOCABULARY))
    assert load_run(run.save(tmp_path / "run")).token_ids == run.token_ids
    with pytest.raises(BadInput, match="beyond the models' vocabulary of 7"):
        replace(run, provenance=Provenance(vocabulary_size=7)).save(tmp_path / "small")


OTHERS = {"gamma": 4, "temperature": 0.75, "top_p": 0.9, "top_k": 20, "seed": 7, "max_new_tokens": 30}


def test_an_option_reads_back_what_it_writes_in_links_and_on_the_command_line() -> None:
    values = OTHERS | {"rule": "lenience", "dial": 0.25, "controller": "svip:0.3"}
    settings = Settings(**values)
    assert options.changed(settings) == settings.keywords == values and options.changed(Settings()) == {}
    link, complaints = links.to_parameters(settings), list[str]()
    assert links.values_in(Settings, link, complaints) == values and not complaints
    parser, words = argparse.ArgumentParser(), list[str]()
    for name, each in options.declared(Settings).items():
        options.argument(parser, each)
        words += [each.flag, each.written(values[name])] if name in values else []
    defaults = {name: each.default for name, each in options.declared(Settings).items()}
    assert vars(parser.parse_args(words)) == defaults | values and vars(parser.parse_args([])) == defaults


@pytest.mark.parametrize("name", OTHERS)
def test_a_number_outside_its_range_is_refused_everywhere(name: str) -> None:
    each = options_of(Settings)[name]
    assert each.bounds.low <= each.low <= each.default <= each.high <= each.bounds.high
    for wrong in ("nan", "", "x", str(each.high + 1), str(each.low - 1), *(["2.5"] if each.kind is int else [])):
        assert each.read(wrong) is None
    complaints: list[str] = []
    assert links.values_in(Settings, {each.link: str(each.high + 1)}, complaints) == {}
    assert each.link in complaints[0] and each.written(each.high) in complaints[0]
    for value in (each.bounds.high + 1, True, "1", None):
        with pytest.raises(SettingError, match=name):
            Settings(**{name: value})


def test_keywords_of_the_api_become_settings(pair: Backend) -> None:
    assert settings_from({"gamma": None, "stop": "."}) == Settings(stop=(".",))
    assert settings_from({"tree": None}, "dynamic").gamma == 16
    run = mars_viz.record("The cat", backend=pair, gamma=3, max_new_tokens=5, seed=2)
    assert run.settings == Settings(dial=0.9, gamma=3, max_new_tokens=5, seed=2)
    with pytest.raises(TypeError, match="colour"):
        mars_viz.record("The cat", backend=pair, colour="red")  # type: ignore[call-arg]


def test_the_length_cuts_a_draft_to_its_threshold_and_takes_a_pass_for_each_token() -> None:
    logits = np.arange(20.0).reshape(5, 4) % 7
    block = make_speculation(logits, logits[:4], [1, 2, 3, 0])
    for threshold, drafted in ((1.0, 1), (2.0, 2), (2.9, 2), (4.0, 4), (64.0, 4)):
        assert Control(LENGTH, threshold).length(block) == drafted
    assert [LENGTH.steps(count, 4) for count in (1, 2, 4)] == [1, 2, 4] and LENGTH.full(4) == 4
    assert Threshold(LENGTH, 6).span(None, None, (6,)).high == 6


def test_a_map_over_gamma_is_the_run_at_each_length(pair: Backend) -> None:
    how = {"backend": pair, "dial": 0.8, "max_new_tokens": 24}
    made = mars_viz.dial_map("Once upon a time", rule="mars", gamma=5, over="gamma", **how)
    assert (made.span.low, made.span.high) == (1, 5) and made.complete
    for gamma in range(1, 6):
        alone = mars_viz.record("Once upon a time", gamma=gamma, **how)
        assert made.segment(gamma).token_ids == alone.token_ids
        assert len(made.segment(gamma).rounds) == len(alone.rounds)
    with pytest.raises(SettingError, match="controller"):
        mapping_of(replace(Settings(), controller="svip:0.3"), "gamma", None, None, (6,))


def test_a_sweep_over_gamma_has_every_length_and_a_grid_of_lengths_its_dials(tmp_path, capsys, unmeasured) -> None:
    sweep = ["sweep", "--set", "builtin:counting", "--limit", "2", "--max-new-tokens", "16", "--gamma", "4", "--json"]
    assert cli.main([*sweep, "--over", "gamma", "--out", str(tmp_path / "a")]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["plan"]["over"] == "length" and (facts["plan"]["low"], facts["plan"]["high"]) == (1, 4)
    rows = {row["figure"]: row["settings"] for row in facts["table"]}
    assert rows["drafted"]["strict"]["dial"] == 4 and rows["drafted"]["loosest"]["dial"] == 1
    assert rows["tau"]["loosest"]["estimate"] <= 2 < rows["tau"]["strict"]["estimate"]
    assert cli.main([*sweep, "--grid", "gamma=2", "--low", "0.8", "--out", str(tmp_path / "b")]) == 0
    assert json.loads(capsys.readouterr().out)["setting_grid"]["setting"]["key"] == "gamma"
    for wrong in ("--grid gamma=9", "--grid gamma=2 --controller svip", "--over gamma --tree dynamic"):
        assert cli.main([*sweep, *wrong.split(), "--out", str(tmp_path / "c")]) == 2
    assert not (tmp_path / "c").exists()
