"""Drafters with another tokenizer than the target's, which draft by text."""

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
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers
from torch import Tensor
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
)

from mars_viz.costs import costs_from, drafts_seconds
from mars_viz.demo import DRAFTER, TARGET
from mars_viz.dialmap import Span
from mars_viz.errors import BadInput, SettingError
from mars_viz.recording import Mapping, Recording, record_all
from mars_viz.records import Round
from mars_viz.run import Run, Settings
from mars_viz.speculators.autoregressive import decode_alone
from mars_viz.speculators.backend import Backend
from mars_viz.speculators.costs import Measuring
from mars_viz.speculators.devices import inference
from mars_viz.speculators.drafters.universal import PATIENCE, Continuation, Translation
from mars_viz.speculators.loading import load_backend, text_drafter
from mars_viz.speculators.networks import Network, Opener
from mars_viz.speculators.networks.layer_inputs import LayerInputs
from mars_viz.speculators.token_bytes import TransformersTokenizer
from mars_viz.ui.jobs import tasks
from mars_viz.ui.live.live_words import cost_tiles
from tests.other_tokenizers import BYTES, END, byte_level, permuted

PROMPT = "Once upon a time there was a little fox"


def bpe(*merges: str) -> PreTrainedTokenizerFast:
    return byte_level(BYTES[1:], merges)


def saved(folder: Path, model: Any, tokenizer: PreTrainedTokenizerBase) -> Path:
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def random_model(vocabulary: int, context: int = 512) -> LlamaForCausalLM:
    torch.manual_seed(3)
    ends = {"eos_token_id": None, "bos_token_id": None, "max_position_embeddings": context, "initializer_range": 0.3}
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    return LlamaForCausalLM(LlamaConfig(vocab_size=vocabulary, **sizes, **ends)).eval()


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    made = tmp_path_factory.mktemp("pairs")
    letters = bpe()
    return {
        "permuted target": permuted(made / "permuted-target", TARGET),
        "permuted drafter": permuted(made / "permuted-drafter", DRAFTER),
        "letters": saved(made / "letters", random_model(len(letters)), letters),
        "short letters": saved(made / "short-letters", random_model(len(letters), 64), letters),
    }


NAMES = ("permuted drafter", "letters", "short letters")


@pytest.fixture(scope="module")
def backends(folders: dict[str, Path]) -> dict[str, Backend]:
    return {name: load_backend(TARGET, folder, device="cpu", dtype="float32") for name, folder in folders.items()}


class KnowsTheText(Network):
    """Letter by letter the bytes of a text that it knows, wherever its cache stands in it."""

    def __init__(self, text: bytes, letters: PreTrainedTokenizerBase, size: int):
        self.device, self.inputs = torch.device("cpu"), LayerInputs(())
        self._ids = letters(text.decode(), add_special_tokens=False)["input_ids"]
        self._size = size

    def score(
        self, tokens: Tensor, starts: Sequence[int], rows: int, slots: Sequence[int] | None = None, tree: Any = None
    ) -> Tensor:
        ends = [start + tokens.shape[1] for start in starts]
        found = torch.zeros(len(ends), rows, self._size)
        for i, end in enumerate(ends):
            for row in range(rows):
                place = end - rows + row + 1
                found[i, row, self._ids[place] if place < len(self._ids) else 0] = 1.0
        return found

    def copy(self, source: int, slot: int, length: int) -> None:
        pass


def alone(backend: Backend, settings: Settings, prompt: str = PROMPT) -> tuple[int, ...]:
    return decode_alone(backend, backend.prompt_ids(prompt, settings), settings).token_ids


def passes_of(rounds: Iterable[Round]) -> list[int]:
    """Of the drafter, in each round."""
    return [int(round_.speculation.drafter_passes[-1]) for round_ in rounds]


def rolled_back(run: Run) -> int:
    return sum(len(round_.speculation) - (len(round_.token_ids) - 1) for round_ in run.rounds[:-1])


