"""benchmarks/engines.py: what it compares can differ, is then found, and no server outlives its block. Without vLLM."""

from __future__ import annotations

import importlib
import os
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from mars_viz import demo
from mars_viz.analysis import round_differences
from mars_viz.analysis.counts import AcceptanceCounts
from mars_viz.demo.prompts import STORIES
from mars_viz.records import emitted
from mars_viz.run import Settings
from mars_viz.speculators.backend import Backend
from mars_viz.speculators.loading import load_backend
from mars_viz.speculators.server_audit import decoded
from mars_viz.speculators.vllm_http import ServedText

FOLDER = Path(__file__).resolve().parent.parent / "benchmarks"
SETTINGS = Settings(rule="strict", gamma=4, max_new_tokens=32)
SERVER = """#!{python}
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
class Healthy(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(str(__import__("os").getpid()).encode())
HTTPServer(("127.0.0.1", int(sys.argv[sys.argv.index("--port") + 1])), Healthy).serve_forever()
"""


@pytest.fixture(scope="module")
def engines() -> Iterator[ModuleType]:
    sys.path.insert(0, str(FOLDER))
    yield importlib.import_module("engines")
    sys.path.remove(str(FOLDER))
    for name in ("engines", "measuring"):
        sys.modules.pop(name, None)


@pytest.fixture(scope="module")
def pair() -> Backend:
    return load_backend()


@pytest.fixture(scope="module")
def prompt(pair: Backend) -> tuple[int, ...]:
    return pair.prompt_ids(STORIES[1], SETTINGS)


@pytest.fixture
def written(engines: ModuleType, pair: Backend, prompt: tuple[int, ...]) -> ServedText:
    """What an engine that agrees with us would say: our own rounds, with vLLM's one token ahead of them."""
    first = decoded(pair, replace(SETTINGS, max_new_tokens=1), prompt)[0]
    rounds = decoded(pair, replace(SETTINGS, max_new_tokens=31), prompt + first.token_ids)
    tokens = emitted([first, *rounds])
    logits = [z for round_ in (first, *rounds) for z in engines.written_logits(round_)]
    rows = tuple({token: z} for token, z in zip(tokens, logits, strict=True))
    return ServedText(tokens, rows, counts([len(round_.decision.kept) for round_ in rounds]))


def with_tokens(written: ServedText, tokens: tuple[int, ...]) -> ServedText:
    rows = tuple({token: max(row.values())} for token, row in zip(tokens, written.rows, strict=True))
    return replace(written, tokens=tokens, rows=rows)


def counts(accepted: list[int]) -> AcceptanceCounts:
    return AcceptanceCounts("some", np.array(accepted), None, 4 * len(accepted), 4, 32, prefilled=1)


def test_what_agrees_is_counted_and_no_difference_is_found(
    engines: ModuleType, pair: Backend, prompt: tuple[int, ...], written: ServedText
) -> None:
    found = engines.compare(pair, SETTINGS, [prompt], [written])
    rounds = written.counts.steps
    assert rounds >= 4
    assert (found["rounds"], found["same_rounds"], found["same_texts"], found["tokens"]) == (rounds, rounds, 1, 32)
    assert (found["differences"], found["unexplained"], found["largest_logit_difference"]) == ([], 0, 0.0)
    assert found["tau"] == pytest.approx(31 / rounds)


