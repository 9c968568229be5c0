"""Loops in a text: a phrase that is written again and again without a break."""

from collections.abc import Sequence

import numpy as np

LONGEST = 90  # tokens of a phrase
SHORTEST = 3  # tokens of a phrase; shorter ones, such as a table's border or digits, must come more often
TIMES, TOKENS = 3, 15  # repeats of a phrase, and tokens of all repeats together
MANY = 50  # repeats above which a shorter phrase counts, too


def loops(token_ids: Sequence[int]) -> bool:
    """Return True if a phrase of 3 to 90 tokens is repeated at least three times in a row, over at least 15 tokens, or
    a shorter one more than 50 times.

    Three adjacent repeats over 15 tokens are the criterion of the study of relaxed verification by
    chiatzenw-cur/lossy-spec-decode-repetition (REPETITION_FINDINGS.md), in which a judge confirmed 98 to 99 % of 698
    such places as degenerate; repeats that are not adjacent, as in lists and refrains, were wrong in 75 %. The limits
    for short and long phrases are those of Holtzman et al. 2020 (The Curious Case of Neural Text Degeneration), in
    metrics/repetition.py of ari-holtzman/degen. The last repeat may be incomplete, since a limit can cut it off.
    """
    text = np.asarray(token_ids)
    for period in range(1, min(LONGEST, len(text) // TIMES) + 1):
        same = np.concatenate([[False], text[period:] == text[:-period], [False]])
        changes = np.flatnonzero(same[1:] != same[:-1])
        for begin, end in changes.reshape(-1, 2).tolist():  # from `begin` to `end + period` the text has this period
            span = end - begin + period
            if period < SHORTEST:
                if span > MANY * period:
                    return True
            elif span >= max(TIMES * period, TOKENS) and not _short(text[begin : begin + span]):
                return True
    return False


def _short(part: np.ndarray) -> bool:
    """Return True if this part of a text repeats a phrase of fewer than `SHORTEST` tokens."""
    return any(np.array_equal(part[period:], part[:-period]) for period in range(1, SHORTEST))
