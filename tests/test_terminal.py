"""Texts of others in a terminal: every command over hostile runs, sets and arguments; the streams; the logs."""

from __future__ import annotations

import io
import json
import logging
import subprocess
import sys
import unicodedata
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from factories import toy_run

from mars_viz import cli
from mars_viz.strict_formats import json_of
from mars_viz.terminal import Shown, printable, raw, say, shown_streams

STEERING = [*range(1, 32), 127, *range(128, 160)]
UNSEEN = [0x61C, 0x200B, 0x200E, 0x200F, 0x2028, 0x2029, *range(0x202A, 0x202F), *range(0x2066, 0x206A), 0xFEFF]
HOSTILE = "\x1b]0;owned\x07" + "".join(map(chr, [*STEERING, *UNSEEN])) + "\x1b[2J\rerror: none"
NAME = HOSTILE.replace("/", "")
"""Of a file; the systems that the product runs on take all but a slash and a NUL."""


def unsafe(text: str, but: str = "\n\t") -> set[str]:
    """What of it could steer a terminal, turn the direction of writing, or hide."""
    return {sign for sign in text if unicodedata.category(sign) in ("Cc", "Cf", "Cs", "Zl", "Zp") and sign not in but}


def hostile_run(folder: Path) -> Path:
    """A run whose texts are all hostile; its settings and ids are a run's."""
    run = toy_run(pieces={i: HOSTILE.encode() for i in range(1, 32)}, max_new_tokens=8, stop=(HOSTILE,))
    texts = ("target", "drafter", "target_revision", "drafter_revision", "dtype", "device", "created", "batching")
    told = replace(run.provenance, **dict.fromkeys(texts, HOSTILE), versions={HOSTILE: HOSTILE})
    return replace(run, provenance=told, title=HOSTILE, prompt=HOSTILE).save(folder / "run")


def hostile_set(folder: Path) -> Path:
    """A prompt that can be swept, one that is too long, a conversation and lines that are none."""
    lines = [
        {"question_id": f"a{HOSTILE}", "category": HOSTILE, "prompt": HOSTILE, "answer": "x", "grader": "contains"},
        {"question_id": f"b{HOSTILE}", "category": HOSTILE, "prompt": "w " * 3000, "answer": "x", "grader": "contains"},
        {"question_id": f"c{HOSTILE}", "category": HOSTILE, "turns": [HOSTILE, "and then?"]},
        {"question_id": f"a{HOSTILE}", "prompt": "the same id"},
        {"question_id": f"d{HOSTILE}", "prompt": "x", "answer": "x", "grader": HOSTILE},
    ]
    path = folder / f"{NAME[:60]}.jsonl"
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines) + HOSTILE.replace("\n", "") + "\n")
    return path


SMALL = ["--gamma", "2", "--max-new-tokens", "3", "--device", "cpu"]


def swept(folder: Path) -> list[list[str]]:
    prompts, out = str(hostile_set(folder)), folder / f"sweeps{NAME[:40]}"
    options = ["--set", prompts, "--skip-bad", *SMALL, "--stop", HOSTILE]
    return [
        [*options, "--out", str(out / "one"), "--evidence", str(out / "evidence")],
        [*options, "--out", str(out / "one")],
        ["--set", prompts, "--skip-bad", "--grader", HOSTILE, *SMALL, "--out", str(out / "two")],
    ]


def decoded(folder: Path) -> list[list[str]]:
    (folder / "prompt").write_bytes(HOSTILE.encode())
    (folder / NAME).write_bytes(b"\xff" + HOSTILE.encode())
    out, prompt = folder / f"{NAME[:40]}new", ["--prompt-file", str(folder / "prompt")]
    return [
        [*prompt, "--title", HOSTILE, "--stop", HOSTILE, *SMALL, "--out", str(out)],
        ["--prompt", HOSTILE, *SMALL, "--out", str(out / "json"), "--json"],
        ["--prompt-file", str(folder / NAME), "--out", str(folder / "none")],
        ["--prompt", "a", "--target", HOSTILE, "--drafter", HOSTILE, "--out", str(folder / "none")],
        ["--prompt", "a", "--out", str(out)],
    ]


def shown(folder: Path) -> list[list[str]]:
    run = str(hostile_run(folder))
    (folder / NAME).write_text(HOSTILE)
    return [[run], [run, "--json"], [str(folder / NAME)], [str(folder / HOSTILE / "none")]]


def kept(folder: Path) -> list[list[str]]:
    hostile_run(folder)
    commands = [
        ["--search", HOSTILE[:4]],
        ["--json", "--sort", "title"],
        ["show", "run"],
        ["show", "run", "--json"],
        ["--tag", HOSTILE, "--drafter", HOSTILE],
        ["--rule", HOSTILE],
        ["show", HOSTILE],
        ["title", "run", HOSTILE],
        ["tag", "run", "--add", HOSTILE],
        ["delete", "run", HOSTILE],
        ["restore", HOSTILE],
    ]
    return [["--folder", str(folder), *command] for command in commands] + [["--folder", HOSTILE]]


