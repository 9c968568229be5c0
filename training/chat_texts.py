"""Conversations that a chat model writes by itself, for its EAGLE-3 head to learn from.

The model continues its own template after the user's prefix, as in Magpie (Xu et al. 2024, arXiv 2406.08464), and then
answers. Some user turns begin with given words or are given whole, so that they cover more tasks than a small model
thinks of by itself. A shard is a function of the seed, its number and its size, up to the device's rounding.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import linear, rms_norm, scaled_dot_product_attention, silu
from tqdm import tqdm
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from mars_viz.writer import replacing

LONGEST = 384
"""Tokens of a conversation, template included."""
LONGEST_QUESTION = 96
CANDIDATES = 50
"""Most likely tokens that are sampled from."""
REPEATED = 48
"""Tokens that, written again at once, end an answer."""
TEMPERATURES = (0.0, 0.0, 0.7)
"""Of the answers."""
PROMPT_WEIGHT = 0.3
"""Loss weight of the user's tokens; the answer's weigh 1."""
OPENINGS = (
    *["Write a short", "Write a Python function", "Write an email", "Write a poem", "Compose a blog post", "Draft a"],
    *[
        "Explain",
        "Describe",
        "Summarize",
        "Compare",
        "What is",
        "What are",
        "How do I",
        "How does",
        "Why",
        "Who",
        "When",
    ],
    *["Imagine you are", "Pretend to be", "You are a", "Give me", "List", "Suggest", "Create a", "Design", "Rewrite"],
    *["Translate", "Classify", "Extract", "Given the following", "Read the following", "Solve", "Calculate", "If"],
    *["Implement", "Fix the following code", "In SQL,", "In JavaScript,", "Tell me", "Can you", "I want", "My friend"],
    *["Discuss", "Argue", "Outline", "Plan", "Recommend", "Analyze", "Identify", "Find", "Prove", "Let x", "The"],
)


@dataclass(frozen=True, slots=True)
class Conversation:
    """One exchange, template included."""

    tokens: Tensor
    """int64 [n]."""
    weights: Tensor
    """float32 [n]; loss weight of predicting each token."""


class Writer:
    """A Llama target that reads one token per row at a time, on the model's device."""

    def __init__(self, model: LlamaForCausalLM, dtype: torch.dtype):
        config, self._dtype, self.device = model.config, dtype, model.device
        self._epsilon, self._keys = config.rms_norm_eps, config.num_key_value_heads
        self._size = config.hidden_size // config.num_attention_heads
        self._embedding = model.get_input_embeddings().weight.float()
        self._head, self._norm = model.lm_head.weight.to(dtype), model.model.norm.weight
        self._layers = [
            {
                "norm": layer.input_layernorm.weight,
                "qkv": self._joined(layer.self_attn.q_proj, layer.self_attn.k_proj, layer.self_attn.v_proj),
                "out": layer.self_attn.o_proj.weight.to(dtype),
                "middle": layer.post_attention_layernorm.weight,
                "gate_up": self._joined(layer.mlp.gate_proj, layer.mlp.up_proj),
                "down": layer.mlp.down_proj.weight.to(dtype),
            }
            for layer in model.model.layers
        ]
        positions = torch.arange(LONGEST, device=self.device).unsqueeze(0)
        self._cosine, self._sine = (each[0] for each in model.model.rotary_emb(self._embedding, positions))

    def _joined(self, *parts: torch.nn.Linear) -> Tensor:
        return torch.cat([part.weight for part in parts]).to(self._dtype)

    def open(self, rows: int) -> None:
        """Start `rows` empty texts."""
        shape = (2, rows, self._keys, LONGEST, self._size)
        self._caches = [torch.empty(shape, dtype=self._dtype, device=self.device) for _ in self._layers]
        self._place = 0

    def keep(self, rows: Tensor) -> None:
        """Go on with these rows only."""
        for i, cache in enumerate(self._caches):  # one after the other: a copy of all would need twice the memory
            self._caches[i] = cache[:, rows]

    def read(self, tokens: Tensor) -> Tensor:
        """Return float32 logits [B, V] after the tokens [B]."""
        x, place = self._embedding[tokens.to(self.device)], self._place
        cosine, sine = self._cosine[place], self._sine[place]
        for layer, cache in zip(self._layers, self._caches, strict=True):
            qkv = linear(self._normed(x, layer["norm"]), layer["qkv"]).view(len(x), -1, self._size)
            turned = qkv[:, : -self._keys].float()
            half = self._size // 2
            turned = turned * cosine + torch.cat([-turned[..., half:], turned[..., :half]], -1) * sine
            cache[0, :, :, place], cache[1, :, :, place] = turned[:, -self._keys :], qkv[:, -self._keys :]
            queries = turned[:, : -self._keys].to(self._dtype).view(len(x), self._keys, -1, self._size)
            mixed = scaled_dot_product_attention(queries, *cache[:, :, :, : place + 1])
            x = x + linear(mixed.reshape(len(x), -1), layer["out"])
            gate, up = linear(self._normed(x, layer["middle"]), layer["gate_up"]).chunk(2, -1)
            x = x + linear(silu(gate) * up, layer["down"])
        self._place += 1
        normed = rms_norm(x, self._norm.shape, self._norm, self._epsilon)
        return linear(normed.to(self._dtype), self._head).float()

    def _normed(self, x: Tensor, weight: Tensor) -> Tensor:
        return rms_norm(x, weight.shape, weight, self._epsilon).to(self._dtype)


