"""Checks of drafters and of vLLM servers with local models.

A drafter drafts after each token of texts that the target writes greedily. Its first token uses only the target's true
features; each further one uses the drafter's own states. So the first tokens of consecutive drafts show the agreement
at each depth with true features, and the drafts the actual agreement. A head also tries other layers of the target.

A server's acceptance is compared with strict speculation, and its logits at the tokens that it writes with a local
model's, to see whether it runs the model that it claims (DiFR, arXiv 2511.20621).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import torch

from mars_viz.analysis import checks
from mars_viz.analysis.engines import AcceptanceCounts
from mars_viz.analysis.intervals import ratio
from mars_viz.chat import EncodedPrompt, check_prompt, in_plain_text
from mars_viz.errors import ModelError, PromptError, SettingError
from mars_viz.exploration import walk
from mars_viz.records import Round
from mars_viz.rules import rule_named
from mars_viz.run import Settings
from mars_viz.speculators.backend import Backend, decode_alone
from mars_viz.speculators.devices import inference
from mars_viz.speculators.draft import TopLogits
from mars_viz.speculators.drafters.heads import FollowingDrafter, HeadDrafter
from mars_viz.speculators.drafters.model import ModelDrafter
from mars_viz.speculators.targets import PROBE, check_known, check_target, check_tokens
from mars_viz.speculators.vllm_http import SPECULATING, ServedText, Server
from mars_viz.walk import Prefix

TOGETHER = 16  # number of drafts made at once
LEAST = 3  # minimum number of texts for an interval
_NEEDED = ("draft_ids", "draft_logits")  # additional columns: they show how close the drafter's other tokens are


def checked_drafter(
    backend: Backend, prompts: Sequence[str | Prefix], *, depth: int = 6, tokens: int = 64
) -> Iterator[tuple[float, checks.DrafterCheck | None]]:
    """Check along `tokens` tokens after each prompt. Yields the finished share, and the result so far if it has enough
    texts for intervals.

    Raises BadInput for too few prompts, a drafter that only reads the text, a text that does not fit the context, and a
    target that ends most texts early.
    """
    if len(prompts) < LEAST:
        raise PromptError(f"{len(prompts)} prompts are too few to check a drafter. Give at least {LEAST}.")
    depth = min(depth, backend.drafter.longest or depth)
    least = 2 * depth - 1  # tokens of a text whose first tokens have drafts with true features at every depth
    if depth < 1 or tokens < least:
        raise SettingError(f"A check to depth {depth} needs at least {max(least, 1)} tokens of a text. Ask for more.")
    settings = Settings(rule="strict", gamma=depth, max_new_tokens=tokens)
    drafter = backend.drafter.open(settings)
    if not isinstance(drafter, ModelDrafter | FollowingDrafter):
        raise SettingError(
            f"{backend.drafter.name} drafts from the text, so there is no model to check. Take a model or its layers, "
            "or a head (eagle3, mtp or dflash)."
        )
    texts = list[tuple[Prefix, Prefix]]()  # prompts, and the target's text after each
    held = list[np.ndarray]()  # float64 [positions, 2] of each text
    agreed = list[np.ndarray]()  # bool [drafts, depth] of each text
    encoded = [backend.prompt_ids(prompt, settings) for prompt in prompts]
    check: checks.DrafterCheck | None = None
    for done, prompt in enumerate(encoded, start=1):
        text = decode_alone(backend, prompt, settings)[0]
        if len(text) >= least:
            texts.append((prompt, text))
            agreed.append(_drafted_along(backend, settings, prompt, text))
            held.append(_reach(backend, drafter.vocabulary, prompt, text))
        check = None if len(held) < LEAST else _drafter_check(backend, drafter, texts, held, agreed)
        yield done / len(encoded), check
    if check is None:
        raise PromptError(
            f"The target wrote at least {least} tokens after {len(held)} prompts, and {LEAST} are needed. Give "
            "prompts that it continues."
        )
    if isinstance(drafter, FollowingDrafter) and drafter.guess is not None:
        yield 1.0, replace(check, better=_other_layers(backend, drafter.layers, settings, texts, agreed))


Texts = Sequence[tuple[Prefix, Prefix]]  # prompts, and the target's text after each


def _drafter_check(
    backend: Backend,
    drafter: ModelDrafter | FollowingDrafter,
    texts: Texts,
    held: Sequence[np.ndarray],
    agreed: Sequence[np.ndarray],
) -> checks.DrafterCheck:
    """Return the result from the lists of `checked_drafter`."""
    by_text = np.array([checks.counts(each) for each in agreed], np.float64)  # [texts, 2, depth, 2]
    true, own = by_text.swapaxes(0, 1)
    reached = [place for place in range(true.shape[1]) if true[:, place, 1].sum() and own[:, place, 1].sum()]
    inside, positions = np.array([each.sum(0) for each in held]), np.array([len(each) for each in held], np.float64)
    contexts = np.concatenate([len(text[0]) + np.arange(len(each)) for text, each in zip(texts, agreed, strict=True)])
    return checks.DrafterCheck(
        drafter=backend.drafter.name,
        target=backend.target.name,
        texts=len(held),
        drafts=sum(map(len, agreed)),
        contexts=(int(contexts.min()), int(contexts.max())),
        depths=tuple(
            checks.DepthAgreement(place + 1, *(ratio(each[:, place, 0], each[:, place, 1]) for each in (true, own)))
            for place in reached
        ),
        coverage=ratio(inside[:, 0], positions),
        best_held=ratio(inside[:, 1], positions),
        fall=checks.fall_of(contexts, np.concatenate(agreed)[:, 0]),
        feeds_back=isinstance(drafter, HeadDrafter),
        guess=(drafter.guess or "") if isinstance(drafter, FollowingDrafter) else "",
    )


def _other_layers(
    backend: Backend, own: tuple[int, ...], settings: Settings, texts: Texts, agreed: Sequence[np.ndarray]
) -> checks.LayerTrial | None:
    """Return the best of other layers than its `own` that the drafter might read, if its drafts agree longer with 95 %
    confidence; off by one, they may hardly agree less."""
    count = int(backend.target.model.config.get_text_config().num_hidden_layers)
    shifted = [tuple(layer + by for layer in own) for by in (1, -1)]
    usual = [(2, count // 2, count - 3), (1, count // 2 - 1, count - 4)]  # of EAGLE-3, as inputs and as outputs
    wanted = dict.fromkeys(each for each in (*shifted, *usual) if len(each) == len(own) and each != own)
    drafts, best = np.array([len(each) for each in agreed], np.float64), None
    kept = _kept(agreed)
    for layers in wanted:
        if min(layers) < 0 or max(layers) > count:
            continue
        theirs = _kept([_drafted_along(backend, settings, *each, layers) for each in texts])
        trial = checks.LayerTrial(layers, theirs.sum() / drafts.sum(), ratio(theirs - kept, drafts))
        if trial.gain.low > 0 and (best is None or trial.accepted > best.accepted):
            best = trial
    return best


def _kept(agreed: Sequence[np.ndarray]) -> np.ndarray:
    """Return the drafted tokens before the first disagreement, summed over each text's drafts, float64 [texts]."""
    return np.array([np.logical_and.accumulate(each, axis=1).sum() for each in agreed], np.float64)


