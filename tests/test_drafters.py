"""Drafters without a model of their own, and drafters with another tokenizer, which draft by text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerBase, PreTrainedTokenizerFast

import mars_viz
from mars_viz.axis import Span
from mars_viz.costs import costs_from
from mars_viz.demo import DRAFTER, EAGLE3, SMOLLM2, TARGET
from mars_viz.errors import BadInput, SettingError
from mars_viz.recording import Mapping, Recording, record_all
from mars_viz.run import Settings
from mars_viz.runfiles import load_run
from mars_viz.speculators.backend import Backend, decode_alone
from mars_viz.speculators.costs import Measuring
from mars_viz.speculators.devices import inference
from mars_viz.speculators.drafters import Eagle3, Model, Ngram, drafter_named, has_no_model
from mars_viz.speculators.drafters.model import most_frequent, with_layers
from mars_viz.speculators.drafters.text import NgramDrafter, SuffixDrafter, TrigramDrafter
from mars_viz.speculators.drafters.universal import PATIENCE, Continuation, Translation
from mars_viz.speculators.loading import load_backend
from mars_viz.speculators.names import check_names, drafter_for
from mars_viz.speculators.networks.base import layers_of
from mars_viz.speculators.token_bytes import TransformersTokenizer
from tests.other_tokenizers import BYTES, END, byte_level, permuted

CPU = torch.device("cpu")
PROMPT = "Add 58 and 67.\nAdd 58 and 67.\nAdd"


@pytest.fixture(
    scope="module",
    params=["ngram:n=3", "layers:skip=2-4", "trimmed:m=900", "suffix:n=4,min=2+eagle3"]
    + [
        pytest.param(each, marks=pytest.mark.long)
        for each in ("hf:assistant_early_exit=5", "suffix:n=4", "trigram", "layers:exit=5")
    ],
)
def each(request: pytest.FixtureRequest) -> Backend:
    return load_backend(drafter=request.param, device="cpu", dtype="float32")


@given(st.lists(st.integers(0, 2), min_size=1, max_size=24), st.integers(1, 4))
def test_no_longer_or_later_place_is_missed(tokens: list[int], n: int) -> None:
    prefix = tuple(tokens)
    ends = {
        (length, end)
        for length in range(1, n + 1)
        for end in range(length, len(prefix))
        if prefix[end - length : end] == prefix[-length:]
    }
    expected = prefix[max(ends)[1] :][:5] if ends else ()
    assert NgramDrafter(n, torch.device("cpu")).continued(prefix, 5) == expected


def likeliest(text: list[int], ends: Iterable[int]) -> int:
    """The token that most of these places go on with, the latest one of equals."""
    follows = [text[end] for end in ends]
    return max(follows, key=lambda each: (follows.count(each), len(follows) - follows[::-1].index(each)))


@given(
    st.lists(st.integers(0, 2), min_size=1, max_size=24), st.lists(st.integers(0, 2), max_size=12), st.integers(1, 4)
)
def test_suffixes_and_trigrams_are_continued_as_in_most_places(tokens: list[int], before: list[int], n: int) -> None:
    text, expected, ends = [*before, -1, *tokens], list[int](), list[int]()
    for length in range(1, min(n, len(tokens)) + 1):
        found = [end for end in range(length, len(text)) if text[end - length : end] == tokens[-length:]]
        ends = found or ends
        if not found:
            break
    while len(expected) < 3 and (ends := [end for end in ends if end < len(text)]):
        if (token := likeliest(text, ends)) == -1:
            break
        expected.append(token)
        ends = [end + 1 for end in ends if text[end] == token]
    draft = SuffixDrafter(n, before, CPU).draft([tuple(tokens)], 3)
    assert draft.tokens.tolist() == [expected] and draft.lengths == (len(expected),)
    read = list(tokens)
    while 1 < len(read) < len(tokens) + 4:
        ends = [i + 2 for i in range(len(text) - 2) if text[i : i + 2] == read[-2:]]
        if not ends or (token := likeliest(text, ends)) == -1:
            break
        read.append(token)
    draft = TrigramDrafter(before, CPU).draft([tuple(tokens)], 4)
    assert draft.tokens.tolist() == [read[len(tokens) :]]


def test_an_earlier_text_is_drafted_from(tmp_path: Path) -> None:
    file = tmp_path / "before, and after.txt"
    file.write_text("Once upon a time there was a little fox who lived in a forest. " * 3, encoding="utf-8")
    for drafter in (f"suffix:n=8,text={file}", f"trigram:text={file}"):
        run = mars_viz.record("Once upon a time there", rule="strict", drafter=drafter, max_new_tokens=8, device="cpu")
        assert run.decode(tuple(run.rounds[0].speculation.tokens.tolist())) == " was a little fox who lived"
        name, revision = run.provenance.drafter, run.provenance.drafter_revision
        assert name.endswith("text=before, and after.txt") and str(tmp_path) not in name and len(revision) == 12


@pytest.mark.parametrize("kind", ["llama", "gpt2", "gemma3_text", "gpt_neox"])
def test_a_model_that_leaves_early_reads_its_layers_with_the_last_norm_and_the_head(kind: str) -> None:
    torch.manual_seed(0)
    sizes = {"vocab_size": 99, "hidden_size": 16, "num_hidden_layers": 5, "num_attention_heads": 2}
    sizes |= {"intermediate_size": 32, "head_dim": 8, "num_key_value_heads": 1} if kind != "gpt2" else {}
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **sizes)).eval()
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
    assert len(layers_of(model)[1]) == 5 and torch.equal(model(ids).logits, through.logits)
    own = {each.data_ptr() for each in model.parameters()}
    assert {each.data_ptr() for each in middle.parameters()} < own


def test_strict_writes_the_targets_text_and_batches_are_separate_runs(each: Backend) -> None:
    for temperature in (0.0, 0.8):
        settings = Settings(rule="strict", temperature=temperature, gamma=5, max_new_tokens=40)
        run = Recording(each, "Add 58 and 67.\n", settings).finish()
        assert run.token_ids == decode_alone(each, run.prompt_ids, settings)[0]
        assert run.tau > 1.02
        if each.drafter.name == "ngram:n=3":
            assert {0, 5} <= {len(round_.speculation) for round_ in run.rounds}
            assert (run.provenance.drafter, run.provenance.drafter_revision) == ("ngram:n=3", "ngram:n=3")
    settings = Settings(gamma=4, max_new_tokens=16)
    run = Recording(each, PROMPT, settings).finish()
    together = list(record_all(each, [PROMPT, "Once upon a time", PROMPT], settings, batch=3))
    assert together[0].token_ids == together[2].token_ids == run.token_ids


def test_two_drafters_take_turns_and_each_token_names_its_own(tmp_path: Path) -> None:
    mixed = load_backend(drafter="ngram:n=4,min=3+default", device="cpu", dtype="float32")
    assert mixed.drafter.name == "ngram:n=4,min=3+built-in/drafter"
    settings = Settings(gamma=4, max_new_tokens=40, temperature=0.9, rule="rejection-sampling")
    prefixes = [mixed.tokenizer.encode(text, chat=False) for text in (PROMPT, "Once upon a time")]
    drafts = [answer.speculation for answer in mixed.speculator(settings).speculate(prefixes)]
    assert [set(each.drafted_by.tolist()) for each in drafts] == [{0}, {1}]
    assert (drafts[0].q == 1).all()
    assert drafts[0].tokens.tolist() == list(NgramDrafter(4, CPU, 3).continued(prefixes[0], 4))
    assert mixed.opened(settings)[1].spent is None  # so that costs are measured on a text without matches
    (alone,) = load_backend(device="cpu", dtype="float32").speculator(settings).speculate(prefixes[1:])
    for name in ("tokens", "q", "draft_logits", "kl_pq"):
        np.testing.assert_allclose(getattr(drafts[1], name), getattr(alone.speculation, name), atol=1e-4)
    run = Recording(mixed, PROMPT, settings).finish()
    by = load_run(run.save(tmp_path / "run")).trace.speculations.whole.drafted_by
    assert set(by.tolist()) == {0, 1} and by.tolist() == run.trace.speculations.whole.drafted_by.tolist()
    with pytest.raises(SettingError, match="drafts chains"):
        mixed.check(Settings(tree="dynamic"))
    shorter = load_backend(drafter="ngram:n=16,min=16+hf:prompt_lookup_num_tokens=2", device="cpu", dtype="float32")
    lengths = [len(each.speculation) for each in shorter.speculator(Settings(gamma=4)).speculate(prefixes)]
    assert lengths == [2, 0] and shorter.drafter.name.endswith("hf:prompt_lookup_num_tokens=2")  # no longer drafts


def test_transformers_own_generators_draft_the_same(pair: Backend) -> None:
    adapted = load_backend(drafter=f"hf:{DRAFTER}", device="cpu", dtype="float32")
    assert adapted.drafter.name == "hf:built-in/drafter" and "whole text" in adapted.notes[0]
    settings, prefixes = Settings(gamma=4), [pair.tokenizer.encode(each, chat=False) for each in (PROMPT, "The frog")]
    both = [[each.speculation for each in one.speculator(settings).speculate(prefixes)] for one in (pair, adapted)]
    for ours, theirs in zip(*both, strict=True):
        assert ours.tokens.tolist() == theirs.tokens.tolist()
        np.testing.assert_allclose(ours.draft_logits, theirs.draft_logits, atol=1e-4)


@pytest.mark.parametrize(
    ("drafter", "reason"),
    [
        ("hf", "hf:MODEL"),
        ("hf:nonsense=3", "no option nonsense"),
        ("ngram+suffix", "drafter with a model"),
        ("suffix:n=2,min=4+eagle3", "at least min"),
        ("ngram:n=0", "1 to 16"),
        ("suffix:n=0", "1 to 64"),
        ("suffix:n=2,text=no-such-file", "cannot be read .No such file"),
        ("trigram:n=3", "trigram:text=FILE"),
        ("trimmed:m=0", "from 1 to"),
        *((f"trimmed:m=9,of={each}", "no distribution") for each in ("ngram", "hf:prompt_lookup_num_tokens=2")),
        ("trimmed:m=9,text=no-such-file", "cannot be read .No such file"),
        ("trimmed:m=9,of=no-such-model/here", "without a target"),
        ("trimmed:m=100000", "100,000"),
        ("layers:exit=", "exit is ''"),
        ("layers:skip=5-3,exit=2", "layers:skip=3-5"),
        *((f"layers:{each}", "8 layers, 0 to 7") for each in ("exit=0", "exit=8", "skip=0-7", "skip=6-8", "skip=5-3")),
    ],
)
def test_wrong_settings_are_refused(drafter: str, reason: str) -> None:
    with pytest.raises(BadInput, match=reason):
        mars_viz.record(PROMPT, drafter=drafter, device="cpu")


@pytest.mark.parametrize("of", ["", "eagle3", pytest.param("layers:exit=5", marks=pytest.mark.long)])
def test_a_trimmed_drafter_has_the_whole_ones_logits_of_the_kept_tokens(pair: Backend, of: str) -> None:
    name, prefix = f"trimmed:m=700{of and ',of=' + of}", pair.tokenizer.encode(PROMPT, chat=False)
    whole = load_backend(drafter=of, device="cpu", dtype="float32") if of else pair
    trimmed = load_backend(drafter=name, device="cpu", dtype="float32")
    assert trimmed.drafter.name == name
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


def test_a_name_is_written_as_it_is_read() -> None:
    for name in ("ngram:n=2", "suffix:n=3", "trigram", "layers:skip=3-5", "trimmed:m=9,of=layers:exit=4"):
        assert drafter_named(name).name == name
        assert has_no_model(name) != name.startswith(("layers", "trimmed"))
    assert drafter_named("org/layers") == Model("org/layers") and not has_no_model("suffix:n=lots")
    assert drafter_for(None, None) == Model() and drafter_for(TARGET, None) == Ngram(3)
    assert drafter_for(SMOLLM2, None) == Eagle3() and drafter_for(TARGET, DRAFTER) == Model(str(DRAFTER))


@pytest.mark.parametrize(
    ("target", "drafter", "folders", "reason"),
    [
        ("nowhere.gguf", None, True, "no folder or file"),
        ("./small.gguf", None, False, "not the id of a model"),
        ("http://host:99999", None, True, "no server's address"),
        ("http://host/v2", None, True, "no server's address"),
        ("http://me:word@host:8000", None, True, "no user and no password"),
        ("http://host:8000", None, False, "may name folders"),
        *(("http://host:8000", drafter, True, "does not tell") for drafter in ("eagle3:HEAD", "layers:exit=4")),
        ("http://host:8000", "http://other:8000", True, "drafts nothing"),
        *(("org/other", drafter, True, "eagle3:HEADDIR") for drafter in ("eagle3:", "eagle3")),
        (TARGET, f"eagle3:{TARGET}/none", True, "no folder"),
        (None, f"eagle3:{EAGLE3}", False, "not the id of a model"),
        (TARGET, "trimmed:m=9", True, "no drafter of its own"),
        *((None, f"suffix:text={TARGET}/{file}", False, "visitors may not") for file in ("", "missing")),
    ],
)
def test_names_that_cannot_work_are_refused_before_anything_is_read(
    target: Any, drafter: str | None, folders: bool, reason: str
) -> None:
    with pytest.raises(BadInput, match=reason):
        check_names(target, drafter, device="auto", dtype="auto", folders=folders)


STORY = "Once upon a time there was a little fox"


def bpe(*merges: str) -> PreTrainedTokenizerFast:
    return byte_level(BYTES[1:], merges)


def letters_in(folder: Path, context: int) -> Path:
    """A random model of letters."""
    torch.manual_seed(3)
    ends = {"eos_token_id": None, "bos_token_id": None, "max_position_embeddings": context, "initializer_range": 0.3}
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = AutoConfig.for_model("llama", vocab_size=len(bpe()), **sizes, **ends)
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    bpe().save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def backends(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Backend]:
    made = tmp_path_factory.mktemp("pairs")
    folders = {name: permuted(made / name, source) for name, source in (("target", TARGET), ("drafter", DRAFTER))}
    folders |= {name: letters_in(made / name, context) for name, context in (("letters", 512), ("short letters", 64))}
    return {name: load_backend(TARGET, folder, device="cpu", dtype="float32") for name, folder in folders.items()}


@pytest.mark.parametrize("name", ["letters", "short letters"])
def test_text_is_the_targets_whatever_is_drafted(backends: dict[str, Backend], name: str) -> None:
    backend, settings = backends[name], Settings(rule="strict", gamma=5, max_new_tokens=60)
    run = Recording(backend, STORY, settings).finish()
    assert run.token_ids == decode_alone(backend, run.prompt_ids, settings)[0]
    assert any(len(round_.speculation) for round_ in run.rounds)
    assert not any(round_.speculation.sampled for round_ in run.rounds)
    assert re.search(r" \d+ drafter passes for \d+ drafted tokens", backend.notes[0])


def test_the_target_under_other_ids_drafts_what_the_target_writes(backends: dict[str, Backend], pair: Backend) -> None:
    settings = Settings(rule="strict", gamma=6, max_new_tokens=70)
    both = backends["target"], backends["drafter"], pair
    same, own, built_in = (Recording(each, STORY, settings).finish() for each in both)
    assert same.token_ids == own.token_ids == built_in.token_ids and same.tau > 6.5
    assert all(len(round_.token_ids) == len(round_.speculation) + 1 for round_ in same.rounds[:-1])
    assert own.tau > 0.9 * built_in.tau, "as good as the same drafter under the target's ids"
    together = record_all(backends["drafter"], ["The frog", STORY], replace(settings, max_new_tokens=12), batch=2)
    assert [run.token_ids for run in together][1] == own.token_ids[:12]


def test_costs_count_the_drafters_passes(backends: dict[str, Backend], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mars_viz.speculators.costs.LEAST", 2)
    measuring = Measuring(backends["drafter"], 3, seconds=0.01)
    list(measuring)
    costs = measuring._found
    assert costs is not None and 1.05 < costs.passes_per_token < 3
    settings = Settings(gamma=3, max_new_tokens=24)
    dial_map = Mapping(backends["drafter"], STORY, settings, Span(0.9, 1.0, (3,))).finish()
    segment = dial_map.segments[-1]
    drafted = [len(round_.speculation) for round_ in segment.rounds]
    passes = [int(round_.speculation.drafter_passes[-1]) for round_ in segment.rounds]
    assert sum(passes) > sum(drafted)
    kept = json.loads(json.dumps(asdict(costs)))
    assert costs_from(kept).passes_per_token == costs.passes_per_token
    del kept["passes_per_token"]  # as in older files
    assert costs_from(kept).passes_per_token == 1.0


WORDS = bpe("H e", "He l", "l o", "Hel lo", "Ġ w", "o r", "Ġw or", "l d", "Ġwor ld")


def between(target: PreTrainedTokenizerBase, limit: int = 4096) -> Translation:
    letters = bpe()
    tokenizers = TransformersTokenizer(target, "target"), TransformersTokenizer(letters, "drafter")
    return Translation(*tokenizers, limit, frozenset({letters.eos_token_id}), target.eos_token_id)


def written(prefix: Sequence[str], text: bytes, target: PreTrainedTokenizerBase = WORDS, end: bool = False) -> Any:
    """What a drafter by letters settles that writes this after the target's tokens."""
    ids, letters, translation = tuple(target.convert_tokens_to_ids(list(prefix))), bpe(), between(target)
    draft = Continuation(translation, ids)
    byte = {piece.data: i for i in range(len(letters)) if not (piece := translation.pieces[i]).special}
    for each in [byte[text[i : i + 1]] for i in range(len(text))] + [letters.eos_token_id] * end:
        if not draft.done:
            draft.take(each)
    return draft


