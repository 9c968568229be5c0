"""Results of checks: agreement of a drafter with its target, a server's acceptance of its drafts compared with
strict speculation, and a server's weights.

An engine's prefill writes the first token separately, so its rounds correspond to ours after the prompt and that token.
Steps without a draft are not rounds there, and its last round may accept past the length limit, as ours do before the
text is cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np

from mars_viz.analysis.engines import AcceptanceCounts
from mars_viz.analysis.intervals import Interval, divided, interval, ratio
from mars_viz.documents import Block, Sentence, Table
from mars_viz.records import Round
from mars_viz.words import counted, number

NEARLY_NONE = 0.1  # agreement at the first depth that chance explains
LOW = 0.5  # agreement at the first depth below which a drafter may read wrong states of the target
FALL = 0.6
"""Agreement with the drafter's own states relative to that with true features, below which the states are wrong."""
NARROW = 0.9  # share of the target's probability that a vocabulary should cover
NOTHING = "Nothing stands out."  # finding for a drafter without problems
FEWEST = 40  # drafts on each side of a context length at which agreement may fall
SURE = 30.0
"""Likelihood-ratio statistic of a fall. By chance alone the largest of 500 places exceeds it in fewer than 2 of 100,000
checks of independent drafts; drafts along one text depend on each other, which the statistic does not know."""


@dataclass(frozen=True, slots=True)
class DepthAgreement:
    """Agreement at one depth, over drafts that agreed with the target up to it."""

    depth: int  # 1 for the token right after the text
    true_features: Interval  # share that agrees if the drafter always reads the target's features
    own_states: Interval  # share that agrees if it reads its own states, as when it drafts


@dataclass(frozen=True, slots=True)
class Fall:
    """A context length from which agreement at depth 1 is lower."""

    context: int  # tokens
    before: float  # share that agrees with fewer tokens
    after: float  # share that agrees from there on


@dataclass(frozen=True, slots=True)
class LayerTrial:
    """The drafter that reads other layers of its target."""

    layers: tuple[int, ...]  # their inputs, counted from 0
    accepted: float  # mean number of tokens of a draft before the first disagreement
    gain: Interval  # difference in `accepted` from its own layers, paired by text


@dataclass(frozen=True, slots=True)
class DrafterCheck:
    """The results for one drafter."""

    drafter: str
    target: str
    texts: int  # number of texts along which it drafted
    drafts: int  # number of drafts
    contexts: tuple[int, int]  # fewest and most tokens before a draft
    depths: tuple[DepthAgreement, ...]  # by rising depth, as far as any draft agreed
    coverage: Interval  # mean share of the target's probability on tokens that it can draft
    best_held: Interval  # share of positions whose best token it can draft
    fall: Fall | None = None  # None if agreement does not fall with the length of the context
    feeds_back: bool = True  # True if it reads states of its own after the first token
    guess: str = ""  # reason why the layers that it reads may be wrong; empty if its configuration names them
    better: LayerTrial | None = None  # the best of other layers, if any was tried and keeps more tokens

    @property
    def findings(self) -> tuple[str, ...]:
        first, second = self.depths[0].true_features.estimate, self.depths[1] if len(self.depths) > 1 else None
        findings = []
        if self.better is not None:
            layers, gain = ", ".join(map(str, self.better.layers)), self.better.gain.estimate
            findings.append(
                f"Other layers fit better: with the inputs of the target's layers {layers} (from 0), "
                f"{self.better.accepted:.2f} tokens of a draft agree, {gain:.2f} more. Correct them in its config.json."
            )
        elif first < NEARLY_NONE:
            findings.append(
                f"Even at depth 1 only {first:.0%} agree, hardly more than by chance: its tensors are read under wrong "
                "names, a quantised checkpoint is read as an unquantised one, its d2t table is read wrongly, or it was "
                "trained for another target."
            )
        elif self.fall is not None:
            findings.append(
                f"From a context of about {number(self.fall.context)} tokens on {self.fall.after:.0%} agree at depth "
                f"1, and {self.fall.before:.0%} before: a sliding window is read where attention was trained in full, "
                "or the reverse. Check sliding_window and layer_types in its config.json."
            )
        elif first < LOW:
            findings.append(
                f"At depth 1 {first:.0%} agree: it reads the states of other layers, or without a norm that it was "
                "trained with (or with one more), or it was trained on other texts."
            )
        elif self.feeds_back and second and second.own_states.estimate < FALL * second.true_features.estimate:
            findings.append(
                f"Agreement falls to {second.own_states.estimate:.0%} at depth 2, where true features give "
                f"{second.true_features.estimate:.0%}: the wrong state is fed back (normed in place of un-normed, or "
                "the other way round), or it was trained without its own states."
            )
        if self.coverage.estimate < NARROW:
            findings.append(
                f"Its vocabulary holds {self.coverage.estimate:.0%} of the target's probability, which no acceptance "
                "can exceed: take a larger one, or one of the texts that are served."
            )
        if self.guess and self.better is None:
            findings.append(f"Which layers it reads is a guess: {self.guess}.")
        return tuple(findings) or (NOTHING,)

    @property
    def blocks(self) -> list[Block]:
        depths = [(str(each.depth), each.true_features.percent, each.own_states.percent) for each in self.depths]
        sound = self.findings == (NOTHING,)
        least, most = map(number, self.contexts)
        remarks = [
            f"{counted(self.drafts, 'draft')} of {self.drafter} along {counted(self.texts, 'text')} that {self.target} "
            f"wrote by itself, after {least} to {most} tokens (a larger --tokens looks further). True features show "
            "what the drafter has learnt, its own states what becomes of that while it drafts.",
            f"Its vocabulary holds {self.coverage.percent} of the target's probability there, and the target's best "
            f"token at {self.best_held.percent} of the positions. Measured; 95 % intervals, drawn by text.",
        ]
        if sound:
            remarks.append("If a server accepts less of its drafts, mars-viz watch finds the first difference.")
        return [
            *(Sentence(finding, small=sound) for finding in self.findings),
            Table(("depth", "true features", "its own states"), depths, "drafter-depths", "Agreement by depth"),
            *(Sentence(remark, small=True) for remark in remarks),
        ]


