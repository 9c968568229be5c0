"""Statistical tests state the probability that they fail although nothing is wrong; with fixed seeds they either
always pass or always fail, so that is the chance that a change of the generator alone breaks them."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from mars_viz.randomness import Purpose, position_uniforms, round_uniforms

COUNT = 20_000
FALSE_ALARM = 1e-6
"""Per comparison, by Hoeffding's inequality and by the normal limit of a correlation."""


def test_the_same_everywhere() -> None:
    """Golden values: another platform or NumPy that disagrees would replay no recorded run."""
    assert round_uniforms(0, 4, Purpose.DRAFT, 2).tolist() == [0.4363224888068159, 0.6464061325260607]
    coins = round_uniforms(2**63 - 1, 10**6, Purpose.COIN, 2, sibling=3)
    assert coins.tolist() == [0.9341708641255653, 0.9291448225613257]
    assert position_uniforms(7, 5, 3).tolist() == [0.4529537692288871, 0.8760432167887869, 0.33164764163906213]
    words = np.random.Philox(key=0, counter=2**256 - 1).random_raw(2)  # the published known answer
    assert words.tolist() == [0x16554D9ECA36314C, 0xDB20FE9D672D0FDC]


@pytest.mark.parametrize("purpose", list(Purpose))
def test_a_longer_block_begins_like_a_shorter_one(purpose: Purpose) -> None:
    long = round_uniforms(3, 17, purpose, 64, sibling=2)
    for count in (0, 1, 3, 4, 5, 33):
        assert (round_uniforms(3, 17, purpose, count, sibling=2) == long[:count]).all()


def test_a_position_has_one_sample_wherever_one_starts() -> None:
    whole = position_uniforms(9, 0, 200)
    for start, count in itertools.product((0, 1, 2, 3, 4, 5, 63, 130), (0, 1, 4, 7, 60)):
        assert (position_uniforms(9, start, count) == whole[start : start + count]).all()


def streams() -> dict[str, np.ndarray]:
    """Long streams whose keys differ in one part each."""
    drawn = {f"purpose {purpose.name}": round_uniforms(5, 40, purpose, COUNT) for purpose in Purpose}
    drawn |= {f"seed {seed}": round_uniforms(seed, 40, Purpose.COIN, COUNT) for seed in (0, 6, 2**62)}
    drawn |= {f"start {start}": round_uniforms(5, start, Purpose.COIN, COUNT) for start in (0, 39, 41)}
    drawn |= {f"sibling {rank}": round_uniforms(5, 40, Purpose.COIN, COUNT, sibling=rank) for rank in (1, 2)}
    return drawn | {"positions": position_uniforms(5, 40, COUNT)}


def test_uniforms_are_uniform() -> None:
    """The largest gap to the diagonal, by the Dvoretzky-Kiefer-Wolfowitz inequality."""
    allowed = np.sqrt(np.log(2 / FALSE_ALARM) / (2 * COUNT))
    for name, uniforms in streams().items():
        assert ((uniforms >= 0) & (uniforms < 1)).all()
        gap = np.abs(np.sort(uniforms) - (np.arange(COUNT) + 0.5) / COUNT).max()
        assert gap <= allowed + 0.5 / COUNT, name


def test_keys_that_differ_anywhere_share_no_luck() -> None:
    """No value in common, and a correlation within 4.9 standard errors (two-sided 1e-6), for every pair."""
    for (a, first), (b, second) in itertools.combinations(streams().items(), 2):
        assert not np.isin(first, second).any(), (a, b)
        assert abs(np.corrcoef(first, second)[0, 1]) * np.sqrt(COUNT) < 4.9, (a, b)


def test_rounds_that_overlap_share_no_luck() -> None:
    """A position seen from two rounds has two coins; within a round its depths are independent too."""
    rounds = np.array([round_uniforms(11, start, Purpose.COIN, 8) for start in range(4000)])  # [start, depth]
    assert len(np.unique(rounds)) == rounds.size
    for lag, depth in itertools.product((1, 2), (1, 3)):
        pairs = rounds[lag:, 0], rounds[:-lag, depth]
        assert abs(np.corrcoef(*pairs)[0, 1]) * np.sqrt(len(pairs[0])) < 4.9
