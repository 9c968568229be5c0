"""Reads the text of an engine's file: JSON values, captured streams, and which engine wrote a log.

Several JSON values may follow one another, one a line or indented. Only "\\n" ends a line: a JSON string may hold
U+2028, U+2029 and U+0085 as they are. The chunks of a captured stream (`data:` lines, or chunks saved as JSON lines)
are merged into one response for each request.
"""

from __future__ import annotations

import json
import re
from typing import Any

from mars_viz.errors import RunFileError

MAX_LISTS = 1_000_000  # lists and objects in a file; each takes twenty times the bytes that write it
ASK = {
    "vLLM": "Start vLLM with --per-request-spec-decode-metrics detailed, ask with n = 1 and save the responses, or "
    "save the text of its /metrics.",
    "SGLang": "Save SGLang's responses: /generate counts in meta_info, the OpenAI routes in sglext if the request says "
    "return_spec_tokens_details. Or start it with --enable-metrics and save the text of /metrics.",
    "llama.cpp": "Save the responses of llama.cpp's server, whose timings have draft_n if anything was drafted, or "
    "start it with --metrics and save the text of /metrics.",
    "TensorRT-LLM": "Ask TensorRT-LLM with return_perf_metrics and save the outputs, or save the text of its "
    "/prometheus/metrics.",
    "mlx-vlm": "Start mlx-vlm with a draft model and save the responses, whose timings then have draft_rounds.",
    "LM Studio": "Ask LM Studio's /api/v0 routes with a draft_model and save the responses, whose stats count drafts.",
    "TGI": "TGI does not report drafted tokens. Serve the models with another engine.",
    "": "vLLM reports them with --per-request-spec-decode-metrics detailed, SGLang in meta_info, llama.cpp's server "
    "and mlx-vlm in timings, TensorRT-LLM with return_perf_metrics, LM Studio in stats; the text of /metrics of vLLM, "
    "SGLang, llama.cpp and TensorRT-LLM is read as well.",
}
"""What to ask each engine for; "" for a file of an unknown engine."""

_IN_JSON = {
    "SGLang": r'"(meta_info|sglext|matched_stop)"\s*:',
    "mlx-vlm": r'"draft_kind"\s*:',
    "llama.cpp": r'"timings"\s*:\s*\{|"system_fingerprint"\s*:\s*"b\d+-|"id_slot"\s*:',
    "TensorRT-LLM": r'"(request_perf_metrics|avg_decoded_tokens_per_iter|ctx_request_id)"\s*:',
    "LM Studio": r'"stats"\s*:\s*\{[^{}]{0,500}"(tokens_per_second|tokensPerSecond)"',
    "vLLM": r'"(speculative_decoding|prompt_logprobs|kv_transfer_params)"\s*:|"system_fingerprint"\s*:\s*"vllm',
}
_IN_LOGS = {
    "TensorRT-LLM": r"\[(TensorRT-LLM|TRT-LLM)\]|^(# (HELP|TYPE) )?trtllm_",
    "SGLang": r"sglang[:./_ ]|(Decode|Prefill) batch\b.{0,200}#(running|new)-",
    "vLLM": r"SpecDecoding metrics:|Speculative metrics:|\b(INFO|WARNING|ERROR) .{0,200}\[\w+\.py:\d+\]|\bvllm\b",
    "mlx-vlm": r"mlx[-_]vlm",
    "LM Studio": r"(?i)lm[ -]?studio",
    "TGI": r"text[-_]generation[-_](launcher|router|server|inference)|\btgi_",
    "llama.cpp": r"llamacpp[:_]|llama[-_](server|model|context|perf|kv|cpp)|\bprint_timing\w*:|\bdraft acceptance|"
    r"\b(slot|srv) +\w+: |\bstatistics +[\w-]+: #calls",
}
_SEARCHED = 5_000_000  # characters
_SPACE = re.compile(r"[ \t\r\n\ufeff]*")
_DONE = object()
_GROWING = {"content", "tokens", "token_logprobs", "top_logprobs", "token_ids"}  # lists of a choice, chunk after chunk


