"""EAGLE-3 heads and MTP layers in training, in the names of their checkpoints, and the loss over several own steps.

Li et al. 2025, 'EAGLE-3' (arXiv 2503.01840): row j reads the embedding of token j + 1 and the target's features of
token j, and predicts token j + 2; its output replaces the next token's features. In training the head reads its own
states as in drafting ('training-time test'). Knows tensors; no files. `drafters.model` drafts with it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import rms_norm, silu
from transformers import PreTrainedModel

STEPS = 4
"""Of its own that the head is trained on: the first with the target's features, the others with its own states."""
FADING = 0.8
"""What a step weighs in the loss of what the step before it does."""


@dataclass(frozen=True, slots=True)
class HeadShape:
    """How large a head is, and what of the target it reads."""

    width: int
    """H, which is the target's too."""
    inner: int
    """I, of the MLP."""
    heads: int
    """Of attention, each of H / heads."""
    keys: int
    """Heads of keys and values, which divide those."""
    vocabulary: int
    """Vd, tokens that it can draft."""
    layers: tuple[int, ...]
    """The target's, counted from 0, whose inputs it reads."""
    epsilon: float = 1e-6
    """Of the norms."""
    theta: float = 10000.0
    """Of the rotary positions."""


class Norm(nn.Module):
    """A root-mean-square norm."""

    def __init__(self, width: int, epsilon: float):
        super().__init__()
        self.weight, self.epsilon = nn.Parameter(torch.ones(width)), epsilon

    def forward(self, x: Tensor) -> Tensor:
        """x [..., width]."""
        return rms_norm(x.float(), self.weight.shape, self.weight, self.epsilon)


def matrix(inputs: int, outputs: int) -> nn.Linear:
    """Without a bias."""
    return nn.Linear(inputs, outputs, bias=False)


class Attention(nn.Module):
    """Reads `inputs` numbers of each token."""

    def __init__(self, shape: HeadShape, inputs: int):
        super().__init__()
        kept = shape.width // shape.heads * shape.keys
        self.q_proj = matrix(inputs, shape.width)
        self.k_proj, self.v_proj = matrix(inputs, kept), matrix(inputs, kept)
        self.o_proj = matrix(shape.width, shape.width)


class Mlp(nn.Module):
    """SwiGLU."""

    def __init__(self, shape: HeadShape):
        super().__init__()
        self.gate_proj, self.up_proj = matrix(shape.width, shape.inner), matrix(shape.width, shape.inner)
        self.down_proj = matrix(shape.inner, shape.width)

    def forward(self, x: Tensor) -> Tensor:
        """x [..., H]."""
        made: Tensor = self.down_proj(silu(self.gate_proj(x)) * self.up_proj(x))
        return made


class Layer(nn.Module):
    """A decoder layer whose attention reads `inputs` numbers of each token."""

    def __init__(self, shape: HeadShape, inputs: int):
        super().__init__()
        self.self_attn, self.mlp = Attention(shape, inputs), Mlp(shape)
        self.input_layernorm, self.post_attention_layernorm = (Norm(shape.width, shape.epsilon) for _ in range(2))


class EagleLayer(Layer):
    """A layer that reads the embedding and the state side by side, 2 H wide."""

    def __init__(self, shape: HeadShape):
        super().__init__(shape, 2 * shape.width)
        self.hidden_norm = Norm(shape.width, shape.epsilon)


