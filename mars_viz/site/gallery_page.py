"""The start page of a site, with a card for each run and lesson."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from mars_viz.escapes import Html, html, joined
from mars_viz.report.facts import heading
from mars_viz.runlist import RunFacts
from mars_viz.site.named import SiteRun
from mars_viz.site.shell import SitePage
from mars_viz.ui.gallery import HERO, Card, run_card

STORY = (
    "That is speculative decoding. It saves passes of the large model, and how strictly drafts are verified is a "
    "setting. Move one dial and see which tokens change, which drafts are rolled back, and what that saves."
)
KEY = "◆ kept only because the rule is relaxed, × rejected, ↺ correction by the large model, + bonus token"


def gallery_page(runs: Iterable[SiteRun], lessons: Iterable[Card]) -> SitePage:
    """Return the page. Lesson cards are named by number."""
    runs = tuple(runs)
    of_runs = (
        (
            f"runs/{site_run.name}.html",
            run_card(site_run.name, heading(site_run.run), site_run.run, RunFacts.of(site_run.run).line),
        )
        for site_run in runs
    )
    of_lessons = tuple((f"lessons/{card.name}.html", card) for card in lessons)
    taught = Html()
    if of_lessons:
        taught = Html(f'<section id="lessons"><h2>Lessons</h2>\n{html(_cards(of_lessons))}</section>\n')
    both = Html('<p class="onward"><a href="compare.html">Compare two runs</a></p>\n' if len(runs) > 1 else "")
    main = Html(
        f'<header class="hero"><h1>{html(HERO)}</h1><p>{html(STORY)}</p></header>\n<main>\n'
        f'<section id="runs"><h2>Runs</h2>\n{html(_cards(of_runs))}<p class="quiet">{html(KEY)}</p>{html(both)}'
        f"</section>\n{html(taught)}</main>\n"
    )
    return SitePage("index.html", "MARS Viz", main)


def _cards(cards: Iterable[tuple[str, Card]]) -> Html:
    return Html(f'<ul class="cards">{joined(_items(cards))}</ul>\n')


def _items(cards: Iterable[tuple[str, Card]]) -> Iterator[Html]:
    for to, card in cards:
        label = f"{card.title}: {card.line}"  # an <article> does not name the link around it
        yield Html(f'<li><a href="{html(to)}" aria-label="{html(label)}">{html(card.html)}</a></li>\n')