def _drafted_along(
    backend: Backend, settings: Settings, prompt: Prefix, text: Prefix, layers: tuple[int, ...] = ()
) -> np.ndarray:
    """Return whether each token of the draft after each token of the text is its next one, bool [drafts, depth]. The
    drafter reads these layers of the target, or its own."""
    target, drafter = backend.target.open(), backend.drafter.open(settings)
    if layers:
        assert isinstance(drafter, FollowingDrafter)
        drafter.layers = layers
    drafter.follow(target)
    tokens, depth = prompt + text, settings.gamma
    ends, drafts = range(len(prompt), len(tokens) - depth + 1), list[list[int]]()
    with inference():
        target.prefill([prompt])
        drafter.prefill([prompt])
        for place in range(0, len(ends), TOGETHER):
            some = ends[place : place + TOGETHER]
            drafts += drafter.draft([tokens[:end] for end in some], depth).tokens.tolist()
    return np.array(drafts) == np.lib.stride_tricks.sliding_window_view(tokens[len(prompt) :], depth)


def _reach(backend: Backend, vocabulary: torch.Tensor | None, prompt: Prefix, text: Prefix) -> np.ndarray:
    """Return the target's probability on the drafter's tokens, and 1 if its best is one of them: [positions, 2]."""
    laws = _logits_along(backend, prompt, text).softmax(-1)  # [positions, V]
    tokens = torch.arange(laws.shape[-1]) if vocabulary is None else vocabulary
    best = torch.isin(laws.argmax(-1), tokens.to(laws.device))
    return torch.stack([laws[:, tokens].sum(-1).double(), best.double()], 1).cpu().numpy()


