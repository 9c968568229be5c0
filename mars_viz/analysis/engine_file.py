"""Reader of the files in which engines report their speculative decoding, in any of the known formats."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from mars_viz.analysis.draft_log import LoggedText, is_log, joined, parse_drafts, parse_log
from mars_viz.analysis.engine_counts import EngineRequest, counters_in, counts_in
from mars_viz.analysis.engine_text import values_in
from mars_viz.analysis.engines import resampled
from mars_viz.analysis.served_rounds import ServedRounds, rounds_in
from mars_viz.errors import RunFileError, SettingError
from mars_viz.words import counted

_TELLS = {
    "SGLang": "SGLang reports how often a round accepted how many tokens, not in which order, and no raw logits.",
    "llama.cpp": "llama.cpp's server reports only sums; for an accepted drafted token it writes the probability 1 and "
    "lists no other (its issue 27972), so no margin can be made of its probabilities.",
    "mlx-vlm": "mlx-vlm reports sums alone.",
    "TensorRT-LLM": "TensorRT-LLM reports only sums.",
    "LM Studio": "LM Studio reports sums alone.",
}
"""For engines without rounds, the contents of their reports."""


@dataclass(frozen=True, slots=True)
class EngineFile:
    """Contents of an engine's file."""

    requests: tuple[EngineRequest, ...] = ()  # the counts of each request, or the counters of each server's model
    without: int = 0  # requests in the file that have no counts; they are left out
    scrapes: int = 0  # scrapes of a server's counters; 0 for a file of requests
    served: tuple[ServedRounds, ...] = ()  # rounds of each request, if reported
    unread: str = ""  # reason why there are no rounds; empty if there are
    texts: tuple[LoggedText, ...] = ()  # whole runs, if drafts are logged

    @property
    def summary(self) -> str:
        """A sentence about the counted requests."""
        engines = ", ".join(dict.fromkeys(each.engine for each in self.requests))
        if not self.scrapes:
            without = f"; {counted(self.without, 'request')} without counts left out" if self.without else ""
            over = resampled([each.counts for each in self.requests])
            return f"{engines}: {counted(len(self.requests), 'request')}{without}. 95 % intervals over {over}."
        when = "since the server started"
        if self.scrapes > 1:
            when = f"between the first and the last of {self.scrapes} scrapes"
        words = (
            f"{engines}: counters, which are sums over all requests {when}. They give no intervals and no means over "
            "requests."
        )
        counts = [each.counts for each in self.requests if each.engine == "SGLang"]
        tokens, steps = sum(each.completion_tokens or 0 for each in counts), sum(each.steps or 0 for each in counts)
        if not tokens or not steps:
            return words
        return (  # SGLang counts neither drafted nor accepted tokens
            f"{words} SGLang counts {counted(tokens, 'token')} in {counted(steps, 'verification')}, "
            f"{tokens / steps:.3f} each, the first token of each request included."
        )


def read_file(text: str, drafts: str | None = None, words: Callable[[int], str] | None = None) -> EngineFile:
    """Read a file of responses or counters, or a log of whole rounds. `drafts` is the log of the drafts of vLLM's
    responses, and `words` returns a token's text. Raises BadInput."""
    if is_log(text):
        if drafts is not None:
            raise SettingError("A log of whole rounds holds its drafts. Leave --drafts out.")
        return EngineFile(texts=parse_log(text))
    sums, scrapes = counters_in(text)
    if scrapes:
        if drafts is not None:
            raise SettingError("Drafts are joined with vLLM's responses, and these are counters. Leave --drafts out.")
        requests = tuple(EngineRequest(engine, counts) for engine, counts in sums)
        return EngineFile(requests, scrapes=scrapes, unread="Counters of a server are sums over all requests.")
    counted_requests, without = counts_in(values_in(text), text)
    requests = tuple(request for request, _ in counted_requests)
    engine = next((each.engine for each in requests if each.engine in _TELLS), "")
    if engine:
        if drafts is not None:
            raise SettingError(
                f"Drafts are joined with vLLM's responses, and these are {engine}'s. Leave --drafts out."
            )
        return EngineFile(requests, without, unread=_TELLS[engine])
    try:
        served = rounds_in(counted_requests, words)
    except RunFileError as error:
        if drafts is not None:
            raise
        return EngineFile(requests, without, unread=str(error))
    if drafts is None:
        return EngineFile(requests, without, served=served)
    logged = parse_drafts(drafts)
    return EngineFile(requests, without, served=served, texts=tuple(joined(each, logged) for each in served))
