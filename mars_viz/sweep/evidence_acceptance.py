"""Parts of the evidence about tokens: relaxed tokens, acceptance by engines' definitions, and engines' settings."""

from __future__ import annotations

from typing import Any

from mars_viz.escapes import commonmark
from mars_viz.sweep.evidence_tables import figure_cell, plain_number, table
from mars_viz.words import number, ranged


def relaxed_tokens(found: dict[str, Any]) -> str:
    """Return tables of the ranks and shares that occur, or a sentence if no token is relaxed."""
    relaxed = found["relaxed_tokens"]
    if not any(relaxed["by_target_rank"].values()):
        return "No token was relaxed at this setting."
    tables = []
    for what, key in (("target's rank", "by_target_rank"), ("p(x)/p(v1)", "by_p_over_p1")):
        names = [name for name, count in relaxed[key].items() if count]
        shares = [figure_cell("relaxed", relaxed[f"shares_{key}"][name]) for name in names]
        rows = [[name, number(relaxed[key][name]), share] for name, share in zip(names, shares, strict=True)]
        tables.append(table([what, "tokens", "share of the relaxed"], rows))
    return "\n\n".join(tables)


def acceptance(found: dict[str, Any]) -> str:
    """Return the relation of τ to vLLM's mean acceptance length, each engine's figures, and acceptance by position."""
    rows = [
        [
            row["engine"],
            _within(row["length"], row["length_within"]),
            row["length_formula"] or "not reported",
            _within(row["rate"], row["rate_within"]),
            row["rate_formula"] or "not reported",
        ]
        for row in found["engines"]
    ]
    heads = ["engine", "length", "formula", "rate", "formula"]
    return "\n\n".join([_two_lengths(found), table(heads, rows), _positions(found)])


def _two_lengths(found: dict[str, Any]) -> str:
    """Return an explanation of τ and, if it differs, of vLLM's length."""
    counts = found["acceptance"]
    tokens, rounds, past = (counts[name] for name in ("tokens", "rounds", "past_the_end"))
    vllm = next(row for row in found["engines"] if row["engine"] == "vLLM")["length"]
    tau = tokens / rounds if rounds else None
    words = (
        f"τ, everywhere in this document, is tokens per target pass: the texts hold {number(tokens)} tokens, made in "
        f"{number(rounds)} passes, corrections and bonus tokens included and the prefill left out: {plain_number(tau)}."
    )
    if not past:
        return words
    return (
        f"{words} vLLM's mean acceptance length counts what verification accepted before a text is cut at its end, "
        f"{number(past)} tokens more: {plain_number(vllm)}. Hold that one against vLLM's log, and τ against tokens "
        "that a user gets."
    )


def _positions(found: dict[str, Any]) -> str:
    """Return acceptance by position; joint rates are omitted if they equal the unconditional ones, as for chains."""
    rates = next(row["unconditional"] for row in found["engines"] if row["unconditional"])
    conditional_row = next(row for row in found["engines"] if row["conditional"])
    kinds = {"unconditional": rates, "conditional": conditional_row["conditional"]}
    if list(map(plain_number, conditional_row["joint"])) != list(map(plain_number, rates)):
        kinds["joint"] = conditional_row["joint"]
    places = [str(place) for place in range(1, len(rates) + 1)]
    rows = [[name, *map(plain_number, values)] for name, values in kinds.items()]
    return table(["accepted at position", *places], rows)


def _within(value: float | None, found: dict[str, Any]) -> str:
    """Return '2.40 (2.31 to 2.50)', or the reason why there is no interval."""
    if found["why_none"]:
        return f"{plain_number(value)} (no interval: {found['why_none']})"
    if found["low"] is None:
        return plain_number(value)
    return "–" if value is None else ranged((value, found["low"], found["high"]))


def engine_settings(found: dict[str, Any]) -> str:
    """Return the settings; engines with the same setting and note share an entry."""
    names: dict[tuple[str, str], list[str]] = {}
    for each in found["engine_settings"]:
        names.setdefault((each["note"], each["text"]), []).append(each["engine"])
    parts = []
    for (note, text), engines in names.items():
        code = f"\n\n```\n{text}\n```" if text else ""
        parts.append(f"**{', '.join(engines)}**: {commonmark(note)}{code}")
    return "\n\n".join(parts)


def synthetic(found: dict[str, Any]) -> str:
    """Return settings that make engines accept equally often, for throughput only."""
    settings = found["synthetic_acceptance"]
    return (
        f"**{settings['warning']}**\n\n"
        f"vLLM, to merge into --speculative-config:\n\n```\n{settings['vllm']}\n```\n\n"
        f"SGLang, environment:\n\n```\n{settings['sglang']}\n```\n\n"
        f"TensorRT-LLM, environment:\n\n```\n{settings['tensorrt_llm']}\n```"
    )
