"""A race's end board as numbers, for files. Knows races and data frames; the board's words are the page's."""

from __future__ import annotations

import pandas as pd

from mars_viz.race.records import Lane, Race


def race_frame(race: Race) -> pd.DataFrame:
    """A row a lane: seconds and tokens a second measured, once, on the race's device; the counts exact."""
    seconds, texts, pace = race.seconds, race.token_ids, race.pace
    runs = {Lane.STRICT: race.strict, Lane.RELAXED: race.relaxed}
    rows = []
    for lane in Lane:
        run = runs.get(lane)
        passes = len(texts[lane]) if run is None else len(run.rounds)
        rows.append(
            {
                "lane": lane.value,
                "rule": "" if run is None else run.settings.rule,
                "dial": None if run is None else run.settings.dial,
                "seconds_measured": seconds[lane],
                "tokens_per_second_measured": pace[lane],
                "over_autoregressive_measured": pace[lane] / pace[Lane.ALONE],
                "tokens": len(texts[lane]),
                "target_passes": passes,
                "tau": len(texts[lane]) / passes,
                "rolled_back": 0 if run is None else sum(round_.rolled_back for round_ in run.rounds),
                "same_text": texts[lane] == texts[Lane.ALONE],
            }
        )
    return pd.DataFrame(rows)
