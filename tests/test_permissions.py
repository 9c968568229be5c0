"""Who may delete runs and name paths, by the server's environment; pages and jobs keep to it."""

from __future__ import annotations

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor
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
from tests.served import ROOT, own_environment, running

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


def test_only_this_machine_by_its_own_address_may_name_paths_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    for host in ("localhost", "127.0.0.1", "127.8.0.3", "::1", "[::1]", "a.localhost"):
        assert is_this_machine(host) and about_paths(host) == ""
    for host in ("", "0.0.0.0", "::", "10.0.0.1", "localhost.example", "example.org", "unix:/x"):
        assert not is_this_machine(host) and about_paths(host)
    for host in ("localhost:8501", "[::1]:8501", "127.0.0.1"):
        assert visitors._asks_itself({"Host": host})
    for headers in ({}, {"Host": "viz.example.org"}, {"Host": "[::1"}):
        assert not visitors._asks_itself(headers)
    for forwarded in ("X-Forwarded-For", "Forwarded", "X-Real-IP", "Via"):
        assert not visitors._asks_itself({"Host": "localhost:8501", forwarded: "x"})
    monkeypatch.setattr(visitors, "_asks_itself", lambda headers: True)
    for setting, address, may in (
        ("", "localhost", True),
        ("", "", False),
        ("", "0.0.0.0", False),
        ("local", "::1", True),
        ("everybody", "0.0.0.0", True),
        ("nobody", "localhost", False),
        ("anybody", "localhost", False),
    ):
        monkeypatch.setattr(visitors, "address", lambda address=address: address)
        if setting:
            monkeypatch.setenv(PATHS, setting)
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


def test_only_ids_are_taken_whether_or_not_a_file_of_the_name_exists(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(visitors, "may_name_paths", lambda: False)
    no_ids = ["/etc/passwd", "../x", "./x", "~/x", "a/b/c", "a//b", "a/..", "..", ".hidden", "org\\name", "C:x"]
    for name in (*no_ids, "org/name\n", ""):
        with pytest.raises(BadInput, match="id of a model on the hub"):
            check_id(name)
    for name in no_ids:
        with pytest.raises(BadInput, match="id of a model on the hub"):
            decode_form.named_models("org/name", name)
    monkeypatch.chdir(ROOT)
    for name in ("docs/rules", "mars_viz/demo", "tests", "none"):  # folders of the server
        with pytest.raises(BadInput) as found:
            load_backend(name, name, device="cpu", folders=False)
        words = str(found.value)
        assert f"The configuration of {name} cannot be loaded" in words and "holds no" not in words
    assert load_backend(device="cpu", folders=False).target.name == f"{demo.BUILT_IN}/target"


def test_models_are_folders_only_for_visitors_who_may_name_paths(monkeypatch: pytest.MonkeyPatch) -> None:
    for may in (True, False):
        monkeypatch.setattr(visitors, "may_name_paths", lambda may=may: may)
        assert decode_form.named_models(" org/name", "name ") == BackendChoice("org/name", "name", folders=may)
        assert decode_form.named_models("", "") == BackendChoice()
        assert in_words(BackendChoice("/home/me/big", "org/b", folders=True)) == f"{'/home/me/' * may}big with org/b"


def test_only_this_machine_is_shown_where_results_are_kept(tmp_path: Path) -> None:
    save_run(replace(toy_run(), title="Fox"), tmp_path / "runs" / "fox")
    toy_sweep(tmp_path / "sweeps" / "one", 2).finish()
    for broken in ("runs/broken/manifest.json", "sweeps/broken/sweep.json"):
        (tmp_path / broken).parent.mkdir()
        (tmp_path / broken).write_text("{}")
    settings = {"MARS_VIZ_RUNS": str(tmp_path / "runs"), "MARS_VIZ_SWEEPS": str(tmp_path / "sweeps")}
    command = ["-m", "mars_viz", "app", "--no-browser", "--port"]

    async def shown(address: str, *pages: str, **headers: str) -> dict[str, str]:
        found = {}
        for link in pages:
            page, _, query = link.partition("?")
            async with opened(address, page, query, headers) as tab:
                found[link] = "\n".join(str(each.proto) for each in tab._elements.values())
                assert not tab.errors
        return found

    with (
        running(command, own_environment(settings) | {"PYTHONPATH": str(ROOT)}, folder=tmp_path) as server,
        ThreadPoolExecutor(1) as elsewhere,  # Playwright's loop keeps the first thread of a process
    ):
        own = elsewhere.submit(asyncio.run, shown(server.address, "runs", "tune")).result()
        asked = shown(server.address, *PAGES, "runs?run=fox", "explore?run=broken", **{"x-forwarded-for": "10.0.0.7"})
        others = elsewhere.submit(asyncio.run, asked).result()
    assert str(tmp_path / "runs") in own["runs"].replace("\\", "")  # Markdown is escaped
    assert str(tmp_path / "sweeps") in own["tune"]
    assert [page for page, text in others.items() if str(tmp_path) in text or str(ROOT) in text] == []
    assert "broken cannot be opened" in others["explore?run=broken"]
