"""What the tests of pages read from a tab, and press in it."""

from __future__ import annotations

import time
from typing import Any

from streamlit.testing.v1 import AppTest

from tests.tabs import PATIENCE, captions, settled


def notes(tab: AppTest) -> str:
    """All HTML of the page."""
    return " ".join(html.body for html in tab.html)


def said(tab: AppTest) -> str:
    """All HTML and Markdown of the page, its captions, and the words of its progress."""
    progress = [found.proto.text for found in tab.get("progress")]
    return " ".join([notes(tab), *(part.value for part in tab.markdown), captions(tab), *progress])


def address(tab: AppTest) -> dict[str, str]:
    return {name: "".join(value) for name, value in tab.query_params.items()}


def labels(tab: AppTest) -> list[str]:
    return [found.label for found in tab.button]


def keys(tab: AppTest) -> set[str]:
    """The keys of buttons and fields."""
    fields = (*tab.button, *tab.number_input, *tab.text_input, *tab.selectbox, *tab.segmented_control)
    return {each.key for each in fields if each.key}


def button(tab: AppTest, label: str) -> Any:
    return next(found for found in tab.button if found.label.startswith(label))


def press(tab: AppTest, label: str) -> AppTest:
    return settled(button(tab, label).click().run())


def wait(tab: AppTest, gone: str = "Cancel") -> AppTest:
    """Rerun, as the page does by itself in a browser, until this button has gone."""
    end = time.monotonic() + PATIENCE
    while gone in labels(tab):
        assert time.monotonic() < end, "it never ended"
        time.sleep(0.02)
        settled(tab.run())
    return tab
