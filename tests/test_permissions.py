"""Who may do what, by the server's environment: what is said at the start, and that pages and jobs keep to it."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from sweep_cases import toy_sweep

from mars_viz import cli, demo
from mars_viz.backend_choice import BackendChoice
from mars_viz.errors import BadInput
from mars_viz.permissions import DELETE, PATHS, MayDelete, MayNamePaths, about_paths, is_this_machine
from mars_viz.permissions import who_may_delete as deletes
from mars_viz.permissions import who_may_name_paths as names_paths
from mars_viz.runfiles import save_run
from mars_viz.speculators.loading import load_backend
from mars_viz.speculators.names import check_id
from mars_viz.ui import decode_form, visitors
from mars_viz.ui.models_form import in_words
from tests.clients import opened
from tests.factories import toy_run

ROOT = Path(__file__).parents[1]
PATIENCE = 240.0
PAGES = ("", "explore", "live", "runs", "compare", "rules", "tune", "learn")


@pytest.fixture(autouse=True)
def unset(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in (DELETE, PATHS):
        monkeypatch.delenv(variable, raising=False)


def test_what_is_not_set_is_the_careful_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (deletes(), names_paths()) == (MayDelete.MAKER, MayNamePaths.LOCAL)
    for variable, asked in ((DELETE, deletes), (PATHS, names_paths)):
        monkeypatch.setenv(variable, "nobody")
        assert asked().value == "nobody"
        monkeypatch.setenv(variable, "anybody")
        with pytest.raises(BadInput, match=f"{variable} is “anybody”, which is none of .*everybody, nobody"):
            asked()


@pytest.mark.parametrize(
    ("host", "itself"),
    [
        ("localhost", True),
        ("127.0.0.1", True),
        ("127.8.0.3", True),
        ("::1", True),
        ("[::1]", True),
        ("a.localhost", True),
    ]
    + [(name, False) for name in ("", "0.0.0.0", "::", "10.0.0.1", "localhost.example", "example.org", "unix:/x")],
)
def test_which_addresses_reach_this_machine_alone(host: str, itself: bool) -> None:
    assert is_this_machine(host) == itself
    assert (about_paths(host) == "") == itself


@pytest.mark.parametrize(
    ("headers", "itself"),
    [
        ({"Host": "localhost:8501"}, True),
        ({"Host": "[::1]:8501"}, True),
        ({"host": "127.0.0.1"}, True),
        ({}, False),
        ({"Host": "viz.example.org"}, False),
        ({"Host": "[::1"}, False),
        *(
            ({"Host": "localhost:8501", name: "x"}, False)
            for name in ("X-Forwarded-For", "Forwarded", "X-Real-IP", "Via")
        ),
    ],
)
def test_a_request_that_somebody_passed_on_is_nobody_s_of_this_machine(
    headers: Mapping[str, str], itself: bool
) -> None:
    assert visitors._asks_itself(headers) == itself


@pytest.mark.parametrize(
    ("setting", "address", "may"),
    [(None, "localhost", True), (None, "", False), (None, "0.0.0.0", False), ("local", "::1", True)]
    + [("everybody", "0.0.0.0", True), ("nobody", "localhost", False), ("anybody", "localhost", False)],
)
def test_who_may_name_paths(monkeypatch: pytest.MonkeyPatch, setting: str | None, address: str, may: bool) -> None:
    if setting is not None:
        monkeypatch.setenv(PATHS, setting)
    monkeypatch.setattr(visitors, "address", lambda: address)
    monkeypatch.setattr(visitors, "_asks_itself", lambda headers: True)
    assert visitors.may_name_paths() == may


@pytest.mark.parametrize("variable", [DELETE, PATHS])
def test_the_app_does_not_start_with_a_setting_that_is_none(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], variable: str
) -> None:
    monkeypatch.setattr(os, "execv", lambda *_: pytest.fail("it was started"))
    monkeypatch.setenv(variable, "anybody")
    assert cli.main(["app"]) == 2
    assert f"error: {variable} is “anybody”, which is none of" in capsys.readouterr().err
    assert cli.main(["app", "--paths", "somebody"]) == 2


def test_the_app_s_option_goes_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    started = []
    monkeypatch.setattr(os, "execv", lambda *_: started.append(os.environ[PATHS]))
    monkeypatch.setenv(PATHS, "anybody")
    assert cli.main(["app", "--paths", "nobody"]) == 0 and started == ["nobody"]


NO_IDS = [
    "/etc/passwd",
    "../x",
    "./x",
    "~/x",
    "a/b/c",
    "a//b",
    "a/..",
    "..",
    ".hidden",
    "org\\name",
    "org/name\n",
    "C:x",
    "",
]


@pytest.mark.parametrize("name", NO_IDS)
def test_what_is_no_id_is_refused_whether_or_not_it_is_there(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    with pytest.raises(BadInput, match="is no model's id on the hub"):
        check_id(name)
    if name.strip():
        monkeypatch.setattr(visitors, "may_name_paths", lambda: False)
        with pytest.raises(BadInput, match="is no model's id on the hub"):
            decode_form.named_models("org/name", name.strip("\n") + "/../x" * name.endswith("\n"))


def test_models_are_folders_only_for_those_who_may_name_paths(monkeypatch: pytest.MonkeyPatch) -> None:
    for may in (True, False):
        monkeypatch.setattr(visitors, "may_name_paths", lambda may=may: may)
        assert decode_form.named_models(" org/name", "name ") == BackendChoice("org/name", "name", folders=may)
        assert decode_form.named_models("", "") == BackendChoice()  # which is the pair that is held already
        assert in_words(BackendChoice("/home/me/big", "org/b", folders=True)) == f"{'/home/me/' * may}big with org/b"


@pytest.mark.parametrize("name", ["docs/rules", "mars_viz/demo", "tests", "no-such/model", "none"])
def test_a_folder_where_the_server_was_started_is_no_model(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """And it is answered as what is not there: the hub is asked, which has none of them."""
    monkeypatch.chdir(ROOT)
    with pytest.raises(BadInput) as found:
        load_backend(name, name, device="cpu", folders=False)
    assert f"The configuration of {name} cannot be loaded" in str(found.value) and "holds no" not in str(found.value)


def test_the_built_in_pair_needs_no_hub() -> None:
    assert load_backend(device="cpu", folders=False).target.name == f"{demo.BUILT_IN}/target"


@contextmanager
def app(folder: Path, *options: str, **settings: str) -> Iterator[tuple[str, Path]]:
    """`mars-viz app` on folders below this one: its address, and the file of what it says."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    places = {"MARS_VIZ_RUNS": str(folder / "runs"), "MARS_VIZ_SWEEPS": str(folder / "sweeps")}
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MARS_VIZ")}
    environment = kept | places | settings | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "mars_viz", "app", "--no-browser", "--port", str(port), *options]
    said = folder / "said"
    with said.open("wb") as log:
        server = subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log)
    try:
        end = time.monotonic() + PATIENCE
        while True:
            assert time.monotonic() < end and server.poll() is None, said.read_text()
            try:
                urllib.request.urlopen(f"http://localhost:{port}/_stcore/health", timeout=5).close()
                break
            except OSError:
                time.sleep(0.05)
        yield f"http://localhost:{port}", said
    finally:
        server.terminate()
        server.wait()