@pytest.mark.parametrize("name", NAMES)
def test_text_is_the_targets_whatever_is_drafted(backends: dict[str, Backend], name: str) -> None:
    backend, settings = backends[name], Settings(rule="strict", gamma=5, max_new_tokens=80)
    run = Recording(backend, PROMPT, settings).finish()
    assert run.token_ids == alone(backend, settings)
    assert any(len(round_.speculation) for round_ in run.rounds)
    assert not any(round_.speculation.sampled for round_ in run.rounds)
    assert len(backend.notes) == 1 and "drafter passes for" in backend.notes[0]
    assert run.provenance.batching.startswith("bit for bit")


def test_the_target_under_other_ids_drafts_what_the_target_writes(backends: dict[str, Backend], pair: Backend) -> None:
    settings = Settings(rule="strict", gamma=6, max_new_tokens=70)
    run = Recording(backends["permuted target"], PROMPT, settings).finish()
    assert run.token_ids == alone(pair, settings)
    assert rolled_back(run) == 0 and run.tau > 6.5
    own, built_in = (Recording(each, PROMPT, settings).finish() for each in (backends["permuted drafter"], pair))
    assert own.token_ids == built_in.token_ids
    assert own.tau > 0.9 * built_in.tau, "as good as the same drafter under the target's ids"


def test_letters_of_the_right_text_become_the_targets_tokens(backends: dict[str, Backend]) -> None:
    backend, settings = backends["letters"], Settings(rule="strict", gamma=5, max_new_tokens=60)
    written = alone(backend, replace(settings, max_new_tokens=90))
    pieces, letters = backend.tokenizer.pieces, bpe()
    prompt = backend.prompt_ids(PROMPT, settings)
    text = b"".join(pieces[token].data for token in (*prompt, *written) if not pieces[token].special)
    opener = Opener(lambda: KnowsTheText(text, letters, len(letters)))
    knowing = replace(backend, drafter=text_drafter(opener, "letters", "", between(backend.tokenizer.library)))
    run = Recording(knowing, PROMPT, settings).finish()
    assert run.token_ids == written[:60] and rolled_back(run) == 0 and run.tau > 5
    spent = knowing.drafter.open(settings).spent  # type: ignore[attr-defined]
    assert spent.tokens == sum(len(round_.speculation) for round_ in run.rounds)
    assert spent.passes == sum(passes_of(run.rounds))
    for round_ in run.rounds[:-1]:
        up_to = round_.speculation.drafter_passes
        assert up_to[0] == 0 and (np.diff(up_to) >= 0).all() and up_to[1] >= len(pieces[int(round_.token_ids[0])].data)
    drafted = sum(len(pieces[int(token)].data) for round_ in run.rounds for token in round_.speculation.tokens)
    assert drafted < spent.passes < drafted + 12 * len(run.rounds), "a pass a letter, and those that settle the last"


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


def test_what_follows_is_encoded_in_context() -> None:
    assert WORDS.tokenize("Hello world lo") == ["Hello", "Ġworld", "Ġ", "lo"]
    draft = written(["Hello"], b" world lo ")
    assert WORDS.convert_ids_to_tokens(draft.tokens) == ["Ġworld", "Ġ", "lo"][: len(draft.tokens)]
    assert len(draft.tokens) >= 1 and not draft.done and draft.passes == 10
    assert written(["Hello"], b" worl").tokens == [], "it may still become ' world'"


def test_a_token_across_the_prefix_end_is_not_drafted() -> None:
    for settled in (b"lo wo", b"lo worl lo"):
        draft = written(["Hel"], settled)
        assert draft.tokens == [] and draft.done, "'Hello' would change what stands there"
    assert not written(["Hel"], b"lo").done
    kept = written(["Hel"], b"d wo")
    assert WORDS.convert_ids_to_tokens(kept.tokens) == ["d"] and not kept.done


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