def read(folder: Path) -> list[list[str]]:
    rows = [{f"{HOSTILE}{place}": float(place) for place in range(3)}] * 2
    logprobs = {"tokens": [HOSTILE] * 2, "token_logprobs": [2.0] * 2, "top_logprobs": rows}
    counts = {"num_spec_steps": 1, "num_accepted_draft_tokens": 0, "num_draft_tokens": 1, "num_spec_tokens": 1}
    counts |= {"acceptance_histogram": [1, 0], "per_step_accepted": [0], "per_step_drafted": [1]}
    response = {"id": HOSTILE, "model": HOSTILE, "choices": [{"logprobs": logprobs}]}
    (folder / NAME).write_text(json.dumps(response | {"metrics": {"speculative_decoding": counts}}))
    (folder / "log").write_text(json.dumps({"prompt_ids": [1], "title": HOSTILE}))
    return [[str(folder / NAME)], [str(folder / NAME), "--json"], [str(folder / "log")], [HOSTILE]]


COMMANDS: dict[str, tuple[Callable[[Path], list[list[str]]], int]] = {  # and how many succeed
    "record": (decoded, 2),
    "sweep": (swept, 1),
    "runs": (kept, 5),
    "show": (shown, 2),
    "import": (read, 2),
}


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.usefixtures("small_reports", "unmeasured")
def test_no_command_sends_control_characters_to_a_terminal(command, tmp_path, capsys, monkeypatch):
    make, working = COMMANDS[command]
    everything, codes = "", []
    for arguments in [*make(tmp_path), ["--help"], [f"--{HOSTILE}"], [HOSTILE, HOSTILE]]:
        code = cli.main([command, *arguments])
        out, err = capsys.readouterr()
        assert code in (0, 2) and not unsafe(out + err), (arguments, out, err)
        assert len(err.splitlines()) <= 8  # no text of others makes a line of its own
        if "--json" in arguments and code == 0:
            json.loads(out)
        everything += out + err
        codes.append(code)
        if code and codes.count(code) == 1:
            with monkeypatch.context() as debugging:
                debugging.setenv(cli.DEBUG_VARIABLE, "1")
                assert cli.main([command, *arguments]) == code
            assert not unsafe("".join(capsys.readouterr())), arguments
    assert codes.count(0) == working + 1  # and --help
    assert "\\x1b]0;owned\\x07" in everything or "\\u001b]0;owned\\u0007" in everything


def test_a_progress_bar_returns_to_its_lines_start_and_others_do_not(tmp_path, monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setattr(sys, "stderr", Terminal())
    arguments = ["--prompt", HOSTILE, "--title", HOSTILE, *SMALL, "--out", str(tmp_path / "run")]
    error = sys.stderr
    assert cli.main(["record", *arguments]) == 0 and cli.main(["record", *arguments]) == 2
    text = error.getvalue()
    assert "\rDecoding: 100%" in text and not unsafe(text, "\n\t\r")
    assert "\r" not in text[text.index("error:") :]


def test_lines_stay_lines_and_text_keeps_its_own(capsys):
    with shown_streams():
        say("a\nb\tc", "d")
        print("a\nb\tc\rd")
        assert raw(sys.stdout) is not sys.stdout
    assert capsys.readouterr().out == "a\\nb\\tc\nd\na\nb\tc\\rd\n"
    assert not isinstance(sys.stdout, Shown)


def test_what_is_escaped_and_what_is_left_alone():
    plain = "θ = 0.9, 1\u202f000 tokens, שלום, é, 漢字, 🦀, \xa0"
    assert printable(plain) == plain and printable("\x00\x7f\x9b\u202e") == "\\x00\\x7f\\x9b\\u202e"
    everything = "".join(map(chr, [*range(0x14000), *range(0x1BC00, 0x1E000), *range(0xE0000, 0xE0200)]))
    assert not unsafe(printable(everything)) and printable(everything, "").isascii() is False
    text = json_of({"a": everything[:0x3000]})
    assert json.loads(text) == {"a": everything[:0x3000]} and not unsafe(text) and printable(text) == text


def test_the_servers_log_shows_what_it_quotes():
    code = f"""
import logging, sys
from mars_viz.terminal import shown_logs
shown_logs()
log = logging.getLogger("mars_viz.ui.jobs.job")
log.warning({HOSTILE!r}); log.warning("%s of %d", {HOSTILE!r}, 3)
try:
    raise ValueError({HOSTILE!r})
except ValueError:
    log.exception("A job failed.")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, encoding="utf-8")
    assert done.returncode == 0 and not unsafe(done.stderr)
    assert done.stderr.count("\\x1b]0;owned") == 3 and "ValueError" in done.stderr and " of 3" in done.stderr


def test_the_app_escapes_its_logs():
    code, before = "import app, logging; print(logging.getLogRecordFactory().__module__)", logging.getLogRecordFactory()
    root = Path(cli.__file__).parents[1]
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, encoding="utf-8", cwd=root)
    assert done.stdout.strip() == "mars_viz.terminal", done.stderr
    assert logging.getLogRecordFactory() is before
