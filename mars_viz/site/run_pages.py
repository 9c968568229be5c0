"""The page of a run: the explorer with its dial, figures that follow it, and citations.

The run's data at its own draft length is one script. Other draft lengths, and windows of evidence of a long run, load
on demand.
"""

from __future__ import annotations

from collections.abc import Iterator

from mars_viz.components.explorer.packing import identified
from mars_viz.components.explorer.payload import WINDOW, Payload, payload_of, window
from mars_viz.components.explorer.round_index import cut_index, round_index
from mars_viz.escapes import Html, html
from mars_viz.report.citations import bibtex
from mars_viz.report.facts import heading, run_facts
from mars_viz.report.page import file_stem
from mars_viz.report.prerendered_figures import prerendered_figures
from mars_viz.report.sending import sent
from mars_viz.rules import rule_named
from mars_viz.run import Run
from mars_viz.run_with_map import whole_controller_map
from mars_viz.site.named import SiteRun
from mars_viz.site.shell import FAILED, NEEDS_SCRIPTS, SiteFile, SitePage, data_file
from mars_viz.site.steps import STEPPER, steps_file, steps_place

WHOLE = 5_000  # most slots of a run sent with all its evidence, about a megabyte
MOST_STEPS = 10
"""Number of dial values at which figures are prerendered, in addition to each segment; they show outside the map."""


def run_files(one: SiteRun) -> Iterator[SiteFile]:
    """Yield the data scripts of a run."""
    run_gamma = one.run.settings.gamma
    yield steps_file(one.name, one.run)
    for gamma in (*draft_lengths(one.run), *((None,) if whole_controller_map(one.run) else ())):
        payload, more = sent_at(one, gamma)
        yield data_file(_part(one, gamma), sent(payload))
        yield from more
        if gamma == run_gamma:
            drawn = prerendered_figures(one.run, run_gamma, payload["rows"], MOST_STEPS)
            yield data_file(f"{one.name}.figures", sent(drawn))


def draft_lengths(run: Run) -> tuple[int, ...]:
    """Return the draft lengths to choose from, including the run's own."""
    mapped = () if run.dial_map is None else run.dial_map.span.gammas
    return tuple(sorted({run.settings.gamma, *mapped}))


def _part(one: SiteRun, gamma: int | None) -> str:
    """Return the name of a run's data at a draft length, or over a controller's threshold for None."""
    return f"{one.name}.cuts" if gamma is None else f"{one.name}.g{gamma}"


def sent_at(one: SiteRun, gamma: int | None) -> tuple[Payload, Iterator[SiteFile]]:
    """Return the payload at a draft length (None: over the controller's threshold) and the windows of evidence."""
    index = cut_index(one.run) if gamma is None else round_index(one.run, gamma)
    long = index.slots > WHOLE
    windows = range(-(-len(index.rounds) // WINDOW) if long else 0)
    more = (
        data_file(f"{_part(one, gamma)}.w{number}", sent(window(one.run, gamma, index, number))) for number in windows
    )
    payload = payload_of(one.run, gamma, index, evidence=not long)
    if long and one.run.settings.drafts_trees:  # Compare shows trees without windows of evidence
        payload["nodes"] |= {"q": index.rounds.speculations.whole.q}
    return identified(payload), more


def explorer_place(one: SiteRun, *, look: str = "", overlay: str = "") -> Html:
    """Return the element that the explorer's script fills."""
    lengths = " ".join(map(str, draft_lengths(one.run)))
    return Html(
        f'<div id="explorer" aria-busy="true" data-run="{html(one.name)}" data-gamma="{one.run.settings.gamma:d}" '
        f'data-lengths="{html(lengths)}" data-stem="{html(file_stem(one.run))}" data-look="{html(look)}" '
        f'data-overlay="{html(overlay)}"><p class="quiet">Loading the run …</p></div>\n'
    )


def run_scripts(one: SiteRun) -> tuple[str, ...]:
    """Return the scripts of a page with the explorer."""
    return f"data/{one.name}.g{one.run.settings.gamma}", "assets/explorer"


def dial_choice(run: Run) -> Html:
    """Return buttons to choose between the rule's dial and a controller's threshold, if there are both."""
    controller_map, dial = whole_controller_map(run), rule_named(run.settings.rule).dial
    if controller_map is None or controller_map.span.controller is None:
        return Html()
    rule = "the rule" if dial is None else f"{dial.symbol} of the rule"
    other = f"{controller_map.dial.symbol} of the controller {controller_map.span.controller.title}"
    return Html(
        '<p class="dials" role="group" aria-label="The dial to turn">'
        f'<button type="button" data-cuts="" aria-pressed="true">Turn {html(rule)}</button>'
        f'<button type="button" data-cuts="1" aria-pressed="false">Turn {html(other)}</button></p>\n'
    )


_FIGURES = Html(
    '<p class="quiet" id="undrawn" hidden>The figures are of the rule\'s dial, at the draft length that the run was '
    "decoded with. Choose both above to see them.</p>\n"
    '<section id="drawn"><h2>Figures</h2>\n<p class="quiet" id="basis"></p>\n<div id="figures"></div>\n'
    '<section id="maps" hidden><h2>All settings by <span id="quantities"></span></h2>'
    '<div class="figure" id="heat_map"></div></section>\n</section>\n'
)


def run_page(one: SiteRun) -> SitePage:
    """Return a run's page."""
    run, title = one.run, heading(one.run)
    main = Html(
        f"<header><h1><bdi>{html(title)}</bdi></h1>\n{html(run_facts(run, run.settings.gamma))}</header>\n"
        f"<main>\n{html(FAILED)}{html(NEEDS_SCRIPTS)}"
        f'<p class="note" id="complaint" role="status" hidden></p>\n{html(dial_choice(run))}{html(explorer_place(one))}'
        '<p class="whole"><a id="whole" target="_blank" rel="noopener">Open the whole page</a></p>\n'
        f'<p class="onward"><a href="../compare.html#reference={html(one.name)}">Compare with another run</a></p>\n'
        f"{html(steps_place(one.name))}{html(_FIGURES)}"
        '<details class="embed"><summary>Embed this view</summary><p class="quiet">For a course page: it opens as it '
        'stands here.</p><pre id="snippet"></pre></details>\n'
        f"<details><summary>To cite</summary><pre>{html(bibtex(run.settings.rule))}</pre></details>\n</main>\n"
    )
    return SitePage(f"runs/{one.name}.html", title, main, (*run_scripts(one), STEPPER))