def test_another_token_is_found_where_it_stands_with_its_gap(
    engines: ModuleType, pair: Backend, prompt: tuple[int, ...], written: ServedText, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds = decoded(pair, replace(SETTINGS, max_new_tokens=31), prompt + written.tokens[:1])
    at = 1 + len(rounds[0].token_ids)  # the first token of the second round
    second = int(rounds[1].speculation.top_ids[0, 1])
    other = with_tokens(written, (*written.tokens[:at], second, *written.tokens[at + 1 :]))
    found = engines.compare(pair, SETTINGS, [prompt], [other])
    (difference,) = found["differences"]
    assert (difference["what"], difference["round"], difference["position"]) == ("text", 1, at)
    assert difference["tokens"] == (written.tokens[at], second)
    assert difference["gap"] == pytest.approx(float(rounds[1].speculation.margin[0]))
    assert (found["same_rounds"], found["same_texts"], found["unexplained"]) == (1, 0, 1)
    monkeypatch.setattr(round_differences, "ROUNDING", difference["gap"])
    assert engines.compare(pair, SETTINGS, [prompt], [other])["unexplained"] == 0


def test_the_first_token_of_all_is_compared(
    engines: ModuleType, pair: Backend, prompt: tuple[int, ...], written: ServedText
) -> None:
    other = with_tokens(written, (written.tokens[0] + 1, *written.tokens[1:]))
    (difference,) = engines.compare(pair, SETTINGS, [prompt], [other])["differences"]
    assert (difference["what"], difference["round"], difference["position"]) == ("text", -1, 0)


@pytest.mark.parametrize("change", [-1, 1])
def test_another_count_of_accepted_tokens_is_found(
    engines: ModuleType, pair: Backend, prompt: tuple[int, ...], written: ServedText, change: int
) -> None:
    accepted = written.counts.accepted.tolist()
    at = next(i for i, count in enumerate(accepted) if 0 <= count + change <= 4)
    accepted[at] += change
    found = engines.compare(pair, SETTINGS, [prompt], [replace(written, counts=counts(accepted))])
    (difference,) = found["differences"]
    assert (difference["what"], difference["round"]) == ("draft", at)
    assert difference["accepted"] == (accepted[at], accepted[at] - change)
    assert (found["same_texts"], found["same_rounds"], found["unexplained"]) == (1, at, 1)


@pytest.mark.parametrize("more", [True, False])
def test_more_rounds_on_one_side_are_a_difference(
    engines: ModuleType, pair: Backend, prompt: tuple[int, ...], written: ServedText, more: bool
) -> None:
    accepted = written.counts.accepted.tolist()
    accepted = [*accepted, 0] if more else accepted[:-1]
    found = engines.compare(pair, SETTINGS, [prompt], [replace(written, counts=counts(accepted))])
    assert [each["what"] for each in found["differences"]] == ["end"]
    assert found["unexplained"] == 1


def environment(folder: Path, script: str) -> Path:
    """An environment whose vLLM is this script."""
    (folder / "bin").mkdir()
    vllm = folder / "bin" / "vllm"
    vllm.write_text(script, "utf-8")
    vllm.chmod(0o755)
    return folder


def test_a_server_lives_as_long_as_its_block(engines: ModuleType, tmp_path: Path) -> None:
    engine = environment(tmp_path, SERVER.format(python=sys.executable))
    with engines.served(engine, {"method": "draft_model", "model": str(demo.DRAFTER)}, 512) as address:
        assert address.startswith("http://127.0.0.1:")
        with urllib.request.urlopen(address, timeout=30) as reply:
            process = int(reply.read())
        os.kill(process, 0)
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)


def test_a_server_that_ends_at_once_is_told_with_what_it_said(engines: ModuleType, tmp_path: Path) -> None:
    engine = environment(tmp_path, "#!/bin/sh\necho no such head >&2\nexit 3\n")
    with (
        pytest.raises(SystemExit, match="(?s)vLLM did not start.*no such head"),
        engines.served(engine, None, 512),
    ):
        pass


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--engine", "nowhere"], "There is no vLLM in nowhere"),
        (["--new-tokens", "1"], "must be at least 2"),
        (["--gamma", "0"], "gamma is 0"),
        (["--new-tokens", "600"], "512"),
    ],
)
def test_what_cannot_work_is_refused(
    engines: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    options: list[str],
    said: str,
) -> None:
    engine = environment(tmp_path, "#!/bin/sh\nexit 3\n")
    figures = tmp_path / "figures.json"
    monkeypatch.setattr(sys, "argv", ["engines", "--engine", str(engine), *options, "--json", str(figures)])
    with pytest.raises(SystemExit) as ended:
        engines.main()
    assert ended.value.code == 2
    assert said in capsys.readouterr().err
    assert not figures.exists()