class Template:
    """The tokens of a chat template around a user's turn."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast):
        self._tokenizer, mark = tokenizer, "\N{SNOWMAN}"
        text = tokenizer.apply_chat_template(
            [{"role": "user", "content": mark}], tokenize=False, add_generation_prompt=True
        )
        before, after = text.split(mark)
        self.before, self.after = self.tokens(before), self.tokens(after)
        self.end = self.after[0]
        """Token that ends a turn."""

    def tokens(self, text: str) -> list[int]:
        """The ids of a text, without further special tokens."""
        ids: list[int] = self._tokenizer(text, add_special_tokens=False).input_ids
        return ids


def conversations(
    writer: Writer, template: Template, questions: Sequence[str], seed: str, count: int
) -> list[Conversation]:
    """Return up to `count` of them, written together: each answered at one of `TEMPERATURES`.

    A tenth of the user turns are among `questions`, half begin with one of `OPENINGS`, and the others are the model's.
    """
    device = writer.device
    generator = torch.Generator(device)
    rows, chances = _Rows(template, random.Random(seed), questions, count, device), random.Random(f"{seed} chances")
    generator.manual_seed(chances.getrandbits(60))
    finished: list[Conversation] = []
    writer.open(count)
    for place in tqdm(range(LONGEST), desc=f"conversations {seed}", mininterval=10):
        likely = writer.read(rows.tokens[:, place]).topk(CANDIDATES)
        noise = torch.empty_like(likely.values).exponential_(generator=generator).log()
        taken = (likely.values - rows.temperature * noise).argmax(1, keepdim=True)  # Gumbel's trick
        rows.add(likely.indices.gather(1, taken).flatten(), place + 1)
        last = place + 1 == LONGEST
        if last or place % 8 == 0:
            going = torch.full_like(rows.ended, not last) & ~rows.ended
            if last or going.sum() < len(going) * 7 // 8:
                finished += rows.finished(~going)
                rows.keep(going)
                if not len(rows.tokens):
                    break
                writer.keep(going)
    return finished


class _Rows:
    """Conversations that are being written, on the writer's device. Row i knows its first `length[i]` tokens."""

    def __init__(
        self, template: Template, rng: random.Random, questions: Sequence[str], count: int, device: torch.device
    ):
        self._before, self._end = len(template.before), template.end
        self._after = torch.tensor(template.after, device=device)
        known, answers, warm = [], [], []
        for _ in range(count):
            kind = rng.random()
            asked = bool(questions) and kind < 0.1
            given = rng.choice(questions) if asked else rng.choice(OPENINGS) if kind < 0.6 else ""
            tokens = [*template.before, *template.tokens(given), *(template.after if asked else [])]
            known.append(tokens[:LONGEST])
            answers.append(len(tokens) if asked else 0)
            warm.append(rng.choice(TEMPERATURES))
        self.tokens = torch.zeros(count, LONGEST + len(template.after) + 1, dtype=torch.int64)
        for row, tokens in zip(self.tokens, known, strict=True):
            row[: len(tokens)] = torch.tensor(tokens)
        self.tokens = self.tokens.to(device)
        self.length = torch.tensor([len(tokens) for tokens in known], device=device)
        self.answer = torch.tensor(answers, device=device)
        """Where the answer begins, 0 while the user's turn is written."""
        self._warmth = torch.tensor(warm, device=device)
        self.ended = torch.zeros(count, dtype=torch.bool, device=device)

    @property
    def temperature(self) -> Tensor:
        """[B, 1]; the model asks at 1."""
        return torch.where(self.answer > 0, self._warmth, 1.0).unsqueeze(1)

    def add(self, chosen: Tensor, place: int) -> None:
        """Take the tokens [B] that the model chose for `place`, unless a row knows one there or has ended."""
        written = (self.length <= place) & ~self.ended
        self.tokens[:, place] = torch.where(written, chosen, self.tokens[:, place])
        self.length[written] = place + 1
        closed, answering = chosen == self._end, self.answer > 0
        asked = written & ~answering & (closed | (place - self._before >= LONGEST_QUESTION))
        after = slice(place, place + len(self._after))
        self.tokens[:, after] = torch.where(asked.unsqueeze(1), self._after, self.tokens[:, after])
        self.length[asked] = self.answer[asked] = after.stop
        self.ended |= written & answering & (closed | self._repeats(place))

    def _repeats(self, place: int) -> Tensor:
        """[B]; whether the 48 tokens before `place` are those shortly before them again."""
        if place < REPEATED + 32:
            return torch.zeros_like(self.ended)
        before = self.tokens[:, place - REPEATED - 32 : place].unfold(1, REPEATED, 1)  # [B, 33, 48]
        return (before[:, :-1] == before[:, -1:]).all(-1).any(-1) & (place - self.answer > 2 * REPEATED)

    def finished(self, rows: Tensor) -> list[Conversation]:
        """The answered ones of these rows, with their end tokens."""
        rows &= (self.answer > 0) & (self.length - self.answer > 8)
        parts = (part[rows].tolist() for part in (self.length.clamp(max=LONGEST), self.answer))
        return [
            Conversation(tokens[:n].clone(), torch.where(torch.arange(n) < start, PROMPT_WEIGHT, 1.0))
            for tokens, n, start in zip(self.tokens[rows].cpu(), *parts, strict=True)
        ]

    def keep(self, rows: Tensor) -> None:
        """Go on with these rows only."""
        for name in ("tokens", "length", "answer", "_warmth", "ended"):
            setattr(self, name, getattr(self, name)[rows])