def _logits_along(backend: Backend, prompt: Prefix, text: Prefix) -> torch.Tensor:
    """Return the target's raw logits for each token of the text, [n, V]. Raises ModelError for a server."""
    target = backend.target.open()
    with inference():
        scored = target.score([prompt], torch.tensor([text[:-1]], dtype=torch.int64, device=target.device))
    if isinstance(scored, TopLogits):
        raise ModelError("The check needs a target on this machine. Name its hub id or folder.")
    return scored[0]


def speculated(server: Server) -> AcceptanceCounts:
    """Return the server's acceptance in a short text. Raises ModelError if it reports none."""
    return _counts(server.written(tuple(server.tokens_of(PROBE, special=True)), 2, with_logits=False))


def _counts(written: ServedText) -> AcceptanceCounts:
    if written.counts is None:
        raise ModelError(f"The server reports no speculation. Start it so that it speculates and does: {SPECULATING}")
    return written.counts


def held_against(
    backend: Backend, settings: Settings, number: int, prompt: Prefix, written: ServedText
) -> tuple[list[Round], checks.RoundDifference | None]:
    """Compare the server's text after prompt `number` with strict speculation. Returns our rounds, the first for the
    token that the server's prefill writes, and the first difference. Raises BadInput."""
    counts = _counts(written)
    (alone,) = decoded(backend, replace(settings, max_new_tokens=1), prompt)
    first = written.tokens[:1]
    rounds: list[Round] = []
    if first and not backend.ending(settings).reached(first):
        rounds = decoded(backend, replace(settings, max_new_tokens=settings.max_new_tokens - 1), prompt + first)
    return [alone, *rounds], checks.first_difference(number, alone, rounds, written.tokens, counts)


def decoded(backend: Backend, settings: Settings, prompt: Prefix) -> list[Round]:
    """Return our rounds after a prompt, by a rule without a dial."""
    speculator = backend.speculator(settings, _NEEDED)
    speculator.prefill(prompt)
    return list(walk(speculator, rule_named(settings.rule), None, prompt, backend.ending(settings)))


