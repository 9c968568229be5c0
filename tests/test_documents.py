"""Documents: the same blocks as Markdown, for a terminal and on a page; text cannot leave its cell."""

from __future__ import annotations

import json

from streamlit.testing.v1 import AppTest

from mars_viz.documents import Block, Code, Section, Sentence, Table, lines, markdown
from mars_viz.ui.documents import NARROW

BLOCKS: list[Block] = [
    Sentence("Twice *as* fast.", "measured"),
    Section("Costs <b>", [Table(["pass", "ms"], [["target | all", "12.5"], ["drafter", "1"]]), Code("mars-viz *")]),
]
WIDE = [Table([*"abcde"], [["x" * size, *"1234"]], f"of-{size}") for size in (NARROW, NARROW + 1)]

TWICE = Table(["number", "strict", "strict"], [["τ", "5", "-1"]], "twice", help={"number": "*All* of them"})


def test_markdown_escapes_all_but_code_and_lines_align() -> None:
    assert markdown(BLOCKS) == (
        "Twice \\*as\\* fast.\n\n## Costs \\<b\\>\n\n| pass | ms |\n| --- | --- |\n| target \\| all | 12.5 |\n"
        "| drafter | 1 |\n\n```\nmars-viz *\n```"
    )
    assert list(lines(BLOCKS)) == [
        *("Twice *as* fast.", "", "Costs <b>"),
        *("pass            ms", "target | all  12.5", "drafter          1", "mars-viz *"),
    ]


def test_a_page_draws_text_as_text() -> None:
    def page() -> None:
        from test_documents import BLOCKS, TWICE, WIDE

        from mars_viz.ui.documents import draw

        draw([*BLOCKS, *WIDE, TWICE])

    app = AppTest.from_function(page, default_timeout=60).run()
    assert not app.exception
    drawn = " ".join(each.proto.body for each in app.get("html"))
    assert "Twice *as* fast." in drawn and ">measured</span>" in drawn and "Costs &lt;b&gt;" in drawn
    assert ['"pinned": true' in each.proto.columns for each in app.dataframe] == [False, True, False, False]
    assert app.dataframe[0].value.to_numpy().tolist() == BLOCKS[1].blocks[0].rows and app.code[0].value == "mars-viz *"  # type: ignore[union-attr]
    columns = json.loads(app.dataframe[3].proto.columns)
    assert list(columns)[:3] == ["number", "strict", "strict\u200b"] and columns["strict"]["alignment"] == "right"
    assert columns["number"]["help"] == "\\*All\\* of them"
