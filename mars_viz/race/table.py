"""A race's end board as numbers, for files. Knows races and data frames; the board's words are the page's."""

from __future__ import annotations

import pandas as pd

from mars_viz.race.records import Race


def race_frame(race: Race) -> pd.DataFrame:
    """A row a lane: seconds and tokens a second measured, once, on the race's device; the counts exact."""
    rows = [
        {
            "lane": lane.value,
            "rule": "" if run is None else run.settings.rule,
            "dial": None if run is None else run.settings.dial,
            "seconds_measured": found.seconds,
            "tokens_per_second_measured": found.pace,
            "over_autoregressive_measured": found.over_alone,
            "tokens": found.tokens,
            "target_passes": found.passes,
            "tau": found.tau,
            "rolled_back": found.rolled_back,
            "same_text": found.as_alone,
        }
        for (lane, found), run in zip(race.figures.items(), race.runs.values(), strict=True)
    ]
    return pd.DataFrame(rows)
