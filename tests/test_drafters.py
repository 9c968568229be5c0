"""Drafters that need no model of their own: what they draft, and that everything that decodes takes them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import (
    AutoModelForCausalLM,
    Gemma3TextConfig,
    GPT2Config,
    GPTNeoXConfig,
    LlamaConfig,
)

import mars_viz
from mars_viz import cli
from mars_viz.demo import DRAFTER, SMOLLM2, TARGET
from mars_viz.demo.prompts import STORIES
from mars_viz.dialmap import Span
from mars_viz.errors import BadInput, SettingError
from mars_viz.recording import Mapping, Recording, record_all
from mars_viz.run import Settings
from mars_viz.runfiles import load_run
from mars_viz.speculators.autoregressive import decode_alone
from mars_viz.speculators.backend import Backend
from mars_viz.speculators.costs import Measuring
from mars_viz.speculators.devices import inference
from mars_viz.speculators.drafter_names import Eagle3, Ngram, drafter_named, has_no_model
from mars_viz.speculators.drafters.ngram import NgramDrafter, latest
from mars_viz.speculators.drafters.smaller import count_of, most_frequent, with_layers
from mars_viz.speculators.drafters.text import SuffixDrafter, TextBefore, TrigramDrafter
from mars_viz.speculators.loading import backend_of, load_backend
from mars_viz.speculators.model_files import Loaded
from mars_viz.speculators.names import check_names, drafter_for

CPU = torch.device("cpu")
PROMPT = "Add 58 and 67.\nAdd 58 and 67.\nAdd"
PREFIXES = [(1, 2, 3, 9, 1, 2, 3), (5, 6, 7), (4, 4, 4), (8,), (1, 2, 7, 3, 2, 8, 3, 1, 2)]


@pytest.fixture(scope="module")
def backend() -> Backend:
    return load_backend(drafter="ngram:n=3", device="cpu", dtype="float32")


@pytest.fixture(
    scope="module",
    params=["ngram:n=3", "suffix:n=4", "trigram", "layers:exit=5", "layers:skip=2-4", "trimmed:m=900"],
)
def each(request: pytest.FixtureRequest) -> Backend:
    return load_backend(drafter=request.param, device="cpu", dtype="float32")


def test_it_drafts_what_followed_the_latest_place_of_the_longest_known_suffix() -> None:
    drafter = NgramDrafter(3, CPU)
    draft = drafter.draft(PREFIXES, 4)
    assert draft.lengths is not None and draft.logits is None
    drafted = [tokens[:length] for tokens, length in zip(draft.tokens.tolist(), draft.lengths, strict=True)]
    assert drafted == [[9, 1, 2, 3], [], [4], [], [7, 3, 2, 8]]
    assert drafter.draft([(5, 6)], 4).tokens.shape == (1, 0)


@given(st.lists(st.integers(0, 2), min_size=1, max_size=24), st.integers(1, 4))
def test_no_longer_or_later_place_is_missed(tokens: list[int], n: int) -> None:
    prefix, found = tuple(tokens), latest(tuple(tokens), n)
    ends = {
        (length, end)
        for length in range(1, n + 1)
        for end in range(length, len(prefix))
        if prefix[end - length : end] == prefix[-length:]
    }
    assert found == (max(ends)[1] if ends else len(prefix))


@given(
    st.lists(st.integers(0, 2), min_size=1, max_size=24), st.lists(st.integers(0, 2), max_size=12), st.integers(1, 4)
)
def test_the_suffix_index_follows_what_most_places_go_on_with(tokens: list[int], before: list[int], n: int) -> None:
    text, drafted = [*before, -1, *tokens], SuffixDrafter(n, TextBefore(before), CPU).draft([tuple(tokens)], 3)
    ends: list[int] = []
    for length in range(1, min(n, len(tokens)) + 1):
        suffix = tokens[-length:]
        found = [end for end in range(length, len(text)) if text[end - length : end] == suffix]
        ends = found or ends
        if not found:
            break
    expected: list[int] = []
    while len(expected) < 3 and (ends := [end for end in ends if end < len(text)]):
        follows = [text[end] for end in ends]
        token = max(follows, key=lambda each: (follows.count(each), len(follows) - follows[::-1].index(each)))
        if token == -1:
            break
        expected.append(token)
        ends = [end + 1 for end in ends if text[end] == token]
    assert drafted.tokens.tolist() == [expected] and drafted.lengths == (len(expected),)


@given(st.lists(st.integers(0, 2), min_size=1, max_size=24), st.lists(st.integers(0, 2), max_size=12))
def test_the_table_of_trigrams_follows_the_last_two_tokens(tokens: list[int], before: list[int]) -> None:
    text, drafted = [*before, -1, *tokens], TrigramDrafter(TextBefore(before), CPU).draft([tuple(tokens)], 4)
    read, expected = list(tokens), list[int]()
    while len(read) > 1 and len(expected) < 4:
        follows = [text[i + 2] for i in range(len(text) - 2) if text[i : i + 2] == read[-2:]]
        if not follows:
            break
        token = max(follows, key=lambda each: (follows.count(each), len(follows) - follows[::-1].index(each)))
        if token == -1:
            break
        expected.append(token)
        read.append(token)
    assert drafted.tokens.tolist() == [expected]


def test_an_earlier_text_is_drafted_from(tmp_path: Path) -> None:
    file = tmp_path / "before, and after.txt"
    file.write_text("Once upon a time there was a little fox who lived in a forest. " * 3, encoding="utf-8")
    for drafter in (f"suffix:n=8,text={file}", f"trigram:text={file}"):
        run = mars_viz.record("Once upon a time there", rule="strict", drafter=drafter, max_new_tokens=8, device="cpu")
        assert run.decode(tuple(run.rounds[0].speculation.tokens.tolist())) == " was a little fox who lived"
        provenance = run.provenance
        assert provenance.drafter.endswith("text=before, and after.txt") and str(tmp_path) not in str(provenance)
        assert len(provenance.drafter_revision) == 12


SIZES = {"vocab_size": 99, "hidden_size": 16, "num_hidden_layers": 5, "num_attention_heads": 2}
KINDS = {
    "llama": LlamaConfig(**SIZES, intermediate_size=32),
    "gpt2": GPT2Config(**SIZES),
    "gemma3": Gemma3TextConfig(**SIZES, intermediate_size=32, num_key_value_heads=1, head_dim=8),
    "neox": GPTNeoXConfig(**SIZES, intermediate_size=32),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_that_leaves_early_reads_its_layers_with_the_last_norm_and_the_head(kind: str) -> None:
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(KINDS[kind]).eval()
    ids = torch.arange(7)[None]
    with torch.inference_mode():
        through = model(ids, output_hidden_states=True)
        early = with_layers(model, range(3))(ids, output_hidden_states=True)
        assert torch.equal(early.hidden_states[2], through.hidden_states[2])
        middle = with_layers(model, [0, 1, 4])
        cached = middle(ids[:, :4], use_cache=True)
        rest = middle(ids[:, 4:], past_key_values=cached.past_key_values).logits
        torch.testing.assert_close(rest, middle(ids).logits[:, 4:], atol=1e-5, rtol=1e-4)
        assert torch.equal(with_layers(model, range(5))(ids).logits, through.logits)
    assert model.config.num_hidden_layers == 5 and torch.equal(model(ids).logits, through.logits)
    own = {each.data_ptr() for each in model.parameters()}
    assert {each.data_ptr() for each in middle.parameters()} < own


def test_with_all_layers_the_target_drafts_its_own_text(pair: Backend) -> None:
    model = pair.target.model
    complete = Loaded(with_layers(model, range(count_of(model))), "all layers")
    backend = backend_of(pair.tokenizer.library, Loaded(model, "target"), complete)
    run = Recording(backend, STORIES[0], Settings(rule="strict", max_new_tokens=21)).finish()
    assert run.tau == 7 and len(run.rounds) == 3


def test_strict_writes_the_targets_text_and_batches_and_maps_are_separate_runs(each: Backend) -> None:
    for temperature in (0.0, 0.8):
        settings = Settings(rule="strict", temperature=temperature, gamma=5, max_new_tokens=40)
        run = Recording(each, "Add 58 and 67.\n", settings).finish()
        assert run.token_ids == decode_alone(each, run.prompt_ids, settings).token_ids
        assert run.tau > 1.02
        assert run.provenance.batching.startswith("bit for bit")
        if each.drafter.name == "ngram:n=3":
            assert {0, 5} <= {len(round_.speculation) for round_ in run.rounds}
            assert (run.provenance.drafter, run.provenance.drafter_revision) == ("ngram:n=3", "ngram:n=3")
    settings = Settings(gamma=4, max_new_tokens=16)
    run = Recording(each, PROMPT, settings).finish()
    together = list(record_all(each, [PROMPT, "Once upon a time", PROMPT], settings, batch=3))
    assert together[0].token_ids == together[2].token_ids == run.token_ids
    dial_map = Mapping(each, PROMPT, settings, Span(0.5, 1.0, (4,))).finish()
    assert dial_map.complete
    assert dial_map.at(0.77).token_ids == Recording(each, PROMPT, replace(settings, dial=0.77)).finish().token_ids


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_its_q_is_one_at_the_drafted_token(backend: Backend, temperature: float) -> None:
    run = Recording(backend, PROMPT, Settings(rule="strict", temperature=temperature, max_new_tokens=30)).finish()
    speculation = max((round_.speculation for round_ in run.rounds), key=len)
    assert len(speculation) == 6 and not speculation.sampled
    np.testing.assert_array_equal(speculation.q, 1)
    np.testing.assert_array_equal(speculation.draft_ids[:, 0], speculation.tokens)
    np.testing.assert_allclose(speculation.total_variation, 1 - speculation.p, atol=1e-5)
    np.testing.assert_allclose(speculation.kl_qp, -np.log(speculation.p), rtol=1e-4, atol=1e-6)
    m = (1 + speculation.p.astype(np.float64)) / 2
    js = 0.5 * ((1 - speculation.p) * np.log(2) + speculation.p * np.log(speculation.p / m) - np.log(m))
    np.testing.assert_allclose(speculation.js, js, atol=1e-5)


@pytest.mark.parametrize("drafter", ["ngram:n=3", "eagle3"])
def test_costs_are_measured(drafter: str) -> None:
    """Of a drafter without passes and of one that reads the target's."""
    measuring = Measuring(load_backend(drafter=drafter, device="cpu", dtype="float32"), 2, seconds=0.02)
    for _ in measuring:
        pass
    assert measuring._found is not None and measuring._found.drafter == drafter