def values_in(text: str) -> list[Any]:
    """Return the JSON values of a text, those of a single list one by one, and the responses of its streams. Raises
    RunFileError for any other text and for none."""
    if text.count("[") + text.count("{") > MAX_LISTS:
        raise RunFileError(f"There are more than {MAX_LISTS:,} lists and objects in it. Split it into smaller files.")
    decoder, items, place = json.JSONDecoder(), list[tuple[Any, bool]](), 0
    streamed = re.search(r"^[ \t]*data:", text, re.MULTILINE) is not None
    while (place := _after_space(text, place)) < len(text):
        event = streamed and text.startswith("data:", place)
        place = _after_space(text, place + len("data:")) if event else place
        try:
            if not text.startswith(("{", "[", "null"), place) or (streamed and text.startswith("[DONE]", place)):
                raise ValueError
            value, place = decoder.raw_decode(text, place)
        except (ValueError, RecursionError) as error:
            if not streamed:
                raise _not_json(text, place, any(isinstance(value, dict) for value, _ in items)) from error
            if event and text.startswith("[DONE]", place):
                items.append((_DONE, True))
            end = text.find("\n", place)  # an event's name, a comment, a header of HTTP, a chunk that was cut off
            place = len(text) if end < 0 else end
        else:
            items.append((value, event))
    values = _merged(items)
    if len(values) == 1 and isinstance(values[0], list):
        values = values[0]
    if not values:
        raise RunFileError("There are no metrics in it. Give the responses of an engine, or its metrics.")
    return values


def no_counts(what: str, text: str, *, responses: bool) -> RunFileError:
    """Return the error for JSON without counts, of responses or of a log: what to ask its engine for."""
    engine = _engine(text, _IN_JSON if responses else _IN_LOGS)
    return RunFileError(f"In {what} there are no counts of speculative decoding. {ASK[engine]}")


def _after_space(text: str, place: int) -> int:
    match = _SPACE.match(text, place)
    return match.end() if match else place


def _not_json(text: str, place: int, begun: bool) -> RunFileError:
    line = text.count("\n", 0, place) + 1
    engine = "" if begun else _engine(text, _IN_LOGS)
    if engine:
        return RunFileError(f"It is a log or other text of {engine} without counts that can be read. {ASK[engine]}")
    if begun or text[place] in "{[":
        return RunFileError(f"Line {line} is no JSON; it may be cut off. Remove it, or save the file again.")
    return RunFileError(f"Line {line} is no JSON, and no engine's counts are in the text. {ASK['']}")


def _engine(text: str, marks: dict[str, str]) -> str:
    """Return the first engine whose marks are in the text, "" if none are."""
    head = text[:_SEARCHED]
    return next((engine for engine, mark in marks.items() if re.search(mark, head, re.MULTILINE)), "")


def _merged(found: list[tuple[Any, bool]]) -> list[Any]:
    """Merge the chunks of each stream. A chunk without an id belongs to the stream of the chunk before it."""
    values, streams, key = list[Any](), dict[Any, dict[str, Any]](), None
    for value, event in found:
        if value is _DONE:
            streams.pop(key, None)
            key = None
        elif not isinstance(value, dict) or not (event or str(value.get("object", "")).endswith(".chunk")):
            values.append(value)
        else:
            info = value.get("meta_info")
            name = value.get("id") or (info.get("id") if isinstance(info, dict) else None)
            key = key if name is None else (str(name), str(value.get("index")))
            if key in streams:
                _extend(streams[key], value)
            else:
                values.append(streams.setdefault(key, value))
            if value.get("stop") is True:  # llama.cpp's own route ends without [DONE]
                streams.pop(key, None)
                key = None
    return values


def _extend(found: dict[str, Any], more: dict[str, Any]) -> None:
    """Add a chunk to a response: lists of tokens grow, the last value of anything else stays."""
    for key, value in more.items():
        old = found.get(key)
        if value is None or value == []:
            found.setdefault(key, value)
        elif key in _GROWING and isinstance(old, list) and isinstance(value, list):
            old.extend(value)
        elif key == "logprobs" and isinstance(old, dict) and isinstance(value, dict):
            _extend(old, value)
        elif key == "choices" and isinstance(old, list) and isinstance(value, list):
            by_index = {str(each.get("index")): each for each in old if isinstance(each, dict)}
            for choice in (each for each in value if isinstance(each, dict)):
                if (index := str(choice.get("index"))) in by_index:
                    _extend(by_index[index], choice)
                else:
                    old.append(choice)
        else:
            found[key] = value
