"""Scripts and styles of the browser elements."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from mars_viz.components import class_view, compare, explorer, guide, lesson, race, stepper
from mars_viz.components.mount import FIRST_PAINT, Element, joined
from mars_viz.ui.navigation import PAGE

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "mars_viz" / "components"
DECLARED = re.compile(r"^(?:export )?(?:default )?(?:async )?(?:function|class|const|let) (\w+)", re.MULTILINE)
ELEMENTS = [
    *(module.ELEMENT for module in (class_view, compare, explorer, guide, lesson, race, stepper)),
    compare.TEXTS,
    FIRST_PAINT,
    PAGE,
]
NAMED = pytest.mark.parametrize("element", ELEMENTS, ids=[element.name for element in ELEMENTS])


@NAMED
def test_files_are_joined_once_and_whole(element: Element) -> None:
    assert len(set(element.scripts)) == len(element.scripts)
    text = [(FOLDER / f"{name}.js").read_text("utf-8") for name in element.scripts]
    assert element.script == "\n".join(text)
    assert element.style.endswith(joined(element.styles, "css"))


@NAMED
def test_one_scope_has_every_name_once_and_one_way_in(element: Element) -> None:
    assert [name for name, times in Counter(DECLARED.findall(element.script)).items() if times > 1] == []
    assert element.script.count("export default") == 1 and "export default" in joined(element.scripts[-1:])
    assert not re.search(r"^import |\brequire\(", element.script, re.MULTILINE)


@pytest.mark.parametrize("ending", ["js", "css"])
def test_every_file_is_some_elements_and_says_what_it_knows(ending: str) -> None:
    known = {name for element in ELEMENTS for name in (element.scripts if ending == "js" else element.styles)}
    assert {path.relative_to(FOLDER).with_suffix("").as_posix() for path in FOLDER.rglob(f"*.{ending}")} == known
    for name in known:
        text = (FOLDER / f"{name}.{ending}").read_text("utf-8")
        assert text.startswith("// " if ending == "js" else "/* "), name
        assert text.endswith("\n"), "or the next file would begin on its last line"
        assert ending == "css" or len(text.splitlines()) <= 500, name


def test_elements_are_mounted_in_one_place() -> None:
    mounting = [path for path in ROOT.glob("mars_viz/**/*.py") if "components.v2" in path.read_text("utf-8")]
    assert [path.name for path in mounting] == ["mount.py"]
    assert len({element.name for element in ELEMENTS}) == len(ELEMENTS)
