"""A run together with its dial map. Knows both, and that they say the same of what both hold; knows no files."""

from __future__ import annotations

from dataclasses import replace

from mars_viz.dialmap import DialMap, Prefix
from mars_viz.errors import EvidenceError
from mars_viz.replay import answers_of, answers_through, shortened
from mars_viz.run import Run
from mars_viz.walk import Answer


def mapped(run: Run, dial_map: DialMap) -> Run:
    """The run, carrying this map of its prompt and no other: of the rule's dial or of a controller's threshold. Raises
    BadInput for a map that was made with other settings.

    At a prefix of the run the map gets the answer that the run was given, so that the run is what the map says of its
    dial value; elsewhere it keeps as much of each answer as its walks look at.
    """
    ours, theirs = run.settings, dial_map.frame.settings
    if not dial_map.span.over:
        ours, theirs = replace(ours, dial=None), replace(theirs, dial=None)
    if (run.prompt_ids, ours) != (dial_map.frame.prompt_ids, theirs):
        raise EvidenceError(
            "The map is not one of this run: prompt or settings differ. Map the run's own prompt and settings."
        )
    run = replace(run.unmapped, pieces={**dial_map.frame.pieces, **run.pieces})
    dial_map = replace(dial_map, frame=run.without_rounds, answers=_looked_at(dial_map) | answers_of(run))
    return replace(run, controller_map=dial_map) if dial_map.span.over else replace(run, dial_map=dial_map)


def checked_gamma(run: Run, gamma: int | None) -> int:
    """The block length to show: None takes the run's own. Raises BadInput for one that neither run nor map holds."""
    own, made = run.settings.gamma, run.dial_map
    if gamma is None or gamma == own or (made is not None and gamma in made.span.gammas):
        return own if gamma is None else gamma
    raise EvidenceError(
        f"{run.settings.draft_of(gamma)} is not on the run's map; leave it out, or map the run with --gammas."
    )


def shown(run: Run, dial: float | None, gamma: int) -> tuple[Run, float | None]:
    """The run that this setting really makes, where the map knows it to its end, else the one to be judged: the
    recorded one, or at another block length what the map knows of that one's dial.

    Each carries the map, so that what compares it with the strict end finds the strict end's own text there.
    """
    made, own = run.dial_map, run.settings
    if made is None or dial is None or gamma not in made.span.gammas:
        return run, dial
    if made.span.low <= dial <= made.span.high and made.segment(dial, gamma).complete:
        return replace(made.at(dial, gamma), dial_map=made), dial
    if gamma == own.gamma or own.dial is None:
        return run, dial
    return replace(run, settings=replace(own, gamma=gamma), rounds=made.segment(own.dial, gamma).rounds), dial


def whole_controller_map(run: Run) -> DialMap | None:
    """The run's map of a controller's threshold, where it knows every text of its span to the end and reaches to where
    drafts have full length, which others are compared with; else None."""
    made = run.controller_map
    controller = None if made is None else made.span.controller
    if made is None or controller is None or not made.span.low <= controller.longest <= made.span.high:
        return None
    return made if made.complete else None


def known_answers(run: Run) -> dict[Prefix, Answer]:
    """What is known of the prefixes that the run and its map lead to, where blocks as long as the run's were drafted.

    A map of shorter blocks too holds shorter answers elsewhere; a walk of the run's settings must not go by those.
    """
    known = answers_of(run)
    made, gamma = run.dial_map, run.settings.gamma
    if made is not None and gamma in made.span.gammas:
        for segment in made.segments_for(gamma):
            known |= answers_through(run.prompt_ids, segment.rounds)
    if run.controller_map is not None and run.controller_map.span.gammas == (gamma,):
        known = {**run.controller_map.answers, **known}
    return known


def _looked_at(dial_map: DialMap) -> dict[Prefix, Answer]:
    """The map's answers, each as short as the longest block that a walk looks at there."""
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
