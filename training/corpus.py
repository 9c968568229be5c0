"""Training text for the built-in pair: stories and graded tasks, as weighted token sequences.

Knows the data folder's file names and the tokenizer; knows no model. Every batch is a function of (seed, step), so a
resumed training sees what an uninterrupted one would have seen.
"""

from __future__ import annotations

import dataclasses
import gzip
import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from mars_viz.demo import tasks
from mars_viz.errors import BadInput

STORY_FILES = ("tinystories_part.txt.gz", "african_storybook_en_ccby.txt.gz")
"""What the pair is trained on; the model card names their sources and licences."""

END = "<|endoftext|>"
VOCABULARY = 4096
PROMPT_WEIGHT = 0.1
"""Loss weight of a task's prompt, which is random and cannot be learned; everything else weighs 1."""

_PLAIN = str.maketrans({"“": '"', "”": '"', "’": "'", "‘": "'", "–": "-", "—": "-", "…": "...", "«": '"', "»": '"'})


def stories(folder: Path) -> tuple[list[str], list[str]]:
    """The stories for training, and every fiftieth held out.

    Raises BadInput where a file is missing.
    """
    texts: list[str] = []
    for name in STORY_FILES:
        path = folder / name
        if not path.exists():
            raise BadInput(f"The training text {path} is missing. Give the folder that holds {', '.join(STORY_FILES)}.")
        with gzip.open(path, "rt", encoding="utf-8") as file:
            texts += [part.strip().translate(_PLAIN) for part in file.read().split(END)]
    texts = [text for text in texts if text]
    held_out = texts[::50]
    return [text for i, text in enumerate(texts) if i % 50], held_out


def train_tokenizer(texts: list[str]) -> PreTrainedTokenizerFast:
    """A byte-level BPE tokenizer with single digits, trained on the stories and as much task text as is seen."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    exercises = [
        instance.prompt + instance.completion
        for task in tasks.Task
        if task not in tasks.FREE_WORDING  # the free wordings are made of words that stories have
        for instance in itertools.islice(tasks.instances(task, 0, held_out=False), 5000)
    ]
    tokenizer.train_from_iterator([*texts, *exercises], trainer)
    tokenizer.post_processor = processors.TemplateProcessing(single=f"{END} $A", special_tokens=[(END, 0)])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token=END, eos_token=END, pad_token=END, clean_up_tokenization_spaces=False
    )


@dataclass(frozen=True, slots=True)
class Batch:
    """Token sequences for one step, next-token targets included."""

    tokens: np.ndarray
    """int64 [B, S + 1]; every row begins with the end-of-text token."""
    weights: np.ndarray
    """float32 [B, S]; loss weight of predicting tokens[:, 1:]."""


Document = tuple[np.ndarray, np.ndarray]
"""Token ids int64 [n] and their loss weights float32 [n]."""


@dataclass(frozen=True, slots=True)
class Source:
    """Somewhere that documents come from."""

    share: float
    """Its part of all tokens."""
    length: float
    """Tokens in a typical document, to turn the share into odds."""
    document: Callable[[random.Random], Document]
    """Draws one."""


def plain_source(share: float, documents: list[np.ndarray]) -> Source:
    """Documents of which every token counts."""

    def document(rng: random.Random) -> Document:
        ids = rng.choice(documents)
        return ids, np.ones(len(ids), np.float32)

    return Source(share, float(np.mean([len(ids) for ids in documents])), document)


SLIPS = 0.2
"""Share of sentences in the training text of walks that name the opposite direction and continue from there. A trained
target's best token is then right, and a wrong one nearly as likely."""


def learned(task: tasks.Task, rng: random.Random) -> tasks.Instance:
    """Return an exercise for training: not held out, and with the slips of training text."""
    while True:
        turns = task is tasks.Task.TURNS
        instance = tasks.Instance(task, *tasks.turns(rng, slips=SLIPS)) if turns else tasks.make(task, rng)
        if not instance.held_out:
            return instance


def task_source(share: float, task: tasks.Task, tokenizer: PreTrainedTokenizerFast) -> Source:
    """Exercises that are not held out; their prompts hardly count."""

    def document(rng: random.Random) -> Document:
        instance = learned(task, rng)
        prompt = tokenizer(instance.prompt).input_ids
        answer = tokenizer(instance.completion, add_special_tokens=False).input_ids
        weight = np.ones(len(prompt) + len(answer), np.float32)
        weight[1 : len(prompt)] = PROMPT_WEIGHT
        return np.array(prompt + answer), weight

    typical = np.mean([len(document(random.Random(i))[0]) for i in range(100)])
    return Source(share, float(typical), document)


@dataclass(frozen=True, slots=True)
class Shares:
    """Parts of all tokens."""

    stories: float = 0.44
    addition: float = 0.08
    sorting: float = 0.15
    question: float = 0.33
    counting: float = 0.0
    holders: float = 0.0
    turns: float = 0.0

    def times(self, factor: float) -> Shares:
        """All of them a factor larger."""
        return Shares(**{name: factor * share for name, share in dataclasses.asdict(self).items()})


def text_sources(tokenizer: PreTrainedTokenizerFast, texts: list[str], shares: Shares) -> list[Source]:
    """Stories, and the tasks that have a share."""
    parts = {task: getattr(shares, task.value) for task in tasks.Task}
    return [
        plain_source(shares.stories, [np.array(ids) for ids in tokenizer(texts).input_ids]),
        *(task_source(share, task, tokenizer) for task, share in parts.items() if share),
    ]


class Mixture:
    """Packs whole documents into rows, the sources in their shares of tokens."""

    def __init__(self, sources: list[Source], seed: int):
        self._sources = sources
        self._odds = [source.share / source.length for source in sources]
        self._seed = seed

    def batch(self, step: int, rows: int, length: int) -> Batch:
        """The batch of this step: `rows` sequences of `length` predicted tokens."""
        rng = random.Random(f"{self._seed}:{step}")
        tokens = np.zeros((rows, length + 1), np.int64)
        weights = np.zeros((rows, length), np.float32)
        for row in range(rows):
            filled = 0
            while filled <= length:
                (source,) = rng.choices(self._sources, self._odds)
                ids, weight = source.document(rng)
                n = min(len(ids), length + 1 - filled)
                tokens[row, filled : filled + n] = ids[:n]
                start = max(filled, 1)  # the first token of a row is given, not predicted
                weights[row, start - 1 : filled + n - 1] = weight[start - filled : n]
                filled += n
        return Batch(tokens, weights)