LONG = bpe("a a", "aa aa", "aaaa aaaa", "aaaaaaaa aaaaaaaa")
HIGH, LOW = ("Ã", "©")  # the bytes of é in the byte-level alphabet


@pytest.mark.parametrize(
    ("prefix", "text", "end", "tokens", "done"),
    [
        ("Hello", b" worl", False, "", False),  # it may still become ' world'
        ("Hel", b"lo wo", False, "", True),  # 'Hello' would change the prefix
        ("Hel", b"lo worl lo", False, "", True),
        ("Hel", b"lo", False, "", False),
        ("Hel", b"d wo", False, "d", False),
        ("Hello", b" world", True, f"Ġworld {END}", True),
        ("Hello", b"", True, END, True),
        (f"Hello {HIGH}", b"e", False, "", True),
        ("Hello", b" world \xc3", True, f"Ġworld Ġ {END}", True),  # half a character
        *(("Hello", "😀".encode()[:n], False, "", False) for n in range(1, 4)),
    ],
)
def test_tokens_are_drafted_when_no_more_text_can_change_them(
    prefix: str, text: bytes, end: bool, tokens: str, done: bool
) -> None:
    draft = written(prefix.split(), text, end=end)
    assert WORDS.convert_ids_to_tokens(draft.tokens) == tokens.split() and draft.done == done