def test_the_command_takes_prompt_lookup_which_is_the_default_of_a_target(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for more, noted in ((["--drafter", "ngram"], False), (["--target", str(TARGET)], True)):
        out = tmp_path / str(noted)
        common = ["record", "--prompt", PROMPT, "--max-new-tokens", "8", "--device", "cpu", "--out", str(out)]
        assert cli.main([*common, *more]) == 0
        assert load_run(out).provenance.drafter == "ngram:n=3"
        assert ("ngram:n=3" in capsys.readouterr().err) == noted


@pytest.mark.parametrize(
    ("drafter", "reason"),
    [
        ("ngram:n=0", "1 to 16"),
        ("ngram:n=17", "1 to 16"),
        ("ngram:n=2.5", "whole number"),
        ("ngram:x=1", "'x'.* ngram:n=3"),
        ("ngram:", "nothing of the drafter ngram"),
        ("ngram:n=1,n=2", "twice"),
        ("suffix:n=0", "1 to 64"),
        ("suffix:n=2,text=no-such-file", "no file"),
        ("suffix:", "nothing of the drafter suffix"),
        ("trigram:n=3", "trigram:text=FILE"),
        ("trimmed:m=0", "from 1 to"),
        ("trimmed:n=9", "no setting"),
        ("trimmed:", "nothing of the drafter trimmed"),
        ("trimmed:m=9,of=ngram", "no distribution"),
        ("trimmed:m=9,of=trimmed:m=4", "no distribution"),
        ("trimmed:m=9,of=layers", "layers:skip=3-5"),
        ("trimmed:m=9,text=no-such-file", "no file"),
        ("trimmed:m=9,of=no-such-model/here", "without a target"),
        ("trimmed:m=100000", "100,000"),
        ("layers", "layers:skip=3-5"),
        ("layers:exit=", "layers:skip=3-5"),
        ("layers:skip=5-3,exit=2", "layers:skip=3-5"),
        ("layers:exit=0", "8 layers, 0 to 7"),
        ("layers:exit=8", "8 layers, 0 to 7"),
        ("layers:skip=0-7", "8 layers, 0 to 7"),
        ("layers:skip=6-8", "8 layers, 0 to 7"),
        ("layers:skip=5-3", "8 layers, 0 to 7"),
    ],
)
def test_wrong_settings_are_refused(drafter: str, reason: str) -> None:
    with pytest.raises(BadInput, match=reason):
        mars_viz.record(PROMPT, drafter=drafter, device="cpu")


def test_what_drafts_for_which_target() -> None:
    assert drafter_for(None, None) == "" and drafter_for(TARGET, None) == Ngram(3)
    assert drafter_for(SMOLLM2, None) == Eagle3()
    assert drafter_for(None, "ngram:n=2") == Ngram(2) and drafter_for(TARGET, DRAFTER) == str(DRAFTER)


@pytest.mark.parametrize("of", ["", "layers:exit=5", "eagle3"])
def test_a_trimmed_drafter_has_the_whole_ones_logits_of_the_kept_tokens(pair: Backend, of: str) -> None:
    name = f"trimmed:m=700{of and ',of=' + of}"
    whole = load_backend(drafter=of, device="cpu", dtype="float32") if of else pair
    trimmed = load_backend(drafter=name, device="cpu", dtype="float32")
    assert trimmed.drafter.name == name
    prefix = pair.tokenizer.encode(PROMPT, chat=False)
    drafts = []
    with inference():
        for each in (whole, trimmed):
            target, drafter = each.opened(Settings())
            for part in (target, drafter):
                part.prefill([prefix[:-1]])
            drafts.append(drafter.draft([prefix], 3))
    ours, kept = drafts[1], drafts[1].vocabulary
    assert kept is not None and ours.logits is not None and ours.logits.shape[-1] == len(kept) <= 700
    assert set(whole.eos_ids) <= set(kept.tolist()) and bool((kept.diff() > 0).all())
    theirs = drafts[0].spread(whole.vocabulary_size)[0, 0, kept]
    torch.testing.assert_close(ours.logits[0, 0], theirs, rtol=1e-5, atol=1e-5)
    assert ours.tokens[0].tolist() == [int(kept[row.argmax()]) for row in ours.logits[0]]


def test_the_most_frequent_tokens_of_a_text_are_kept_then_those_of_low_ids() -> None:
    kept = most_frequent([9, 9, 9, 5, 5, 30, 7], 4, 20, [19])
    assert kept.tolist() == [5, 7, 9, 19]
    assert most_frequent([9], 4, 20, []).tolist() == [0, 1, 2, 9]
    for count in (1, 20, 21):
        with pytest.raises(SettingError, match="cannot be trimmed"):
            most_frequent([], count, 20, [19])


def test_trimming_another_targets_drafter_needs_its_name() -> None:
    with pytest.raises(SettingError, match="which drafter"):
        load_backend(TARGET, "trimmed:m=9", device="cpu")
    named = drafter_named(f"trimmed:m=9,of={DRAFTER}")
    assert named is not None and named.source == str(DRAFTER), "a model to be fetched, so no run has it at hand"


def test_visitors_name_no_file_of_the_server(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a")
    for file in (tmp_path / "a.txt", tmp_path / "b.txt"):
        with pytest.raises(SettingError, match="which its visitors may not name here"):
            check_names(None, f"suffix:text={file}", device="cpu", dtype="float32", folders=False)


@pytest.mark.parametrize(
    "name",
    ["ngram:n=2", "suffix:n=3", "trigram", "layers:skip=3-5", "layers:skip=6", "layers:exit=4"]
    + ["trimmed:m=900", "trimmed:m=900,of=eagle3", "trimmed:m=900,of=layers:exit=4"],
)
def test_a_name_is_written_as_it_is_read(name: str) -> None:
    drafter = drafter_named(name)
    assert drafter is not None and drafter.name == name
    assert has_no_model(name) != name.startswith(("layers", "trimmed"))
    assert drafter_named("org/layers") is None and not has_no_model("suffix:n=lots")