def test_a_character_split_over_tokens_is_no_replacement_character() -> None:
    first, second = ("Ã", "©")  # the bytes of é in the byte-level alphabet
    draft = written(["Hello", first], "é world ".encode())
    assert WORDS.convert_ids_to_tokens(draft.tokens)[0] == second
    assert written(["Hello", first], b"e").done and written(["Hello", first], b"e").tokens == []
    broken = written(["Hello"], b" world " + "é".encode()[:1], end=True)
    assert WORDS.decode(broken.tokens) == " world " + END
    lost = written(["Hello"], b" world \xff w")
    assert lost.done and "\ufffd" not in WORDS.decode(lost.tokens) and lost.passes <= 9
    for data in ("😀".encode()[:n] for n in range(1, 4)):
        assert written(["Hello"], data).tokens == []


def test_the_end_of_text_is_the_targets_own_and_ends_the_draft() -> None:
    draft = written(["Hello"], b" world", end=True)
    assert draft.done and WORDS.convert_ids_to_tokens(draft.tokens) == ["Ġworld", END]
    assert written(["Hello"], b"", end=True).tokens == [WORDS.eos_token_id]


def test_a_word_without_end_is_given_up() -> None:
    long = bpe("a a", "aa aa", "aaaa aaaa", "aaaaaaaa aaaaaaaa")
    draft = written(["Ġ"], b"a" * 40, long)
    assert draft.done and draft.passes == PATIENCE and draft.tokens == []
    assert len(written(["Hello"], b"d" * 40).tokens) == 36, "tokens far from the end are settled without white space"


def test_a_long_text_is_read_in_parts_that_depend_on_it_only() -> None:
    target, letters = AutoTokenizer.from_pretrained(TARGET), bpe()
    ids = tuple(target("The fox said: café 😀! " * 60)["input_ids"])
    small, whole = between(target, limit=256), between(target)
    complete = 0
    for n in range(1, len(ids), 7):
        read = small.read(ids[:n])
        assert len(read) <= 256 - small.most
        text, everything = letters.decode(read), letters.decode(whole.read(ids[:n]))
        assert everything.endswith(text) and "\ufffd" not in everything
        assert between(target, limit=256).read(ids[:n]) == read, "whatever was read before"
        complete += everything == text
    assert complete < len(ids) / 7 - 20, "a long text is cut"


def test_a_shorter_draft_is_the_beginning_of_a_longer_one(backends: dict[str, Backend]) -> None:
    backend = backends["permuted drafter"]
    prompts = [backend.prompt_ids(each, Settings()) for each in (PROMPT, "The frog", "Add 58 and 67.\nAdd")]
    with inference():
        long = backend.drafter.open(Settings()).draft(prompts, 6)
        for count in range(1, 6):
            for i, prompt in enumerate(prompts):
                short = backend.drafter.open(Settings()).draft([prompt], count)
                assert long.lengths and short.lengths == (min(count, long.lengths[i]),)
                assert short.tokens[0].tolist() == long.tokens[i, : short.lengths[0]].tolist()


def test_batches_and_maps_are_separate_runs(backends: dict[str, Backend]) -> None:
    backend, settings = backends["short letters"], Settings(gamma=4, max_new_tokens=24)
    prompts = [PROMPT, "The frog wanted to", PROMPT]
    for prompt, one in zip(prompts, record_all(backend, prompts, settings, batch=3), strict=True):
        assert one.token_ids == Recording(backend, prompt, settings).finish().token_ids
    dial_map = Mapping(backend, PROMPT, settings, Span(0.5, 1.0, (2, 4))).finish()
    assert dial_map.complete
    for gamma, dial in ((2, 0.93), (4, 0.5), (4, 1.0)):
        own = Recording(backend, PROMPT, replace(settings, gamma=gamma, dial=dial)).finish()
        rounds = dial_map.segment(dial, gamma).rounds
        assert [round_.token_ids for round_ in rounds] == [round_.token_ids for round_ in own.rounds]
        assert passes_of(rounds) == passes_of(own.rounds)


