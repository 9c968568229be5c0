"""The page of a run: the explorer with its dial, figures that follow it, and citations.

The run's data at its own draft length is one script. Other draft lengths, and windows of evidence of a long run, load
on demand.
"""

from __future__ import annotations

from collections.abc import Iterator

from mars_viz.components.explorer.payload import WINDOW, identified, payload_of, round_index, window
from mars_viz.components.stepper import playback, playback_payload
from mars_viz.dialmap import whole_threshold_map
from mars_viz.escapes import Html, html
from mars_viz.report.citations import bibtex
from mars_viz.report.page import file_stem, heading, run_facts, sent
from mars_viz.report.prerendered_figures import prerendered_figures
from mars_viz.rules import rule_named
from mars_viz.run import Run
from mars_viz.site.shell import FAILED, NEEDS_SCRIPTS, SiteFile, SitePage, SiteRun, data_file

WHOLE = 5_000  # most slots of a run sent with all its evidence, about a megabyte
MOST_STEPS = 10
"""Number of dial values at which figures are prerendered, in addition to each segment; they show outside the map."""

STEPPER = "assets/stepper"  # script of pages with the stepper


def run_files(one: SiteRun) -> Iterator[SiteFile]:
    """Yield the data scripts of a run: per draft length, and over a controller's threshold (None) if it is mapped."""
    run_gamma = one.run.settings.gamma
    yield steps_file(one.name, one.run)
    for gamma in (*draft_lengths(one.run), *((None,) if whole_threshold_map(one.run) else ())):
        part = f"{one.name}.cuts" if gamma is None else f"{one.name}.g{gamma}"
        index = round_index(one.run, gamma, cuts=gamma is None)
        long = index.slots > WHOLE
        payload = payload_of(one.run, gamma, index, evidence=not long)
        if long and one.run.settings.drafts_trees:  # Compare shows trees without windows of evidence
            payload["nodes"] |= {"q": index.rounds.speculations.whole.q}
        payload = identified(payload)
        yield data_file(part, sent(payload))
        for number in range(-(-len(index.rounds) // WINDOW) if long else 0):
            yield data_file(f"{part}.w{number}", sent(window(one.run, gamma, index, number)))
        if gamma == run_gamma:
            drawn = prerendered_figures(one.run, run_gamma, payload["rows"], MOST_STEPS)
            yield data_file(f"{one.name}.figures", sent(drawn))


def draft_lengths(run: Run) -> tuple[int, ...]:
    """Return the draft lengths to choose from, including the run's own."""
    mapped = () if run.dial_map is None else run.dial_map.span.gammas
    return tuple(sorted({run.settings.gamma, *mapped}))


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


def steps_file(name: str, run: Run) -> SiteFile:
    """Return the playback of a run as a data file."""
    return data_file(f"{name}.steps", sent(playback_payload(playback(run))))


def steps_place(name: str, own: bool = True) -> Html:
    """Return the collapsed stepper, for the run itself or for its strict text."""
    words = "Watch this run step by step" if own else "Watch the strict text step by step"
    return Html(
        f'<details id="steps"><summary>{html(words)}</summary>'
        f'<div id="stepper" aria-busy="true" data-name="{html(name)}">'
        '<p class="quiet">Loading the steps …</p></div></details>\n'
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
    threshold_map, dial, choice = whole_threshold_map(run), rule_named(run.settings.rule).dial, Html()
    if threshold_map is not None:
        rule = "the rule" if dial is None else f"{dial.symbol} of the rule"
        other = f"{threshold_map.axis.symbol} of the controller {threshold_map.axis.title}"
        choice = Html(
            '<p class="dials" role="group" aria-label="The dial to turn">'
            f'<button type="button" data-cuts="" aria-pressed="true">Turn {html(rule)}</button>'
            f'<button type="button" data-cuts="1" aria-pressed="false">Turn {html(other)}</button></p>\n'
        )
    main = Html(
        f"<header><h1><bdi>{html(title)}</bdi></h1>\n{html(run_facts(run, run.settings.gamma))}</header>\n"
        f"<main>\n{html(FAILED)}{html(NEEDS_SCRIPTS)}"
        f'<p class="note" id="complaint" role="status" hidden></p>\n{html(choice)}{html(explorer_place(one))}'
        '<p class="whole"><a id="whole" target="_blank" rel="noopener">Open the whole page</a></p>\n'
        f'<p class="onward"><a href="../compare.html#reference={html(one.name)}">Compare with another run</a></p>\n'
        f"{html(steps_place(one.name))}{html(_FIGURES)}"
        '<details class="embed"><summary>Embed this view</summary><p class="quiet">For a course page: it opens with '
        'the present setting.</p><pre id="snippet"></pre></details>\n'
        f"<details><summary>To cite</summary><pre>{html(bibtex(run.settings.rule))}</pre></details>\n</main>\n"
    )
    return SitePage(f"runs/{one.name}.html", title, main, (*run_scripts(one), STEPPER))