async def shown(address: str, headers: Mapping[str, str]) -> dict[str, str]:
    """All that is sent of every page, and of what is saved."""
    found = {}
    for page, query in [*((page, "") for page in PAGES), ("runs", "run=fox"), ("explore", "run=broken")]:
        async with opened(address, page, query, headers) as tab:
            found[f"{page}?{query}"] = "\n".join(str(each.proto) for each in tab._elements.values())
            assert not tab.errors
    return found


def told(address: str, **headers: str) -> dict[str, str]:
    """The same, in a thread of its own: Playwright's loop goes on in a process's first."""
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    with ThreadPoolExecutor(1) as elsewhere:
        return elsewhere.submit(asyncio.run, shown(address, sent)).result()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """With a run, one that cannot be read, and the same of sweeps."""
    save_run(replace(toy_run(), title="Fox"), tmp_path / "runs" / "fox")
    (tmp_path / "runs" / "broken").mkdir()
    (tmp_path / "runs" / "broken" / "manifest.json").write_text("{}")
    toy_sweep(tmp_path / "sweeps" / "one", 2).finish()
    (tmp_path / "sweeps" / "broken").mkdir()
    (tmp_path / "sweeps" / "broken" / "sweep.json").write_text("{}")
    return tmp_path


def test_where_things_lie_is_told_to_this_machine_and_to_no_visitor(folder: Path) -> None:
    with app(folder) as (address, said):
        own, others = told(address), told(address, x_forwarded_for="10.0.0.7")
        assert PATHS not in said.read_text()
    assert f"Saved in {folder / 'runs'}" in own["runs?"].replace("\\", "")  # its Markdown is escaped
    assert str(folder / "sweeps") in own["tune?"]
    assert [page for page, text in others.items() if str(folder) in text or str(ROOT) in text] == []
    assert "Saved on this server" in others["runs?"] and "broken cannot be opened" in others["explore?run=broken"]


def test_a_server_for_others_says_at_its_start_that_they_name_no_paths(folder: Path) -> None:
    with app(folder, "--address", "0.0.0.0") as (address, said):
        found = told(address)
        assert (
            "may name no folders of this machine, neither for results nor as models, since others" in said.read_text()
        )
    assert [page for page, text in found.items() if str(folder) in text] == []
