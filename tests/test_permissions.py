"""Who may delete runs and name paths, by the server's environment; pages and jobs keep to it."""

from __future__ import annotations

import asyncio
import os
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
from tests.served import ROOT, Server, own_environment, running

PAGES = ("", "explore", "live", "runs", "compare", "rules", "tune", "learn")


@pytest.fixture(autouse=True)
def unset(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in (DELETE, PATHS):
        monkeypatch.delenv(variable, raising=False)


def test_the_default_is_the_careful_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (deletes(), names_paths()) == (MayDelete.MAKER, MayNamePaths.LOCAL)
    for variable, asked in ((DELETE, deletes), (PATHS, names_paths)):
        monkeypatch.setenv(variable, "nobody")
        assert asked().value == "nobody"
        monkeypatch.setenv(variable, "anybody")
        with pytest.raises(BadInput, match=f"{variable} is “anybody”.*everybody, nobody"):
            asked()


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.8.0.3", "::1", "[::1]", "a.localhost"])
def test_addresses_of_this_machine(host: str) -> None:
    assert is_this_machine(host) and about_paths(host) == ""


@pytest.mark.parametrize("host", ["", "0.0.0.0", "::", "10.0.0.1", "localhost.example", "example.org", "unix:/x"])
def test_addresses_that_others_reach(host: str) -> None:
    assert not is_this_machine(host) and about_paths(host)


@pytest.mark.parametrize(
    ("headers", "local"),
    [
        ({"Host": "localhost:8501"}, True),
        ({"Host": "[::1]:8501"}, True),
        ({"host": "127.0.0.1"}, True),
        ({}, False),
        ({"Host": "viz.example.org"}, False),
        ({"Host": "[::1"}, False),
        ({"Host": "localhost:8501", "X-Forwarded-For": "x"}, False),
        ({"Host": "localhost:8501", "Forwarded": "x"}, False),
        ({"Host": "localhost:8501", "X-Real-IP": "x"}, False),
        ({"Host": "localhost:8501", "Via": "x"}, False),
    ],
)
def test_a_forwarded_request_is_not_of_this_machine(headers: Mapping[str, str], local: bool) -> None:
    assert visitors._asks_itself(headers) == local


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


def test_the_app_checks_its_settings_and_an_option_goes_before_the_environment(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    started: list[str] = []
    monkeypatch.setattr(os, "execv", lambda *_: started.append(os.environ[PATHS]))
    for variable in (DELETE, PATHS):
        monkeypatch.setenv(variable, "anybody")
        assert cli.main(["app"]) == 2
        assert f"{variable} is “anybody”" in capsys.readouterr().err
        monkeypatch.delenv(variable)
    assert cli.main(["app", "--paths", "somebody"]) == 2 and started == []
    monkeypatch.setenv(PATHS, "anybody")
    assert cli.main(["app", "--paths", "nobody"]) == 0 and started == ["nobody"]


NO_IDS = ["/etc/passwd", "../x", "./x", "~/x", "a/b/c", "a//b", "a/..", "..", ".hidden", "org\\name", "C:x"]


@pytest.mark.parametrize("name", [*NO_IDS, "org/name\n", ""])
def test_only_ids_are_taken_whether_or_not_a_file_of_the_name_exists(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    with pytest.raises(BadInput, match="id of a model on the hub"):
        check_id(name)
    if name.strip():
        monkeypatch.setattr(visitors, "may_name_paths", lambda: False)
        with pytest.raises(BadInput, match="id of a model on the hub"):
            decode_form.named_models("org/name", name.strip("\n") + "/../x" * name.endswith("\n"))


def test_models_are_folders_only_for_visitors_who_may_name_paths(monkeypatch: pytest.MonkeyPatch) -> None:
    for may in (True, False):
        monkeypatch.setattr(visitors, "may_name_paths", lambda may=may: may)
        assert decode_form.named_models(" org/name", "name ") == BackendChoice("org/name", "name", folders=may)
        assert decode_form.named_models("", "") == BackendChoice()
        assert in_words(BackendChoice("/home/me/big", "org/b", folders=True)) == f"{'/home/me/' * may}big with org/b"


@pytest.mark.parametrize("name", ["docs/rules", "mars_viz/demo", "tests", "no-such/model", "none"])
def test_a_folder_below_the_servers_own_is_no_model(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(ROOT)
    with pytest.raises(BadInput) as found:
        load_backend(name, name, device="cpu", folders=False)
    assert f"The configuration of {name} cannot be loaded" in str(found.value) and "holds no" not in str(found.value)


def test_the_built_in_pair_needs_no_hub() -> None:
    assert load_backend(device="cpu", folders=False).target.name == f"{demo.BUILT_IN}/target"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run, a sweep, and one of each that cannot be read."""
    save_run(replace(toy_run(), title="Fox"), tmp_path / "runs" / "fox")
    toy_sweep(tmp_path / "sweeps" / "one", 2).finish()
    for broken in ("runs/broken/manifest.json", "sweeps/broken/sweep.json"):
        (tmp_path / broken).parent.mkdir()
        (tmp_path / broken).write_text("{}")
    return tmp_path


@contextmanager
def app(folder: Path, *options: str) -> Iterator[Server]:
    """`mars-viz app` on folders below this one."""
    settings = {"MARS_VIZ_RUNS": str(folder / "runs"), "MARS_VIZ_SWEEPS": str(folder / "sweeps")}
    command = ["-m", "mars_viz", "app", "--no-browser", *options, "--port"]
    with running(command, own_environment(settings) | {"PYTHONPATH": str(ROOT)}, folder=folder) as server:
        yield server


def shown(server: Server, **headers: str) -> dict[str, str]:
    """Return all that is sent of every page and of two runs."""

    async def visit() -> dict[str, str]:
        found = {}
        for page, query in [*((page, "") for page in PAGES), ("runs", "run=fox"), ("explore", "run=broken")]:
            async with opened(server.address, page, query, headers) as tab:
                found[f"{page}?{query}"] = "\n".join(str(each.proto) for each in tab._elements.values())
                assert not tab.errors
        return found

    with ThreadPoolExecutor(1) as elsewhere:  # Playwright's loop keeps the first thread of a process
        return elsewhere.submit(asyncio.run, visit()).result()


def test_only_this_machine_is_shown_where_results_are_kept(folder: Path) -> None:
    with app(folder) as server:
        own, others = shown(server), shown(server, **{"x-forwarded-for": "10.0.0.7"})
        assert PATHS not in server.said()
    assert str(folder / "runs") in own["runs?"].replace("\\", "")  # Markdown is escaped
    assert str(folder / "sweeps") in own["tune?"]
    assert [page for page, text in others.items() if str(folder) in text or str(ROOT) in text] == []
    assert "broken cannot be opened" in others["explore?run=broken"]


@pytest.mark.long
def test_a_server_for_others_warns_at_its_start_that_they_name_no_paths(folder: Path) -> None:
    with app(folder, "--address", "0.0.0.0") as server:
        found = shown(server)
        assert "may name no folders of this machine" in server.said()
    assert [page for page, text in found.items() if str(folder) in text] == []