def fall_of(contexts: np.ndarray, agreed: np.ndarray) -> Fall | None:
    """Return the context length from which fewer drafts agree, the likeliest of all; None if there is none.

    `contexts`, int64 [drafts], are the tokens before each draft, and `agreed`, bool [drafts], whether its first token
    agrees. The statistic is the likelihood ratio of two rates to one; the rate must fall by at least 40 %.
    """
    order = np.argsort(contexts, kind="stable")
    lengths, hits = contexts[order], np.concatenate([[0], np.cumsum(agreed[order])]).astype(np.float64)
    count = len(lengths)
    places = np.flatnonzero(np.diff(lengths)) + 1  # number of drafts with a shorter context
    places = places[(places >= FEWEST) & (places <= count - FEWEST)]
    if not len(places):
        return None

    def likelihood(hit: np.ndarray, of: np.ndarray) -> np.ndarray:
        rate = np.clip(hit / of, 1e-9, 1 - 1e-9)
        value: np.ndarray = hit * np.log(rate) + (of - hit) * np.log1p(-rate)
        return value

    before, after, total = hits[places], hits[-1] - hits[places], np.array(float(count))
    gain = likelihood(before, places) + likelihood(after, count - places) - likelihood(hits[-1], total)
    best = int(gain.argmax())
    rates = before[best] / places[best], after[best] / (count - places[best])
    if 2 * gain[best] < SURE or rates[1] > FALL * rates[0]:
        return None
    return Fall(int(lengths[places[best]]), float(rates[0]), float(rates[1]))