class Head(nn.Module):
    """The trained part of a drafter over the target's states. The embeddings are the target's and do not change."""

    def __init__(self, shape: HeadShape):
        super().__init__()
        self.shape = shape
        self.norm = Norm(shape.width, shape.epsilon)

    @property
    def device(self) -> torch.device:
        """Where it is trained."""
        return self.norm.weight.device

    @property
    def layer(self) -> Layer:
        """Its decoder layer."""
        raise NotImplementedError

    def first(self, features: Tensor) -> Tensor:
        """Return the states [B, S, H] of the target's features [B, S, layers · H]."""
        raise NotImplementedError

    def entered(self, embeddings: Tensor, states: Tensor) -> tuple[Tensor, Tensor]:
        """Return what the layer adds to, [B, S, H], and what its attention reads, [B, S, inputs]."""
        raise NotImplementedError

    def left(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        """Return the next states [B, S, H] and the logits [B, S, Vd] from the layer's outputs [B, S, H]."""
        raise NotImplementedError

    def forward(self, embeddings: Tensor, features: Tensor, steps: int) -> list[Tensor]:
        """Logits [B, S, Vd] of each step of its own, of the embeddings [B, S + steps - 1, H] of tokens 1, 2, … and the
        features [B, S, layers · H] of tokens 0, 1, …: row j of step s predicts token j + 2 + s."""
        count, made = features.shape[1], []
        state, keys, values = self.first(features), [], []
        seen = torch.ones(count, count, dtype=torch.bool, device=features.device).tril()
        layer = self.layer
        for step in range(steps):
            state, read = self.entered(embeddings[:, step : step + count], state)
            attention = layer.self_attn
            asked, key, value = (
                m(read).unflatten(-1, (heads, -1)).transpose(1, 2).repeat_interleave(self.shape.heads // heads, 1)
                for m, heads in (
                    (attention.q_proj, self.shape.heads),
                    (attention.k_proj, self.shape.keys),
                    (attention.v_proj, self.shape.keys),
                )
            )  # [B, heads, S, D]
            turns = self._turns(count, step, asked)
            asked, key = turned(asked, turns) * asked.shape[-1] ** -0.5, turned(key, turns)
            keys.append(key)
            values.append(value)
            scores = (asked @ keys[0].transpose(-1, -2)).float().masked_fill(~seen, -torch.inf)
            own = [(asked * key).sum(-1, keepdim=True).float() for key in keys[1:]]  # of its own steps before
            shares = torch.cat([scores, *own], -1).softmax(-1)
            mixed = shares[..., :count].to(value.dtype) @ values[0]
            for i, later in enumerate(values[1:]):
                mixed = mixed + shares[..., count + i, None].to(value.dtype) * later
            state = state + attention.o_proj(mixed.transpose(1, 2).flatten(2))
            state = state + layer.mlp(layer.post_attention_layernorm(state))
            state, logits = self.left(state)
            made.append(logits)
        return made

    def _turns(self, count: int, step: int, like: Tensor) -> tuple[Tensor, Tensor]:
        """Cosines and sines [S, D] of the rows' positions in that step."""
        size = like.shape[-1]
        rates = self.shape.theta ** (-torch.arange(0, size, 2, device=like.device) / size)
        angles = (torch.arange(count, device=like.device) + step).unsqueeze(-1) * rates
        angles = torch.cat([angles, angles], -1)
        return angles.cos(), angles.sin()


class EagleHead(Head):
    """An EAGLE-3 head, in SafeAILab's names."""

    def __init__(self, shape: HeadShape):
        super().__init__(shape)
        self.fc = matrix(len(shape.layers) * shape.width, shape.width)
        self.midlayer = EagleLayer(shape)
        self.lm_head = matrix(shape.width, shape.vocabulary)

    @property
    def layer(self) -> EagleLayer:
        """Its decoder layer."""
        return self.midlayer

    def first(self, features: Tensor) -> Tensor:
        """Return `fc` of the features."""
        return self.fc(features)

    def entered(self, embeddings: Tensor, states: Tensor) -> tuple[Tensor, Tensor]:
        """Return the states, and both normed and side by side."""
        return states, torch.cat([self.layer.input_layernorm(embeddings), self.layer.hidden_norm(states)], -1)

    def left(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        """Return the outputs, and the logits of the normed ones."""
        return outputs, self.lm_head(self.norm(outputs))


class MtpHead(Head):
    """A multi-token-prediction layer, in Qwen's names without 'mtp.'; see `networks.mtp_head`."""

    def __init__(self, shape: HeadShape, output: Tensor):
        """`output` [Vd, H] are the target's output rows, which do not change."""
        super().__init__(shape)
        self.fc = matrix(2 * shape.width, shape.width)
        self.pre_fc_norm_embedding, self.pre_fc_norm_hidden = (Norm(shape.width, shape.epsilon) for _ in range(2))
        self.layers = nn.ModuleList([Layer(shape, shape.width)])
        self.register_buffer("output", output, persistent=False)

    @property
    def layer(self) -> Layer:
        """Its decoder layer."""
        layer = self.layers[0]
        assert isinstance(layer, Layer)
        return layer

    def first(self, features: Tensor) -> Tensor:
        """Return the features, which are the target's last states."""
        return features

    def entered(self, embeddings: Tensor, states: Tensor) -> tuple[Tensor, Tensor]:
        """Return `fc` of both, normed and side by side, and its norm."""
        joined = self.fc(torch.cat([self.pre_fc_norm_embedding(embeddings), self.pre_fc_norm_hidden(states)], -1))
        return joined, self.layer.input_layernorm(joined)

    def left(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        """Return the normed outputs, and their logits."""
        states = self.norm(outputs)
        return states, states @ self.output.T


def turned(x: Tensor, turns: tuple[Tensor, Tensor]) -> Tensor:
    """x [..., S, D] with rotary positions."""
    cosine, sine = turns
    half = x.shape[-1] // 2
    return x * cosine + torch.cat([-x[..., half:], x[..., :half]], -1) * sine


def steps_loss(
    head: Head, embeddings: Tensor, features: Tensor, logits: Tensor, weights: Tensor, steps: int = STEPS
) -> Tensor:
    """Return the cross-entropy of the head against the target's law over the head's tokens, in nats per token.

    It is a weighted mean over the steps, of the embeddings [B, S, H] and features [B, S, layers · H] of tokens, the
    target's logits [B, S, Vd] of the head's tokens after each, and the weights [B, S] of predicting the next one.
    """
    wanted = logits.float().softmax(-1)
    count = features.shape[1] - steps
    total = wanted.new_zeros(())
    for step, said in enumerate(head(embeddings[:, 1:], features[:, :count], steps)):
        rows = slice(step + 1, step + 1 + count)  # the target's law after the token that row j has just read
        losses = -(wanted[:, rows] * said.float().log_softmax(-1)).sum(-1)
        total = total + FADING**step * (losses * weights[:, rows]).sum() / weights[:, rows].sum()
    return total / sum(FADING**step for step in range(steps))


class HeadLoss:
    """The loss on texts that the target reads for it.

    What the text has of tokens that the head cannot draft weighs nothing, as in SafeAILab's training.
    """

    def __init__(
        self, target: PreTrainedModel, vocabulary: Tensor, least_weight: float = 0.0, temperature: float = 1.0
    ):
        """`vocabulary` int64 [Vd]; the target's ids of the head's tokens. No token weighs less than `least_weight`.

        A `temperature` of the target's law below 1 favours its best token, the one that a greedy decode accepts.
        """
        self._target, self._least, self._temperature = target, least_weight, temperature
        output = target.get_output_embeddings().weight
        self._output = output[vocabulary]
        self._drafted = torch.zeros(len(output), device=output.device).index_fill_(0, vocabulary, 1.0)

    def __call__(self, head: Head, tokens: Tensor, weights: Tensor) -> Tensor:
        """Of tokens [B, S + 1] and the weights [B, S] of predicting all but the first."""
        inputs = tokens[:, :-1]
        with torch.no_grad():
            read = self._target.base_model(input_ids=inputs, use_cache=False, output_hidden_states=True)
            features = torch.cat([read.hidden_states[i] for i in head.shape.layers], -1)
            embeddings = self._target.get_input_embeddings()(inputs)
            logits = read.last_hidden_state @ self._output.T / self._temperature
            weights = weights.clamp(min=self._least) * self._drafted[tokens[:, 1:]]
        return steps_loss(head, embeddings, features, logits, weights)
