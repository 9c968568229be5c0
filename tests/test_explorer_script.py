"""The browser's part of the explorer: its files make up one script, and each stays small."""

from __future__ import annotations

import re
from collections import Counter
from importlib.resources import files

from mars_viz.components.explorer.script import MODULES, script

FOLDER = files("mars_viz.components.explorer")
DECLARED = re.compile(r"^(?:export )?(?:default )?(?:function|class|const|let) (\w+)", re.MULTILINE)


def text_of(name: str) -> str:
    return (FOLDER / f"{name}.js").read_text("utf-8")


def test_every_file_is_joined_once_and_whole():
    assert sorted(f"{name}.js" for name in MODULES) == sorted(
        found.name for found in FOLDER.iterdir() if found.name.endswith(".js")
    )
    joined = script()
    assert all(joined.count(text_of(name)) == 1 for name in MODULES)
    assert len(joined) == sum(len(text_of(name)) + 1 for name in MODULES) - 1


def test_one_scope_has_every_name_once_and_one_way_in():
    declared = Counter(DECLARED.findall(script()))
    assert {"readRun", "decide", "Reading", "Stream", "Dial", "Inspector"} <= declared.keys()
    assert [name for name, times in declared.items() if times > 1] == []
    assert script().count("export default") == 1
    assert "export default" in text_of(MODULES[-1])
    assert not re.search(r"^import |\brequire\(", script(), re.MULTILINE)


def test_files_stay_small_and_say_what_they_know():
    for name in MODULES:
        text = text_of(name)
        assert text.startswith("// "), name
        assert text.endswith("\n"), "or the next file would begin on its last line"
        assert len(text.splitlines()) <= 280, f"{name} has become more than one noun"
