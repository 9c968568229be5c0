from __future__ import annotations

import argparse
import io
import json
import os
import signal
import subprocess
import sys
import tomllib
from dataclasses import asdict, replace
from pathlib import Path
from unittest.mock import Mock

import pytest
from factories import toy_run

import mars_viz
from mars_viz import cli, default_folders
from mars_viz.analysis.metrics import ending
from mars_viz.commands import decoding
from mars_viz.errors import BadInput
from mars_viz.recording import Mapping
from mars_viz.rules import RULES
from mars_viz.runfiles import MAX_ZIP
from mars_viz.speculators.backend import Backend
from tests.tables import table_backend

ROOT = Path(__file__).parents[1]


def test_record_and_the_python_api_agree(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(Backend, "notes", property(lambda pair: ("It is\nslow.",)))
    monkeypatch.setenv(default_folders.RUNS, str(tmp_path))
    wanted = ["--prompt", "Once upon a time", "--max-new-tokens", "12", "--dial", "0.8", "--title", "T", "--seed", "3"]
    assert cli.main(["record", *wanted, "--json", "--device", "cpu"]) == 0
    done = capsys.readouterr()
    record = json.loads(done.out)
    (out,) = tmp_path.iterdir()  # the folder in which the app lists runs
    run = mars_viz.load_run(out)
    assert done.err == "It is slow.\n" and (record["path"], record["title"]) == (str(out), "T")
    assert record["token_ids"] == list(run.token_ids) and record["summary"]["tau"] == run.tau
    assert record["settings"]["dial"] == run.settings.dial == 0.8 and run.settings.seed == 3
    api = mars_viz.record("Once upon a time", max_new_tokens=12, dial=0.8, seed=3, device="cpu")
    assert api.token_ids == run.token_ids and api.prompt_ids == run.prompt_ids


@pytest.fixture
def toy_models(monkeypatch):
    """The commands decode and map two tables."""
    monkeypatch.setattr(decoding, "opened_backend", lambda *_: table_backend())


TOY_MAP = ["map", "--prompt", "b", "--gamma", "4", "--max-new-tokens", "20"]


def test_map_prints_a_table_of_texts_for_each_block_length(tmp_path, capsys, toy_models):
    out = tmp_path / "run"
    assert cli.main([*TOY_MAP, "--gammas", "4,1", "--low", "0.6", "--out", str(out)]) == 0
    text = capsys.readouterr().out
    made = mars_viz.load_run(out).dial_map
    assert made.span.gammas == (1, 4) and "Map from θ = 0.60 to 1: " in text and "exact everywhere" in text
    lines = text.splitlines()
    for gamma in (1, 4):
        segments = made.segments_for(gamma)
        at = lines.index(f"γ = {gamma}, {len(segments)} texts") + 2
        for line, segment in zip(lines[at : at + len(segments)], segments, strict=True):
            numbers = [f"{segment.low:.5f}", f"{segment.high:.5f}", f"{segment.tau:.2f}"]
            assert line.split()[:5] == [*numbers, str(len(segment.rounds)), str(segment.relaxed)]
            differs = [a != b for a, b in zip(segment.token_ids, segments[-1].token_ids, strict=False)]
            words = ["at", "token", f"{differs.index(True) + 1}:"] if any(differs) else ["no"]
            assert line.split()[5:8] == words


def test_a_map_cut_short_or_interrupted(tmp_path, capsys, monkeypatch, toy_models):
    budget = ["--budget-passes", "4", "--budget-branches", "1", "--budget-seconds", "60"]
    assert cli.main([*TOY_MAP, *budget, "--out", str(tmp_path / "a")]) == 0
    text = capsys.readouterr().out
    assert "cut short, so not exact everywhere" in text and "(cut short)" in text
    assert cli.main([*TOY_MAP, *budget, "--out", str(tmp_path / "b"), "--json"]) == 0
    result = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert not result["complete"] and False in {segment["complete"] for segment in result["segments"]}
    monkeypatch.setattr(Mapping, "__iter__", lambda _: signal.default_int_handler(signal.SIGINT, None))
    assert cli.main([*TOY_MAP, "--out", str(tmp_path / "new" / "run")]) == 130
    assert "nothing was saved" in error_of(capsys) and not (tmp_path / "new").exists()


def error_of(capsys: pytest.CaptureFixture[str]) -> str:
    """The one line on stderr, nothing having been printed on stdout."""
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("error: ") and err.count("\n") == 1
    return err


RECORD, MAP = ["record", "--prompt", "a", "--out", "{new}"], ["map", "--prompt", "a", "--out", "{new}"]
BAD: list[tuple[list[str], str]] = [
    ([], "COMMAND"),
    (["record", "--out", "{new}"], "--prompt"),
    ([*RECORD, "--gamma", "six"], "six"),
    (["record", "--prompt", "a", "--out", "{old}"], "exists already"),
    (["record", "--prompt", "a", "--out", "{bytes}/run"], "cannot be written"),
    (["record", "--prompt", "a", "--out", "{new}" + 300 * "x"], "cannot be written"),
    (["sweep", "--out", "{new}", "--evidence", "{bytes}/pack"], "cannot be written"),
    (["record", "--prompt", "", "--out", "{new}"], "The prompt is empty"),
    (["record", "--prompt", "a\ud800", "--out", "{new}"], "at place 2"),
    (["record", "--prompt-file", "{new}", "--out", "{new}"], "No such file"),
    (["record", "--prompt-file", "{bytes}", "--out", "{new}"], "UTF-8"),
    ([*RECORD, "--rule", "luck"], "no rule 'luck'"),
    ([*RECORD, "--dial", "2"], "from 0 to 1"),
    ([*RECORD, "--rule", "strict", "--dial", "1"], "no dial"),
    (["show", "{new}"], "does not exist"),
    ([*MAP, "--low", "1", "--high", "0.5"], "smaller value"),
    ([*MAP, "--gammas", "2,7"], "drafts only 6"),
    ([*MAP, "--gammas", "1,many"], "whole numbers such as"),
    ([*MAP, "--low", "0.95"], "θ = 0.90 is not between"),
    ([*MAP, "--budget-branches", "0"], "at least 1 branch"),
    ([*MAP, "--budget-seconds", "nan"], "budget"),
    (["sweep", "--out", "{new}", "--set", "{new}.jsonl"], "new.jsonl"),
    (["sweep", "--out", "{new}", "--limit", "0"], "at least 1"),
    (["sweep", "--out", "{new}", "--grid", "k=1,2"], "no settings other than its dial"),
    (["watch", "nowhere"], "no server's address"),
    (["watch", "http://127.0.0.1:1", "--limit", "0"], "at least 1"),
    (["app", "--port", "0"], "The port is 0"),
    (["import", "{bytes}"], "not UTF-8"),
    (["import", "{sums}", "--out", "{new}"], "drafted"),
    (["import", "{sums}", "--tolerance", "-1"], "tolerance"),
    (["import", "{sums}", "--rule", "nonsense"], "no rule"),
    (["import", "{sums}", "--drafts", "nowhere"], "nowhere"),
    (["import", "{sums}", "--target", "./nowhere"], "no folder"),
    ([*RECORD, "--drafter", "org/name"], "without a target"),
    ([*RECORD, "--device", "gpu"], "no device 'gpu'; choose one of auto"),
    (["sweep", "--out", "{new}", "--dtype", "int4"], "no dtype 'int4'; choose one of auto"),
]


def test_bad_input_is_refused_without_importing_model_libraries(tmp_path):
    paths = {"new": tmp_path / "new", "old": tmp_path, "bytes": tmp_path / "bytes", "sums": tmp_path / "sums"}
    paths["bytes"].write_bytes(b"\xff\xfe\xfa")
    paths["sums"].write_text('{"timings": {"draft_n": 1}}')
    asked = [[part.format(**paths) for part in arguments] for arguments, _ in BAD]
    code = """if True:
        import contextlib, io, json, sys
        from mars_viz import cli
        for arguments in json.load(sys.stdin):
            with contextlib.redirect_stderr(io.StringIO()) as error:
                code = cli.main(arguments)
            there = [name for name in ("torch", "transformers") if name in sys.modules]
            print(json.dumps([code, error.getvalue(), there]))
    """
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, input=json.dumps(asked), capture_output=True, encoding="utf-8"
    )
    results = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(results) == len(BAD), done.stderr
    for (arguments, message), (code, error, there) in zip(BAD, results, strict=True):
        assert (code, there) == (2, []) and message in error, (arguments, code, error, there)
        assert error.startswith("error: ") and error.count("\n") == 1
    assert not paths["new"].exists()


