"""Combine a run with its dial map, consistently."""

from __future__ import annotations

from dataclasses import replace

from mars_viz.dialmap import DialMap
from mars_viz.errors import EvidenceError
from mars_viz.replay import answers_of, answers_through, shortened
from mars_viz.run import Run
from mars_viz.walk import Answer, Prefix


def mapped(run: Run, dial_map: DialMap) -> Run:
    """Return the run with this map of its rule's dial or of a controller's threshold, replacing earlier maps.

    At prefixes of the run, the map takes the run's answers, so that both agree at the run's dial value. Other answers
    are shortened to the length that its walks need. Raises BadInput for a map made with other settings.
    """
    ours, theirs = run.settings, dial_map.frame.settings
    if not dial_map.span.over:
        ours, theirs = replace(ours, dial=None), replace(theirs, dial=None)
    if (run.prompt_ids, ours) != (dial_map.frame.prompt_ids, theirs):
        raise EvidenceError(
            "The map is not one of this run: prompt or settings differ. Map the run's own prompt and settings."
        )
    run = replace(run.unmapped, pieces={**dial_map.frame.pieces, **run.pieces})
    dial_map = replace(dial_map, frame=run.without_rounds, answers=_shortened_answers(dial_map) | answers_of(run))
    return replace(run, controller_map=dial_map) if dial_map.span.over else replace(run, dial_map=dial_map)


def checked_gamma(run: Run, gamma: int | None) -> int:
    """Return the block length to show, by default the run's own. Raises BadInput if neither run nor map contains it."""
    run_gamma, dial_map = run.settings.gamma, run.dial_map
    if gamma is None or gamma == run_gamma or (dial_map is not None and gamma in dial_map.span.gammas):
        return run_gamma if gamma is None else gamma
    raise EvidenceError(
        f"{run.settings.draft_of(gamma)} is not on the run's map; leave it out, or map the run with --gammas."
    )


def shown(run: Run, dial: float | None, gamma: int) -> tuple[Run, float | None]:
    """Return the exact run at this setting if the map contains it to its end, otherwise a run to judge at the dial
    value.

    The latter is the recorded run, or at another block length the map's segment at the recorded dial value. Both carry
    the map, so that comparisons with the strict end find strict's own text.
    """
    dial_map, settings = run.dial_map, run.settings
    if dial_map is None or dial is None or gamma not in dial_map.span.gammas:
        return run, dial
    if dial_map.span.low <= dial <= dial_map.span.high and dial_map.segment(dial, gamma).complete:
        return replace(dial_map.at(dial, gamma), dial_map=dial_map), dial
    if gamma == settings.gamma or settings.dial is None:
        return run, dial
    return replace(
        run, settings=replace(settings, gamma=gamma), rounds=dial_map.segment(settings.dial, gamma).rounds
    ), dial


def whole_controller_map(run: Run) -> DialMap | None:
    """Return the run's controller map if it is complete and includes full-length drafts, otherwise None."""
    controller_map = run.controller_map
    controller = None if controller_map is None else controller_map.span.controller
    if (
        controller_map is None
        or controller is None
        or not controller_map.span.low <= controller.longest <= controller_map.span.high
    ):
        return None
    return controller_map if controller_map.complete else None


def known_answers(run: Run) -> dict[Prefix, Answer]:
    """Return the answers that run and map contain for blocks of the run's length.

    Answers of shorter blocks are excluded, because walks with the run's settings must not use them.
    """
    answers = answers_of(run)
    dial_map, gamma = run.dial_map, run.settings.gamma
    if dial_map is not None and gamma in dial_map.span.gammas:
        for segment in dial_map.segments_for(gamma):
            answers |= answers_through(run.prompt_ids, segment.rounds)
    if run.controller_map is not None and run.controller_map.span.gammas == (gamma,):
        answers = {**run.controller_map.answers, **answers}
    return answers


def _shortened_answers(dial_map: DialMap) -> dict[Prefix, Answer]:
    """Return the map's answers, shortened to the longest block that its walks use at each prefix."""
    lengths: dict[Prefix, int] = {}
    for gamma in dial_map.span.gammas:
        for segment in dial_map.segments_for(gamma):
            prefix = dial_map.frame.prompt_ids
            for round_ in segment.rounds:
                lengths[prefix] = max(lengths.get(prefix, 0), gamma)
                prefix += round_.token_ids
    answers = dial_map.answers
    return {
        prefix: replace(answers[prefix], speculation=shortened(answers[prefix].speculation, length))
        for prefix, length in lengths.items()
    }
