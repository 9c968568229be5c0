"""How the teaching page looks: its style, a lesson's words, and teacher mode. All text that is not ours is escaped."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlencode

import streamlit as st

from mars_viz.escapes import Html, html, markdown
from mars_viz.figures.style import UNBROKEN
from mars_viz.ui import theme
from mars_viz.ui.lessons.base import Lesson

_STYLE = """
.mv-lesson h2 { font-size: 1.35rem; font-weight: 650; padding: 0; margin: 0 0 .2rem; }
.mv-lesson p { font-size: 1.12rem; line-height: 1.5; margin: 0; max-width: 62rem; }
.mv-lesson p.run { font-size: .9rem; opacity: .75; overflow-wrap: anywhere; }
@media (min-width: 1001px) { .mv-lesson p.run { display: none; } } /* it stands beside the page's title */
.mv-caption { font-size: 1rem; font-weight: 600; line-height: 1.4; padding: 0; margin: 0; text-wrap: pretty; }
.mv-big { font-size: 1.12rem; line-height: 1.5; margin: 0; font-variant-numeric: tabular-nums; }
"""
_TEACHER = """
@media (min-width: 1000px) { :root { font-size: 21px; } }
.stAppHeader { display: none; }
.stMainBlockContainer { padding-top: 1.2rem; }
.mv-head { position: absolute; clip-path: inset(50%); }
.st-key-place { display: none; } /* a control; the choice stays */
.mv-lesson p { font-size: 1.02rem; }
.mv-lesson p.run { display: block; }
"""


def style(*, large: bool) -> None:
    """The page's own style, beside that of `theme.title`."""
    theme.show(Html(f"<style>{_STYLE}{_TEACHER if large else ''}</style>"))


def heading(number: int, lesson: Lesson, told: str) -> None:
    """A lesson's title and its point, and on which run it is shown, where the page's own title has no room for that."""
    on = Html(f'<p class="run"><bdi>{html(told)}</bdi></p>' if told else "")
    point = lesson.point.replace(" > ", "\u00a0>\u00a0")
    theme.show(
        Html(f'<div class="mv-lesson"><h2>{number:d} · {html(lesson.title)}</h2><p>{html(point)}</p>{html(on)}</div>')
    )


def finding(sentence: str) -> None:
    """A sentence with numbers, large enough to be read aloud."""
    theme.show(Html(f'<p class="mv-big" role="status">{html(sentence)}</p>'))


def caption(finding: str) -> None:
    """A figure's title: it wraps where the page does."""
    unbroken = finding.replace(" = ", UNBROKEN).replace(" %", "\u00a0%")
    theme.show(Html(f'<h3 class="mv-caption">{html(unbroken)}</h3>'))


def question(lesson: Lesson, key: str) -> None:
    """The question, with its answer folded."""
    with st.expander(f"**{markdown(lesson.question)}**", key=key):
        st.markdown(lesson.answer)


def link(address: str | None, parameters: Mapping[str, str]) -> str:
    """The page's address with these parameters."""
    return f"{(address or '').split('?')[0]}?{urlencode(parameters)}"
