"""The scripts and styles of a site, shared by its pages.

Browsers do not load modules from file URLs, so each module of the app is wrapped in a function and loaded as a plain
script.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator
from importlib.resources import files

from mars_viz.components import compare, lesson, stepper
from mars_viz.components.mount import Element, joined
from mars_viz.report.scripts import PLOTLY, run_view_script, text_of
from mars_viz.site.shell import SiteFile

_EXPORTED = re.compile(r"^export (?:default )?(?=(?:async )?(?:function|const|let|class)\b)", re.MULTILINE)


def classic(script: str) -> str:
    """Wrap a module without imports as a plain script, dropping its exports."""
    return f'(() => {{\n"use strict";\n{_EXPORTED.sub("", script)}\n}})();\n'


def bundles() -> Iterator[SiteFile]:
    """Yield all scripts and style sheets."""
    page = text_of("unpacking.js"), text_of("place.js"), _ours("address.js")
    read = joined(["explorer/run"]), *page
    figures = text_of("pace.js"), text_of("figures.js")
    yield _script("loader", _ours("loader.js"))
    yield _script("explorer", classic("\n".join([run_view_script(), page[-1], _ours("run_page.js")])))
    yield _script("compare", _of_element(compare.ELEMENT, *page, _ours("compare_page.js")))
    yield _script("lesson", _of_element(lesson.ELEMENT, *read, *figures, _ours("lesson_page.js")))
    yield _script("stepper", _of_element(stepper.ELEMENT, *read, _ours("stepper_page.js")))
    yield _script("plotly", gzip.decompress(PLOTLY.read_bytes()).decode())
    yield SiteFile("assets/site.css", f"{text_of('report.css')}\n{_ours('site.css')}".encode())


def _of_element(element: Element, *after: str) -> str:
    return classic("\n".join([f"const elementStyle = {json.dumps(element.style)};", element.script, *after]))


def _script(name: str, text: str) -> SiteFile:
    return SiteFile(f"assets/{name}.js", text.encode())


def _ours(name: str) -> str:
    return (files(__package__) / name).read_text("utf-8")