def counts(agreed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return agreements per depth with true features and with own states, int64 [depth, 2] each. Columns: drafts that
    agree at the depth, and drafts that agreed up to it."""
    depth = agreed.shape[1]
    first = agreed[:, 0]
    windows = np.lib.stride_tricks.sliding_window_view(first, depth) if len(first) >= depth else agreed[:0]
    chained = []
    for each in (windows, agreed):
        until = np.concatenate([np.ones((len(each), 1), bool), np.logical_and.accumulate(each, axis=1)], 1)
        chained.append(np.stack([until[:, 1:].sum(0), until[:, :-1].sum(0)], 1))
    return chained[0], chained[1]


ROUNDING = 1e-4  # logits this close are a tie: float32 logits of one token may differ this much between two programs


class Differs(Enum):
    """Kind of a difference."""

    TEXT = "text"  # the engine wrote another token
    RELAXED = "relaxed"
    """The engine wrote another token that was drafted there: it accepted a token that strict speculation rejects."""
    DRAFT = "draft"
    """The texts agree, and a different number of equally many drafted tokens was accepted: the draft differed, or one
    side rejected a token that the target writes."""
    LENGTH = "length"
    """The texts agree, and one side accepted all of a draft that was shorter than the other side's accepted part."""
    END = "end"  # one side made more rounds, or wrote more


@dataclass(frozen=True, slots=True)
class RoundDifference:
    """The first round of a text in which both sides differ; later rounds are not compared."""

    prompt: int  # index of the prompt
    round: int
    """Index of our round, without rounds that have no draft; -1 for the token that the engine's prefill writes."""
    position: int  # index in the text after the prompt at which the written or drafted tokens differ
    what: Differs
    accepted: tuple[int, int]  # accepted tokens in that round, the engine's and ours; for an END the numbers of rounds
    tokens: tuple[int, ...] = ()
    """Our token there, and the engine's; if unknown, our drafter's second best, if it has one."""
    gap: float | None = None
    """Distance of our logits of the two: the target's for a text, the drafter's for a draft (then a lower limit,
    because the second best is the nearest). None if one of them is not among the best."""
    depth: int = 0  # index in the block

    @property
    def tie(self) -> bool:
        return self.gap is not None and self.gap <= ROUNDING


def first_difference(
    prompt: int, alone: Round, ours: Sequence[Round], tokens: Sequence[int], counts: AcceptanceCounts
) -> RoundDifference | None:
    """Return the first difference between both sides, if any.

    `alone` is our round of the token that the engine's prefill writes, `ours` are the rounds after it; `tokens` is the
    engine's text. If its rounds are unknown, only texts are compared.
    """
    accepted, rounds = counts.in_rounds, sum(len(each.speculation) > 0 for each in ours)

    def other_text(round_: Round, depth: int, other: int, kept: tuple[int, int] = (0, 0)) -> RoundDifference:
        about, token = round_.speculation, round_.token_ids[depth]
        gap = distance(about.top_ids[depth], about.top_logits[depth], token, other)
        relaxed = depth < min(kept[0], len(about)) and int(about.tokens[depth]) == other
        what = Differs.RELAXED if relaxed else Differs.TEXT
        return RoundDifference(prompt, number, position + depth, what, kept, (token, other), gap, depth)

    position, number = 0, -1
    if not tokens:
        return RoundDifference(prompt, number, position, Differs.END, (0, rounds))
    if alone.token_ids[0] != tokens[0]:
        return other_text(alone, 0, tokens[0])
    position, number, steps = 1, 0, iter(accepted or ())
    for round_ in ours:
        kept = len(round_.decision.kept)
        its = kept if accepted is None or not len(round_.speculation) else next(steps, None)
        if its is None:
            break
        for depth, (token, other) in enumerate(zip(round_.token_ids, tokens[position:], strict=False)):
            if token != other:
                return other_text(round_, depth, other, (its, kept))
        if its != kept:
            drafted = len(round_.speculation) if counts.drafted is None else int(counts.drafted[number])
            what, about = _other_draft(round_, its, drafted)
            return RoundDifference(prompt, number, position + min(its, kept), what, (its, kept), *about, min(its, kept))
        position, number = position + len(round_.token_ids), number + (len(round_.speculation) > 0)
    its = rounds if accepted is None else len(accepted)
    if its != rounds or position != len(tokens):
        return RoundDifference(prompt, min(rounds, its), position, Differs.END, (its, rounds))
    return None


def distance(ids: np.ndarray, logits: np.ndarray, token: int, other: int) -> float | None:
    """Return the distance of two tokens' logits among the best [K]; None if one is missing."""
    by_token = dict(zip(ids.tolist(), logits.tolist(), strict=True))
    return abs(by_token[token] - by_token[other]) if token in by_token and other in by_token else None


def _other_draft(round_: Round, its: int, drafted: int) -> tuple[Differs, tuple[tuple[int, ...], float | None]]:
    """Return the kind of a difference between drafts of one text, with both tokens and the distance of our drafter's
    logits of them. `its` tokens of `drafted` were accepted; if that is more than here, it drafted the written token."""
    about, kept = round_.speculation, len(round_.decision.kept)
    depth = min(its, kept)
    if depth in (len(about), drafted):
        return Differs.LENGTH, ((), None)
    token, best = int(about.tokens[depth]), about.draft_ids[depth].tolist()
    others = [round_.decision.emitted] if its > kept else best[1:2]
    gap = distance(about.draft_ids[depth], about.draft_logits[depth], token, others[0]) if others else None
    return Differs.DRAFT, ((token, *others), gap)


NEAR = 0.25
"""Two logits this close may swap order if the same weights run in another precision. In a bfloat16 copy of the built-in
pair all swaps were within 0.09; between 16 and 32, the range of larger models, one step of bfloat16 is 0.125."""


@dataclass(frozen=True, slots=True)
class WatchedPrompt:
    """Results of both sides for one prompt."""

    number: int  # index of the prompt
    prompt: str
    served: AcceptanceCounts  # the server's counts
    here: AcceptanceCounts | None = None
    """Counts of strict speculation after the prompt and the token that the server's prefill wrote, without rounds that
    have no draft, as on the server; None if nothing was decoded here."""
    same_rounds: int = 0  # number of our rounds with a draft before the first difference
    rounds: int = 0  # number of all our rounds with a draft
    difference: RoundDifference | None = None  # the first difference, if both sides were compared and differ

    @property
    def tokens(self) -> int:
        return self.served.completion_tokens or 0


def tau_of(counts: AcceptanceCounts) -> tuple[int, int]:
    """Return the tokens written by the target's passes (without the first one) and the number of passes. Passes without
    a draft are in no engine's counts; they are the missing tokens of the text."""
    written = max(0, (counts.completion_tokens or 0) - counts.prefilled)
    return written, counts.steps + max(0, written - counts.accepted_total - counts.steps)


@dataclass(frozen=True, slots=True)
class ServedAcceptance:
    """Acceptance over several prompts, each number with its interval over prompts."""

    tau: Interval  # tokens per pass of the target, without the first token, which the prefill writes
    rate: Interval  # share of accepted drafted tokens
    positions: tuple[Interval, ...]  # [γ]; position i: share of drafts whose first i tokens were accepted

    @classmethod
    def of(cls, requests: Sequence[AcceptanceCounts]) -> ServedAcceptance:
        tokens, passes = np.array([tau_of(each) for each in requests]).T
        names = ("accepted_total", "drafted_total", "drafts")
        accepted, drafted, drafts = (np.array([getattr(each, name) for each in requests]) for name in names)
        reached = [
            np.array([np.count_nonzero(each.accepted >= position) for each in requests])
            for position in range(1, max(each.gamma for each in requests) + 1)
        ]
        return cls(ratio(tokens, passes), ratio(accepted, drafted), tuple(ratio(each, drafts) for each in reached))


class Accepts(Enum):
    """A server's acceptance compared with strict speculation here, in words that "The server" begins."""

    SAME = "accepts as many tokens as strict speculation does"  # in every round, except after a tie within rounding
    FEWER = "accepts fewer tokens than strict speculation does"  # the interval of the difference in τ is below 0
    MORE = "accepts more tokens than strict speculation does"  # the interval of the difference in τ is above 0
    OTHER = "does not accept in every round what strict speculation does"  # the interval includes 0, or there is none
    OPEN = "is not compared"  # nothing was decoded here


@dataclass(frozen=True, slots=True)
class ServerWatch:
    """Results so far."""

    server: str  # the server's name of its model
    version: str  # version of vLLM
    gamma: int  # maximum number of tokens that it drafts in a round
    asked: int  # number of prompts to send
    prompts: tuple[WatchedPrompt, ...]  # answered prompts, in order; at least one
    target: str = ""  # the local target; empty if nothing was decoded here
    drafter: str = ""  # the local drafter; empty if nothing was decoded here
    dtype: str = ""  # dtype of the local target's weights
    gamma_here: int = 0  # tokens drafted in a round here

    @property
    def served(self) -> ServedAcceptance:
        return ServedAcceptance.of([each.served for each in self.prompts])

    @property
    def here(self) -> ServedAcceptance | None:
        """Acceptance of strict speculation here; None if nothing was decoded here."""
        counts = [each.here for each in self.prompts if each.here is not None]
        return ServedAcceptance.of(counts) if counts else None

    @property
    def differences(self) -> tuple[RoundDifference, ...]:
        """The first difference of each prompt, without ties."""
        return tuple(each.difference for each in self.prompts if each.difference and not each.difference.tie)

    @property
    def ties(self) -> int:
        return sum(each.difference is not None and each.difference.tie for each in self.prompts)

    @property
    def apart(self) -> Interval | None:
        """The server's τ minus ours, paired by prompt; NaN if one is undefined, None if nothing was decoded here."""
        pairs = [(*tau_of(each.served), *tau_of(each.here)) for each in self.prompts if each.here is not None]
        columns = np.array(pairs, np.float64).T  # tokens and passes of the server, then ours
        return interval(lambda a, b, c, d: divided(a, b) - divided(c, d), *columns) if pairs else None

    @property
    def accepts(self) -> Accepts:
        apart = self.apart
        if apart is None:
            return Accepts.OPEN
        if self._tells_rounds and not self.differences:
            return Accepts.SAME
        if apart.high < 0 or apart.low > 0:
            return Accepts.FEWER if apart.high < 0 else Accepts.MORE
        return Accepts.OTHER if self.differences or apart.estimate else Accepts.SAME

    @property
    def sentence(self) -> str:
        ours = self.here
        if ours is None:
            return (
                "Whether that is what its drafter can give is not known: nothing was decoded here. Name its target and "
                "drafter, --target MODEL --drafter MODEL, and every round is held against strict speculation."
            )
        facts = [f"τ {number(self.served.tau.estimate)} against {number(ours.tau.estimate)}"]
        if self._tells_rounds:
            rounds, same = sum(each.rounds for each in self.prompts), sum(each.same_rounds for each in self.prompts)
            facts.append(f"{same:,} of {rounds:,} rounds before any difference")
        if self.ties:
            facts.append(
                f"{counted(self.ties, 'prompt')} part at a tie within rounding, and are not compared behind it"
            )
        if self.differences:
            facts.append(f"first difference at {place(self.differences[0])}: {_what(self.differences[0])}")
        return f"The server {self.accepts.value} here: {'; '.join(facts)}."

    @property
    def blocks(self) -> list[Block]:
        sides = [side for side in (self.served, self.here) if side is not None]
        rows = [("τ", *(side.tau.words for side in sides)), ("acceptance rate", *(side.rate.percent for side in sides))]
        for index in range(len(sides[0].positions)):
            each = (side.positions[index].percent if index < len(side.positions) else "" for side in sides)
            rows.append((f"position {index + 1}", *each))
        comparison = f", compared with {self.target} and {self.drafter} in {self.dtype} here" if self.target else ""
        tokens = sum(each.tokens for each in self.prompts)
        return [
            Sentence(
                f"{self.server} on vLLM {self.version}, γ = {self.gamma}{comparison}: "
                f"{counted(len(self.prompts), 'prompt')}, {counted(tokens, 'token')}."
            ),
            Table(("", "server", "here")[: 1 + len(sides)], rows, "watch", "Acceptance of both sides"),
            Sentence(self.sentence),
            *map(Sentence, self.findings),
        ]

    @property
    def findings(self) -> tuple[str, ...]:
        findings = []
        if not self._tells_rounds:
            findings.append("It reports no rounds; --per-request-spec-decode-metrics detailed makes it report them.")
        if self.gamma_here not in (0, self.gamma):
            here = f"and {self.gamma_here} are drafted here (--gamma)."
            findings.append(f"It drafts {self.gamma} tokens in a round, {here}")
        alike: dict[Differs, list[RoundDifference]] = {}
        for each in self.differences:
            alike.setdefault(Differs.TEXT if each.what is Differs.RELAXED else each.what, []).append(each)
        findings += [f"In {counted(len(those), 'prompt')} {_cause(those, self.dtype)}" for those in alike.values()]
        return tuple(findings)

    @property
    def _tells_rounds(self) -> bool:
        return all(each.served.in_rounds is not None for each in self.prompts)


def place(difference: RoundDifference) -> str:
    """Return the place in words, counted from 1."""
    if difference.round < 0:
        return f"prompt {difference.prompt + 1}, the first token, which the prefill writes"
    at = "" if difference.what is Differs.END else f", position {difference.depth + 1}"
    return f"prompt {difference.prompt + 1}, round {difference.round + 1}{at}"


def described(difference: RoundDifference) -> str:
    """Return the difference in words, with the distance of the logits."""
    if difference.gap is None:
        return _what(difference)
    whose = "drafter" if difference.what is Differs.DRAFT else "target"
    tie = ", a tie within rounding" if difference.tie else ""
    return f"{_what(difference)} (the {whose}'s logits of both tokens are {difference.gap:.2g} apart{tie})"


def _what(difference: RoundDifference) -> str:
    its, ours = difference.accepted
    match difference.what:
        case Differs.TEXT:
            return "it wrote another token"
        case Differs.RELAXED:
            return "it kept a drafted token that strict speculation refuses"
        case Differs.LENGTH:
            return f"its draft was {'longer' if its > ours else 'shorter'} than the one here"
        case Differs.END:
            return f"it made {its:,} rounds, and {ours:,} are made here"
    other = "it drafted another token" + (", or refused one that the target writes" if its < ours else "")
    return f"it accepted {its} where {ours} are accepted here: {other}"


def _cause(alike: Sequence[RoundDifference], dtype: str) -> str:
    """Return the likely cause of differences of one kind. Other texts are one kind, whether or not the token was
    drafted."""
    kinds, gaps = {each.what for each in alike}, [each.gap if each.gap is not None else np.inf for each in alike]
    if max(gaps) <= NEAR:
        strict = ", or by a relaxed rule near its strict end" if kinds == {Differs.RELAXED} else ""
        return (
            f"the logits of both tokens are at most {max(gaps):.2g} apart, as after rounding or in another precision "
            f"(here {dtype}; --dtype names others){strict}."
        )
    causes = {
        Differs.RELAXED: "it keeps drafted tokens that are clearly not the target's best, as a relaxed or synthetic "
        "acceptance does: see rejection_sample_method in its --speculative-config.",
        Differs.TEXT: "it writes what the target here would not: its weights are others. mars-viz server ADDRESS "
        "--target MODEL says how far they are apart.",
        Differs.DRAFT: "its drafter is not the one named here, has other weights, or is fed otherwise; or it refuses "
        "what the target writes.",
        Differs.LENGTH: "drafts have other lengths than here: see num_speculative_tokens there and --gamma here.",
        Differs.END: "one side ended the text earlier: see the end-of-text tokens of both, and --max-model-len.",
    }
    return causes[kinds.pop() if len(kinds) == 1 else Differs.TEXT]


SAME_WEIGHTS = 0.002
"""Relative distance of logits within which two programs compute the same. A bfloat16 copy of the built-in target is
.009 away from itself, the same in vLLM less than .00001."""
ROUNDED_WEIGHTS = 0.3
"""Relative distance of logits within which weights count as the model's own, rounded: an 8-bit copy of the built-in
target is .01 away."""


class Verdict(Enum):
    """Conclusion about a server's weights."""

    SAME = "the same weights, at the same precision"  # within rounding
    LOWER = "the same weights at another precision, or weights that hardly differ from them"
    """Logits cannot distinguish these."""
    OTHER = "another model, or weights that were changed"  # further away than any rounding of weights
    OPEN = "too few texts to say"  # the interval includes two of them


@dataclass(frozen=True, slots=True)
class ServerCheck:
    """Results at the tokens that the server wrote."""

    server: str  # the server's name of its model
    version: str  # version of vLLM
    reference: str  # the local model
    dtype: str  # the local model's dtype
    texts: int  # number of texts that the server wrote
    tokens: int  # number of tokens of all texts
    distance: Interval
    """Mean over the tokens of the root mean square difference between both models' logits, on the tokens that the
    server lists, relative to the standard deviation of the reference's logits."""
    best_differs: Interval  # share of tokens at which the reference would have written another token
    furthest: float  # the largest difference between two logits

    @property
    def verdict(self) -> Verdict:
        """The verdict whose range contains the complete interval of the distance."""
        if self.distance.high <= SAME_WEIGHTS:
            return Verdict.SAME
        if self.distance.low > ROUNDED_WEIGHTS:
            return Verdict.OTHER
        if self.distance.low > SAME_WEIGHTS and self.distance.high <= ROUNDED_WEIGHTS:
            return Verdict.LOWER
        return Verdict.OPEN

    @property
    def sentence(self) -> str:
        if self.verdict is Verdict.OPEN:
            return f"Whether it runs {self.reference} is {Verdict.OPEN.value}; give more prompts, or longer texts."
        if self.verdict is Verdict.OTHER:
            return f"It does not run {self.reference} as it is here: {Verdict.OTHER.value}."
        return f"It runs {self.reference}: {self.verdict.value}."

    @property
    def blocks(self) -> list[Block]:
        away = self.distance
        return [
            Sentence(
                f"{self.server} on vLLM {self.version}, compared with {self.reference} in {self.dtype} at "
                f"{self.tokens} tokens that it wrote in {self.texts} texts."
            ),
            Sentence(
                f"Its logits differ by {away.estimate:.2g} ({away.low:.2g} to {away.high:.2g}) of their spread, a "
                f"single one by at most {self.furthest:.2g}. Another token is best at {self.best_differs.percent} of "
                "the positions."
            ),
            Sentence(self.sentence),
        ]