def test_costs_count_the_drafters_passes(backends: dict[str, Backend]) -> None:
    measuring = Measuring(backends["permuted drafter"], 4, seconds=0.05)
    for _ in measuring:
        pass
    costs = measuring._found
    assert costs is not None and 1.05 < costs.passes_per_token < 3
    assert "passes of the drafter" in cost_tiles(costs, 4)[2].help
    settings = Settings(gamma=4, max_new_tokens=24)
    dial_map = Mapping(backends["permuted drafter"], PROMPT, settings, Span(0.9, 1.0, (4,))).finish()
    segment = dial_map.segments[-1]
    drafted, passes = [len(round_.speculation) for round_ in segment.rounds], passes_of(segment.rounds)
    seconds = drafts_seconds(costs, drafted, [each / costs.passes_per_token for each in passes])
    assert dial_map.modelled_seconds(costs, segment) == seconds and sum(passes) > sum(drafted)
    kept = json.loads(json.dumps(asdict(costs)))
    assert costs_from(kept).passes_per_token == costs.passes_per_token
    del kept["passes_per_token"]  # as in older files
    assert costs_from(kept).passes_per_token == 1.0


def test_temperature_trees_and_trimming_are_refused(backends: dict[str, Backend], folders: dict[str, Path]) -> None:
    backend = backends["letters"]
    for settings in (Settings(rule="strict", temperature=0.8), Settings(rule="strict", tree="dynamic")):
        with pytest.raises(SettingError, match="letters has another tokenizer than built-in/target"):
            Recording(backend, PROMPT, settings)
        with pytest.raises(SettingError, match="by text"):
            backend.speculator(settings)
    with pytest.raises(BadInput, match="take it whole"):
        load_backend(TARGET, f"trimmed:m=900,of={folders['letters']}", device="cpu")


def test_transformers_writes_the_same_text_in_as_many_rounds_or_more(
    folders: dict[str, Path], backends: dict[str, Backend]
) -> None:
    """`assistant_tokenizer` on the same pair: the same text; its rounds are counted beside ours."""
    model = AutoModelForCausalLM.from_pretrained(TARGET, dtype=torch.float32).eval()
    assistant = AutoModelForCausalLM.from_pretrained(folders["permuted drafter"], dtype=torch.float32).eval()
    assistant.resize_token_embeddings(4160, mean_resizing=False)  # of equal sizes transformers takes no tokenizer
    assistant.get_input_embeddings().weight.data[4096:] = 0
    assistant.generation_config.num_assistant_tokens = 6
    assistant.generation_config.num_assistant_tokens_schedule = "constant"
    assistant.generation_config.assistant_confidence_threshold = 0.0
    tokenizer = AutoTokenizer.from_pretrained(TARGET)
    passes: list[int] = []
    model.register_forward_hook(lambda *_: passes.append(1))
    ids = tokenizer(PROMPT, return_tensors="pt")["input_ids"]
    with torch.inference_mode():
        made = model.generate(
            ids,
            assistant_model=assistant,
            tokenizer=tokenizer,
            assistant_tokenizer=AutoTokenizer.from_pretrained(folders["permuted drafter"]),
            do_sample=False,
            max_new_tokens=60,
        )
    run = Recording(backends["permuted drafter"], PROMPT, Settings(rule="strict", gamma=6, max_new_tokens=60)).finish()
    assert made[0, ids.shape[1] :].tolist() == list(run.token_ids)
    assert len(run.rounds) <= len(passes)


def test_notes_count_the_passes_so_far(folders: dict[str, Path]) -> None:
    fresh = load_backend(TARGET, folders["letters"], device="cpu", dtype="float32")
    assert len(tasks.look(fresh).notes) == 1 and "drafter passes" not in tasks.look(fresh).notes[0]
    tasks.record(fresh, PROMPT, Settings(max_new_tokens=8)).finish()
    (note,) = tasks.look(fresh).notes
    assert re.search(r" \d+ drafter passes for \d+ drafted tokens", note)
