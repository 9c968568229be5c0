"""The page of a site that compares any two runs, and the data of each run's pairs.

Alignments are precomputed here. The runs are loaded from their own pages' data, so the data of a pair is small.
"""

from __future__ import annotations

from collections.abc import Sequence

from mars_viz.analysis.alignment import align_runs
from mars_viz.analysis.differences import differences
from mars_viz.components.compare import Pane, Payload, StripLane, lane_payload, pair_payload
from mars_viz.escapes import Html, html, joined, visible
from mars_viz.report.page import heading, sent
from mars_viz.site.shell import FAILED, NEEDS_SCRIPTS, SiteFile, SitePage, SiteRun, data_file
from mars_viz.ui.compare import compare_words
from mars_viz.ui.compare.page_state import Across, Candidate, Choice, right_answer
from mars_viz.ui.library import told_apart

_HEAD = Html("<header><h1>Compare</h1><p>Where do two texts diverge, and what is that worth?</p></header>\n")
HELD = ("reference", "shown")  # parameters of a link for the two runs, as in the app


def compared(runs: Sequence[SiteRun]) -> tuple[Candidate, ...]:
    """Return the runs as candidates of the app's Compare page."""
    labels = told_apart({site_run.name: heading(site_run.run) for site_run in runs})
    return tuple(
        Candidate(Choice(one.name), one.run, one.run.unmapped, labels[one.name], right_answer(one.run)) for one in runs
    )


def pairs_file(reference: Candidate, candidates: Sequence[Candidate]) -> SiteFile:
    """Return the alignments of a run, as the reference, with every other run."""
    others = [candidate for candidate in candidates if candidate is not reference]
    names = compare_words.lane_names(reference, others[0], (reference, *others))
    lanes = []
    for candidate, name in zip((reference, *others), names, strict=True):
        right = align_runs(reference.run, candidate.run).right
        lanes.append(lane_payload(StripLane(candidate.choice.key, name, candidate.run, right, candidate.right)))
    pairs = {candidate.choice.key: _pair(reference, candidate) for candidate in others}
    return data_file(f"{reference.choice.run}.pairs", sent({"lanes": lanes, "pairs": pairs}))


def _pair(left: Candidate, right: Candidate) -> Payload:
    rows = [
        {
            "name": row.name,
            "meaning": row.meaning,
            "left": compare_words.written(row.left, row.scale),
            "right": compare_words.written(row.right, row.scale),
            "change": compare_words.change(row),
            "stands": row.stands.value,
            "means": compare_words.MEANING[row.stands.value],
        }
        for row in differences(left.run, right.run, timed=left.recorded and right.recorded)
    ]
    alignment, names = align_runs(left.run, right.run), compare_words.named(left, right)
    panes = []
    for candidate, name in ((left, names.left), (right, names.right)):
        detail = visible(compare_words.detail(candidate, ruled=names.ruled))
        panes.append(Pane(candidate.choice.key, visible(name), detail, candidate.run))
    return {
        **pair_payload(panes[0], panes[1], alignment, (None, None)),
        "sentence": visible(compare_words.finding(left, right, alignment, names, Across.RUNS)),
        "rows": rows,
        "beside": compare_words.short_names(names),
        "footnote": visible(compare_words.footnote(left, right)),
    }


def compare_page(candidates: Sequence[Candidate]) -> SitePage:
    """Return the page; with a single run, it only has a note."""
    if len(candidates) < 2:
        line = Html('<p class="note">This site holds one run alone, and nothing to compare it with.</p>')
        return SitePage("compare.html", "Compare", Html(f"{html(_HEAD)}<main>{html(line)}</main>\n"))
    options = joined(
        Html(f'<option value="{html(candidate.choice.run)}">{html(candidate.label)}</option>')
        for candidate in candidates
    )
    pickers = (
        Html(f'<label>{html(words)} <select id="{html(name)}">{html(options)}</select></label> ')
        for name, words in zip(HELD, ("Reference", "Beside it"), strict=True)
    )
    lengths = " ".join(str(candidate.run.settings.gamma) for candidate in candidates)
    names = " ".join(candidate.choice.run for candidate in candidates)
    main = Html(
        f"{html(_HEAD)}<main>\n{html(FAILED)}{html(NEEDS_SCRIPTS)}"
        f'<p class="pick">{joined(pickers)}</p>\n<p class="finding" id="finding" role="status"></p>\n'
        f'<div id="compare" aria-busy="true" data-names="{html(names)}" data-lengths="{html(lengths)}">'
        '<p class="quiet">Loading both runs …</p></div>\n'
        '<div class="scroll"><table id="numbers" aria-label="Both texts in numbers"></table></div>\n'
        '<p class="quiet" id="footnote"></p>\n</main>\n'
    )
    return SitePage("compare.html", "Compare", main, ("assets/compare",))