def test_an_unknown_option_points_to_the_help_and_help_and_version_are_no_errors(capsys):
    for name in ("record", "map"):
        assert cli.main([name, "--prompt", "a", "--out", "b", "--volume=11"]) == 2
        said = error_of(capsys)
        assert f"mars-viz {name} --help" in said and "--volume=11" in said
    for arguments in (["--help"], ["map", "--help"], ["--version"]):
        assert cli.main(arguments) == 0
        out, err = capsys.readouterr()
        assert out and not err
    assert out.strip() == mars_viz.__version__


def test_failures_are_one_line_and_leave_nothing(tmp_path, capsys, monkeypatch):
    for failure, code, said in (
        (BadInput("No.\nReally."), 2, "No. Really."),
        (RuntimeError("bro\nken"), 1, cli.DEBUG_VARIABLE),
        (KeyboardInterrupt(), 130, "nothing"),
    ):
        monkeypatch.setattr(decoding, "opened_backend", Mock(side_effect=failure))
        monkeypatch.delenv(cli.DEBUG_VARIABLE, raising=False)
        for name in ("record", "map"):
            assert cli.main([name, "--prompt", "a", "--out", str(tmp_path / "new")]) == code
            assert said in error_of(capsys)
        monkeypatch.setenv(cli.DEBUG_VARIABLE, "1")
        assert cli.main(["map", "--prompt", "a", "--out", str(tmp_path / "new")]) == code
        assert "Traceback" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_prompt_comes_from_a_file_or_from_standard_input(tmp_path, monkeypatch, capsys, toy_models):
    (tmp_path / "prompt.txt").write_text("füür\n", encoding="utf-8")
    monkeypatch.setattr("sys.stdin", io.StringIO("füür\n"))
    for source, out in ((tmp_path / "prompt.txt", tmp_path / "a"), ("-", tmp_path / "b")):
        assert cli.main(["record", "--prompt-file", str(source), "--out", str(out)]) == 0
        assert f"Saved to {out}" in capsys.readouterr().out and mars_viz.load_run(out).prompt == "füür\n"