def write_shards(
    writer: Writer,
    template: Template,
    questions: Sequence[str],
    folder: Path,
    seed: int,
    numbers: Iterable[int],
    count: int,
) -> None:
    """Write the shards of these numbers, of `count` conversations each, that are not in `folder` yet."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in numbers:
        path = folder / f"{number:04d}.pt"
        if not path.exists():
            made = conversations(writer, template, questions, f"{seed}:{number}", count)
            kept = {name: torch.cat([getattr(each, name) for each in made]) for name in ("tokens", "weights")}
            with replacing(path) as file:
                torch.save({**kept, "lengths": torch.tensor([len(each.tokens) for each in made])}, file)


class Shards:
    """The conversations in a folder, as batches for training."""

    def __init__(self, folder: Path, seed: int):
        self._seed, self._all = seed, []
        for path in sorted(folder.glob("*.pt")):
            shard = torch.load(path, mmap=True, weights_only=True)
            parts = (shard[name].split(shard["lengths"].tolist()) for name in ("tokens", "weights"))
            self._all += [Conversation(*each) for each in zip(*parts, strict=True)]

    def __len__(self) -> int:
        return len(self._all)

    @property
    def token_count(self) -> int:
        """Tokens of all conversations."""
        return sum(len(each.tokens) for each in self._all)

    def counts(self, vocabulary: int) -> Tensor:
        """How often each token is in an answer, int64 [vocabulary]."""
        answers = torch.cat([each.tokens[each.weights == 1] for each in self._all])
        return torch.bincount(answers, minlength=vocabulary)

    def batch(self, step: int, rows: int, length: int) -> tuple[Tensor, Tensor]:
        """Return tokens [B, S + 1] of conversations of similar lengths, and weights [B, S] of predicting all but the
        first.

        S + 1 is at most `length`; padding weighs 0.
        """
        rng = random.Random(f"{self._seed}:{step}")
        some = sorted(rng.choices(self._all, k=4 * rows), key=lambda each: len(each.tokens))
        first = rng.randrange(0, 4 * rows, rows)
        some = some[first : first + rows]
        parts = ([getattr(each, name)[:length] for each in some] for name in ("tokens", "weights"))
        tokens, weights = (torch.nn.utils.rnn.pad_sequence(part, batch_first=True) for part in parts)
        return tokens, weights[:, 1:]
