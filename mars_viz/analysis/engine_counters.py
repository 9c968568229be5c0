"""Reader of the Prometheus text that vLLM, SGLang, llama.cpp's server and TensorRT-LLM serve under /metrics.

Their counters are sums over all requests since the server started. For several scrapes in one text the difference
between the last and the first is counted.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np

from mars_viz.analysis.counts import AcceptanceCounts, Counts, RequestTotals
from mars_viz.analysis.vllm_metrics import MAX_STEPS
from mars_viz.errors import RunFileError

_ENGINES = {"vllm": "vLLM", "sglang": "SGLang", "llamacpp": "llama.cpp", "trtllm": "TensorRT-LLM"}
_COUNTERS = {
    "spec_decode_num_drafts": "steps",
    "spec_decode_num_draft_tokens": "drafted",
    "spec_decode_num_accepted_tokens": "accepted",
    "spec_decode_num_accepted_tokens_per_pos": "accepted at",
    "spec_verify_calls": "steps",  # SGLang
    "generation_tokens": "completion",
    "spec_decode_drafted_tokens": "drafted at",  # TensorRT-LLM
    "spec_decode_accepted_tokens": "accepted at",
}
_SAMPLE = re.compile(
    r"^(?:ray_)?(vllm|sglang|llamacpp|trtllm)[:_](\w+)"
    r'(?:\{((?:[^"{}\n]|"(?:[^"\\\n]|\\.)*+")*+)\})?[ \t]+(\S+)',
    re.MULTILINE,
)
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_LARGEST = 2**53

Series = tuple[str, str, tuple[tuple[str, str], ...]]
"""Engine, name without `_total`, and labels."""


def counters_in(text: str) -> tuple[list[tuple[str, Counts]], int]:
    """Return the sums of each server's model with its engine, and the number of scrapes; 0 if the text has no counters
    of speculative decoding. Raises RunFileError for counters that cannot be used."""
    scrapes = _scrapes(text)
    sums = defaultdict[tuple[str, str], defaultdict[tuple[str, int], int]](lambda: defaultdict(int))
    for (engine, name, labels), value in _counted(scrapes).items():
        by_label = dict(labels)
        position = by_label.get("position", by_label.get("token_position", "0"))
        what = (_COUNTERS[name], int(position) if position.isdecimal() and len(position) < 5 else 0)
        sums[engine, by_label.get("model_name", by_label.get("model", "the server"))][what] += value
    read = ((engine, _counts(engine, model, each)) for (engine, model), each in sums.items())
    counts = [(engine, each) for engine, each in read if each is not None]
    if counts and not any(each.steps or each.drafted_total for _, each in counts):
        when = "since the server started" if len(scrapes) == 1 else "between the scrapes"
        raise RunFileError(f"Nothing was drafted {when}. Send requests first, and see that the server drafts.")
    return counts, len(scrapes) if counts else 0


def _scrapes(text: str) -> list[dict[Series, float]]:
    """Return the samples of each scrape: one that comes again begins the next."""
    scrapes = list[dict[Series, float]]()
    for prefix, name, labels, value in _SAMPLE.findall(text):
        base = name.removesuffix("_created").removesuffix("_total")
        if base not in _COUNTERS:
            continue
        series = (
            _ENGINES[prefix],
            base + "_created" * name.endswith("_created"),
            tuple(sorted(_LABEL.findall(labels))),
        )
        try:
            number = float(value)
        except ValueError as error:
            raise RunFileError(f"The value {value[:40]!r} of {name} is no number. Save the metrics again.") from error
        if not scrapes or series in scrapes[-1]:
            scrapes.append({})
        scrapes[-1][series] = number
    return scrapes


def _counted(scrapes: Sequence[Mapping[Series, float]]) -> dict[Series, int]:
    """Return the count of each series: its value, or its increase after the first scrape."""
    counts = dict[Series, int]()
    for series in dict.fromkeys(series for scrape in scrapes for series in scrape):
        values = [scrape[series] for scrape in scrapes if series in scrape]
        created = series[1].endswith("_created")
        if any(
            later != before if created else later < before for before, later in zip(values, values[1:], strict=False)
        ):
            raise RunFileError(
                "The scrapes are of several servers, or of one that was started again in between. Give the scrapes of "
                "one server since its last start."
            )
        if created:
            continue
        count = values[-1] - (values[0] if len(scrapes) > 1 and series in scrapes[0] else 0)
        if not (math.isfinite(count) and count == int(count) and 0 <= count < _LARGEST):
            raise RunFileError(f"The counter {series[1]} has {count:g}, which is no count. Save the metrics again.")
        counts[series] = int(count)
    return counts


def _counts(engine: str, name: str, sums: Mapping[tuple[str, int], int]) -> Counts | None:
    """Return the counts in one model's counters; None if they contain nothing about speculation."""

    def by_position(key: str) -> list[int]:
        values = [sums[each] for each in sorted(sums) if each[0] == key]
        return values if all((key, place) in sums for place in range(len(values))) else []

    positions, drafted_at = by_position("accepted at"), by_position("drafted at")
    drafted = sums.get(("drafted", 0), sum(drafted_at) if drafted_at else None)
    accepted = sums.get(("accepted", 0), sum(positions) if positions and drafted_at else None)
    steps = sums.get(("steps", 0), drafted_at[0] if drafted_at else None)
    if drafted is None and accepted is None and steps is None:
        return None
    if steps and drafted is not None and sum(positions) == accepted and positions:
        uniform = drafted == steps * len(positions)
        falling = [steps, *positions, 0]
        histogram = [more - fewer for more, fewer in zip(falling, falling[1:], strict=False)]
        if min(histogram) >= 0 and steps <= MAX_STEPS and (uniform or engine == "vLLM"):  # vLLM has all its positions
            depths = np.repeat(np.arange(len(histogram)), histogram)
            each = np.full(steps, len(positions)) if uniform else None
            return AcceptanceCounts(
                name, depths, each, drafted, len(positions), None, ordered=False, prefilled=1, summed=True
            )
    completion = sums.get(("completion", 0)) if engine == "SGLang" else None
    return RequestTotals(name, accepted, drafted, steps, completion_tokens=completion, summed=True)
