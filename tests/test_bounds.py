"""Every number and text of a manifest has bounds, and what lies outside is refused in a sentence."""

import types
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Union, get_args, get_origin, get_type_hints

import pytest
from factories import toy_run

from mars_viz.bounds import NUMBERS, TOKENS, VOCABULARY
from mars_viz.components.compare import run_pane
from mars_viz.components.explorer.element import RunPayload
from mars_viz.costs import Costs
from mars_viz.errors import BadInput
from mars_viz.race.files import RaceManifest
from mars_viz.report import report_html
from mars_viz.run import Provenance
from mars_viz.runfiles import codec, load_run, manifest
from mars_viz.runfiles.manifest import Manifest
from mars_viz.sweep.plan import Plan
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
        assert set(NUMBERS.get(kind.__name__, {})) == wanted, kind


def test_a_number_or_text_beyond_its_bounds_is_named():
    files = codec.encode(run_with_map(0.8, gammas=(1, 2), max_new_tokens=6))
    for changes, message in (
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