def test_what_follows_is_encoded_in_context() -> None:
    assert WORDS.tokenize("Hello world lo") == ["Hello", "Ġworld", "Ġ", "lo"]
    draft = written(["Hello"], b" world lo ")
    assert WORDS.convert_ids_to_tokens(draft.tokens) == ["Ġworld", "Ġ", "lo"][: len(draft.tokens)]
    assert len(draft.tokens) >= 1 and not draft.done and draft.passes == 10
    assert WORDS.convert_ids_to_tokens(written(["Hello", HIGH], "é world ".encode()).tokens)[0] == LOW
    lost = written(["Hello"], b" world \xff w")
    assert lost.done and "\ufffd" not in WORDS.decode(lost.tokens) and lost.passes <= 9
    endless = written(["Ġ"], b"a" * 40, LONG)
    assert endless.done and endless.passes == PATIENCE and endless.tokens == []
    assert len(written(["Hello"], b"d" * 40).tokens) == 36, "tokens far from the end are settled without white space"


def words_with_prefix(legacy: bool) -> PreTrainedTokenizerFast:
    """As SentencePiece has it: '▁' for spaces, and one before every text."""
    merges = [("l", "o"), ("▁", "H"), ("▁H", "e"), ("▁He", "l"), ("▁Hel", "lo"), ("▁", "w"), ("▁w", "o")]
    vocabulary = {each: i for i, each in enumerate([*"▁Helowrd", *("".join(pair) for pair in merges)])}
    made = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    made.decoder = decoders.Metaspace()
    if legacy:
        made.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    else:
        made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    return PreTrainedTokenizerFast(tokenizer_object=made, eos_token=END)


@pytest.mark.parametrize("legacy", [False, True])
def test_a_tokenizer_that_puts_a_space_before_every_text_drafts_none_of_its_own(legacy: bool) -> None:
    target = words_with_prefix(legacy)
    draft = written(["▁Hello"], b" wo Hello w", target)
    assert target.convert_ids_to_tokens(draft.tokens) == ["▁wo", "▁Hello"]
    inside = written(["▁Hel"], b"d wo Hello", target)
    assert target.convert_ids_to_tokens(inside.tokens) == ["d", "▁wo"]
    assert written(["▁Hel"], b"lo wo Hello", target).done


def test_temperature_trees_and_trimming_are_refused(backends: dict[str, Backend], tmp_path: Path) -> None:
    for settings in (Settings(rule="strict", temperature=0.8), Settings(rule="strict", tree="dynamic")):
        with pytest.raises(SettingError, match="letters has another tokenizer than built-in/target"):
            Recording(backends["letters"], STORY, settings)
        with pytest.raises(SettingError, match="by text"):
            backends["letters"].speculator(settings)
    with pytest.raises(BadInput, match="has another tokenizer"):
        load_backend(TARGET, f"trimmed:m=900,of={letters_in(tmp_path / 'letters', 512)}", device="cpu")