def watched(
    server: Server,
    backend: Backend | None,
    prompts: Sequence[str | EncodedPrompt],
    *,
    tokens: int = 64,
    gamma: int | None = None,
    chat: bool | None = None,
) -> Iterator[checks.ServerWatch]:
    """Watch `tokens` tokens after each prompt, with the chat template as `chat` states. Yields the results so far after
    each answer.

    They are compared with strict speculation by `backend`, if given, at `gamma` or the server's draft length. Raises
    BadInput for texts that do not fit, and for a server with other tokens or without reports of its acceptance.
    """
    if not prompts:
        raise PromptError("There is no prompt to send. Give at least one.")
    if tokens < 2:
        raise SettingError(f"{tokens} tokens of each text are too few, since the prefill writes the first. Ask for 2.")
    if chat and backend is None:
        raise SettingError("The chat template is the target's. Name it and the drafter, or leave --chat out.")
    asked = [each if isinstance(each, EncodedPrompt) else EncodedPrompt(each) for each in prompts]
    for each in asked:
        check_prompt(each.prompt)
    drafts = speculated(server).gamma
    settings = Settings(rule="strict", gamma=drafts if gamma is None else gamma, max_new_tokens=tokens)
    if backend is None:
        encoded = [tuple(server.tokens_of(in_plain_text(each.history, each.prompt), special=True)) for each in asked]
        watch = checks.ServerWatch(server.model, server.version, drafts, len(asked), ())
    else:
        check_tokens(server, backend.tokenizer.library)
        encoded = [backend.prompt_ids(each.prompt, settings, each.history, chat=chat) for each in asked]
        names = backend.target.name, backend.drafter.name, backend.dtype
        watch = checks.ServerWatch(server.model, server.version, drafts, len(asked), (), *names, settings.gamma)
    _check_length(server, encoded, tokens)
    for number, (text, ids) in enumerate(zip((each.prompt for each in asked), encoded, strict=True)):
        written = server.written(ids, tokens, with_logits=False)
        prompt = checks.WatchedPrompt(number, text, _counts(written))
        if backend is not None:
            check_known(server, max(written.tokens, default=0), backend.vocabulary_size)
            rounds, difference = held_against(backend, settings, number, ids, written)
            drafting = [each for each in rounds[1:] if len(each.speculation)]
            same = len(drafting) if difference is None else max(0, difference.round)
            count = 1 + sum(len(each.token_ids) for each in rounds[1:])
            here = AcceptanceCounts.of_rounds("here", drafting, settings.gamma, count, prefilled=1)
            prompt = replace(prompt, here=here, same_rounds=same, rounds=here.steps, difference=difference)
        watch = replace(watch, prompts=(*watch.prompts, prompt))
        yield watch


def _check_length(server: Server, prompts: Sequence[Prefix], tokens: int) -> None:
    longest = max(map(len, prompts)) + tokens
    if longest > server.context:
        raise PromptError(
            f"The server's context is {server.context} tokens, and {longest} are asked for at most. Shorten the "
            "longest prompt, or ask for fewer."
        )


def checked_server(
    server: Server, backend: Backend, prompts: Sequence[str | Prefix], *, tokens: int = 64
) -> Iterator[tuple[float, checks.ServerCheck | None]]:
    """Compare `tokens` tokens that the server writes after each prompt with the target of `backend`. Yields the
    finished share, and the result at the end.

    Raises BadInput for too few prompts, texts that do not fit or are not continued, and a server without raw logits or
    with other tokens.
    """
    if len(prompts) < LEAST:
        raise PromptError(f"{len(prompts)} prompts are too few to check a server. Give at least {LEAST}.")
    if tokens < 1:
        raise SettingError(f"{tokens} tokens of each text are none. Ask for at least 1.")
    settings = Settings(rule="strict", max_new_tokens=tokens)
    encoded = [backend.prompt_ids(prompt, settings) for prompt in prompts]
    _check_length(server, encoded, tokens)
    server = check_target(server, backend.tokenizer.library, backend.vocabulary_size)
    sums, furthest = list[tuple[float, int, int]](), 0.0  # of each text: distances, other best tokens, tokens
    for done, prompt in enumerate(encoded, start=1):
        written = server.written(prompt, tokens)
        if written.tokens:
            ours, distances, differ = _logits_along(backend, prompt, written.tokens).double().cpu().numpy(), 0.0, 0
            for row, listed in zip(ours, written.rows, strict=True):
                mine, its = row[np.fromiter(listed, np.int64)], np.fromiter(listed.values(), np.float64)
                distances += float(np.sqrt(((mine - its) ** 2).mean()) / mine.std())
                differ += int(row.argmax()) != max(listed, key=listed.__getitem__)
                furthest = max(furthest, float(np.abs(mine - its).max()))
            sums.append((distances, differ, len(ours)))
        yield done / len(encoded), None
    if len(sums) < LEAST:
        raise PromptError(
            f"The server wrote something after {len(sums)} prompts, and {LEAST} are needed. Give prompts that it "
            "continues."
        )
    distance, differing, count = np.array(sums, np.float64).T
    about = server.model, server.version, backend.target.name, backend.dtype, len(sums), int(count.sum())
    yield 1.0, checks.ServerCheck(*about, ratio(distance, count), ratio(differing, count), furthest)
