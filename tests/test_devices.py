"""Devices' names: short, and still the name of that device."""

from __future__ import annotations

import pytest

from mars_viz.ui.jobs.models import Device
from mars_viz.ui.live.live_words import device_tiles
from mars_viz.words import short_device


@pytest.mark.parametrize(
    ("full", "short"),
    [
        ("Intel(R) Xeon(R) Processor, 2 threads", "Intel Xeon, 2 threads"),
        ("Intel(R) Xeon(R) CPU @ 2.00GHz, 8 threads", "Intel Xeon, 8 threads"),
        ("Intel(R) Xeon(R) Platinum 8480C CPU @ 2.20 GHz", "Intel Xeon Platinum 8480C"),
        ("13th Gen Intel(R) Core(TM) i7-1360P", "13th Gen Intel Core i7-1360P"),
        ("AMD EPYC 7763 64-Core Processor, 16 threads", "AMD EPYC 7763, 16 threads"),
        ("AMD Ryzen™ 9 7950X", "AMD Ryzen 9 7950X"),
        ("NVIDIA H200", "NVIDIA H200"),
        ("NVIDIA GeForce RTX 4090", "NVIDIA GeForce RTX 4090"),
        ("Apple M2 Pro", "Apple M2 Pro"),
        ("arm64, 4 threads", "arm64, 4 threads"),
        ("Processor, 2 threads", "Processor, 2 threads"),
        ("CPU", "CPU"),
        ("", ""),
        ("<b>(R)</b>, a", "<b> </b>, a"),
    ],
)
def test_a_name_is_short_and_still_a_name(full: str, short: str) -> None:
    assert short_device(full) == short


def test_a_tile_is_short_and_says_the_full_name_on_hover() -> None:
    full = "Intel(R) Xeon(R) CPU @ 2.00GHz, 8 threads"
    tile = device_tiles(Device(full, "float32", 1, 2, 3))[0]
    assert (tile.value, full in tile.help) == ("Intel Xeon, 8 threads", True)
