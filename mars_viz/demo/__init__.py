"""The built-in pair: where its weights lie. Knows paths only; importing it loads no model library."""

from pathlib import Path

PAIR = Path(__file__).parent / "pair"
TARGET = PAIR / "target"
DRAFTER = PAIR / "drafter"