def test_every_setting_has_an_option_with_its_default_and_map_has_all_of_record():
    record, mapping = (
        vars(cli._parser().parse_args([name, "--prompt", "a", "--out", "b"])) for name in ("record", "map")
    )
    assert {**mapping, **record, "run": 0} == {**mapping, "run": 0} and record.keys() <= mapping.keys()
    settings = mars_viz.Settings()
    record["stop"] = tuple(record["stop"])
    assert record["gamma"] is None and decoding.settings_of(argparse.Namespace(**record)) == settings
    assert {name: record[name] for name in settings.__slots__} == asdict(settings) | {"gamma": None}


def test_app_becomes_streamlit_on_localhost(tmp_path, monkeypatch, capsys):
    ran: list[list[str]] = []
    monkeypatch.setattr(os, "execv", lambda _, arguments: ran.append(arguments))
    assert cli.main(["app", "--port", "8765", "--no-browser"]) == 0
    assert ran[0][1:5] == ["-m", "streamlit", "run", str(ROOT / "app.py")]
    assert ran[0][5:] == ["--server.port", "8765", "--server.address", "localhost", "--server.headless", "true"]
    assert cli.main(["app", "--address", "0.0.0.0"]) == 0
    assert ran[1][5:] == ["--server.port", "8501", "--server.address", "0.0.0.0"]
    monkeypatch.setattr(cli, "APP", tmp_path / "app.py")
    assert cli.main(["app"]) == 2 and len(ran) == 2
    assert "make app" in error_of(capsys)


def test_what_the_app_relies_on_is_in_its_configuration():
    config = tomllib.loads((ROOT / ".streamlit" / "config.toml").read_text(encoding="utf-8"))
    assert config["browser"]["gatherUsageStats"] is False
    assert not {"address", "port"} & set(config["server"]), "each host sets its own, see docs/deploy.md"
    assert config["server"]["maxUploadSize"] << 20 == MAX_ZIP
    assert config["server"]["fileWatcherType"] == "none" and config["runner"]["postScriptGC"] is False, "see there"


def test_show_prints_text_and_strict_json_and_rules_are_listed(tmp_path, capsys):
    run = toy_run(temperature=1.0)
    assert cli.main(["show", str(run.save(tmp_path / "run"))]) == 0
    text = capsys.readouterr().out
    assert "MARS at θ = 0.90" in text and f"{len(run.token_ids)} tokens in {len(run.rounds)} rounds" in text
    assert run.text in text and ending(run) in text
    assert cli.main(["show", str(replace(run, rounds=()).save(tmp_path / "empty")), "--json"]) == 0
    assert json.loads(capsys.readouterr().out, parse_constant=pytest.fail)["summary"]["tau"] is None
    assert cli.main(["rules"]) == 0
    text = capsys.readouterr().out
    assert all(line in text for rule in RULES.values() for line in (rule.name, rule.summary, rule.formula, rule.source))
