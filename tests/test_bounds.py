"""Every number and text of a manifest has bounds, and what lies outside is refused in a sentence."""

import json
import types
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Union, get_args, get_origin, get_type_hints

import pytest
from factories import toy_run

from mars_viz import bounds
from mars_viz.bounds import NUMBERS, TOKENS, VOCABULARY
from mars_viz.components.compare import run_pane
from mars_viz.components.explorer.element import RunPayload
from mars_viz.costs import Costs
from mars_viz.dialmap import span_of
from mars_viz.errors import BadInput
from mars_viz.prompts.builtin import builtin_prompts
from mars_viz.race import load_race, save_race
from mars_viz.race.files import ABOUT, RaceManifest
from mars_viz.report import report_html
from mars_viz.rules import rule_named
from mars_viz.run import Provenance, Settings
from mars_viz.runfiles import codec, load_run, manifest
from mars_viz.runfiles.manifest import Manifest
from mars_viz.sweep import plan as plans
from mars_viz.sweep.plan import Plan
from tests.sweep_cases import COSTS
from tests.test_race import toy_race
from tests.test_runfiles import described, run_with_map

ODD = [2**31, 2**64, -(2**63), 10**400, -1, 1e308, True, None, "x" * 20_000, [[[[1]]]], {"a": {"b": 1}}, [], {}]


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
        assert set(NUMBERS.get(kind.__name__, {})) == wanted, kind


def spots(about, path=""):
    for name, value in about.items():
        yield f"{path}{name}", value
        if isinstance(value, dict) and not path:
            yield from spots(value, f"{name}.")


@pytest.fixture(scope="module")
def files():
    return codec.encode(run_with_map(0.8, gammas=(1, 2), max_new_tokens=6))


def spoiled(about):
    for spot, value in spots(about):
        section, _, key = spot.partition(".")
        for odd in ODD:
            changed = json.loads(json.dumps(about))
            inner = changed[section] if key else changed
            inner[key or section] = [odd] if isinstance(value, list) else odd
            yield changed


def test_odd_values_are_sentences_wherever_they_stand(files):
    for about in spoiled(json.loads(files["manifest.json"])):
        try:
            run = codec.decode(files | {"manifest.json": json.dumps(about).encode()})
        except BadInput as error:
            assert len(str(error)) < 500 and "\n" not in str(error)
        else:  # a title, a time and the like, which decide nothing
            assert run.text and RunPayload.of(run, run.settings.gamma).windows >= 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"prompt_ids": [2**63]}, "prompt_ids is 9223372036854775808"),
        ({"settings.max_new_tokens": 2**31}, "max_new_tokens is 2147483648"),
        ({"provenance.vocabulary_size": 2**31}, "vocabulary_size is"),
        ({"provenance.vocabulary_size": 5}, "vocabulary of 5"),
        ({"provenance.seconds": 1e300}, "seconds is 1e"),
        ({"provenance.device": "x" * 20_000}, "20,000 characters as device"),
        ({"provenance.versions": {str(n): "1" for n in range(999)}}, "lists 999 versions"),
        ({"provenance.versions": {"x" * 20_000: "1"}}, "20,000 characters as versions"),
        ({"settings.rule": "x" * 20_000}, "characters as rule|no rule"),
        ({"schema": "x" * 20_000}, "has the schema"),
    ],
)
def test_a_number_or_text_beyond_its_bounds_is_named(files, changes, message):
    with pytest.raises(BadInput, match=message) as refused:
        codec.decode(described(files, changes))
    assert len(str(refused.value)) < 300


@pytest.mark.parametrize("data", [b'{"a":' + b"[]," * 400_000, b"[" + b"1," * (5 << 20), b"[" * 600_000])
def test_a_description_is_not_read_where_it_is_far_too_large(data):
    with pytest.raises(BadInput, match=r"manifest\.json is (far too large|damaged)"):
        manifest.from_json(data)


def test_the_largest_values_can_be_shown(tmp_path):
    run = run_with_map(0.8, gammas=(1, 2), max_new_tokens=6)
    read = codec.decode(described(codec.encode(run), {"settings.max_new_tokens": TOKENS}))
    assert read.settings == replace(run.settings, max_new_tokens=TOKENS)
    assert RunPayload.of(read, read.settings.gamma).windows >= 0
    assert run_pane(read) and report_html(read, most_steps=2)
    run = replace(toy_run(), provenance=Provenance(vocabulary_size=VOCABULARY))
    assert load_run(run.save(tmp_path / "run")).token_ids == run.token_ids
    with pytest.raises(BadInput, match="beyond the models' vocabulary of 7"):
        replace(run, provenance=Provenance(vocabulary_size=7)).save(tmp_path / "small")


def test_odd_values_in_a_race_and_a_sweep_are_sentences(tmp_path):
    path = save_race(toy_race(), tmp_path / "race")
    for about in spoiled(json.loads((path / ABOUT).read_bytes())):
        (path / ABOUT).write_text(json.dumps(about))
        try:
            load_race(path)
        except BadInput as error:
            assert len(str(error)) < 500 + len(str(path))
    span = span_of(rule_named("mars"), None, None, (3,))
    made = plans.plan_of(Settings(rule="mars", gamma=3), span, False, builtin_prompts(1), Provenance(eos_ids=(1,)))
    data = plans.to_json(made, COSTS)
    assert plans.from_json(data) == (made, COSTS)
    about = json.loads(data)
    for part in ("plan", "costs"):
        for changed in spoiled(about[part]):
            try:
                plan, _ = plans.from_json(json.dumps(about | {part: changed}).encode())
            except BadInput as error:
                assert len(str(error)) < 500
            else:
                bounds.check(plan, "sweep.json")
                assert plan.rule.dial is not None
