"""A race's end board as numbers, for files. Knows races and data frames; the board's words are the page's."""

from __future__ import annotations

import pandas as pd

from mars_viz.race.records import Race


def race_frame(race: Race) -> pd.DataFrame:
    """A row a lane: seconds and tokens a second measured on the race's device, in so many turns; the counts exact. No
    speed-up where it cannot be."""
    known = not race.objection
    rows = [
        {
            "lane": lane.value,
            "rule": "" if run is None else run.settings.rule,
            "dial": None if run is None else run.settings.dial,
            "turns": len(race.taken[lane]),
            "seconds_measured": found.seconds,
            "seconds_least": found.least,
            "seconds_most": found.most,
            "tokens_per_second_measured": found.pace,
            "over_autoregressive_measured": found.over_alone.estimate if known else None,
            "over_autoregressive_low": found.over_alone.low if known else None,
            "over_autoregressive_high": found.over_alone.high if known else None,
            "tokens": found.tokens,
            "target_passes": found.passes,
            "tau": found.tau,
            "rolled_back": found.rolled_back,
            "same_text": found.as_alone,
        }
        for (lane, found), run in zip(race.figures.items(), race.runs.values(), strict=True)
    ]
    return pd.DataFrame(rows)
