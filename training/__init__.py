"""How what comes with the product was made: the built-in models (`train`, `family`, `eagle`, `mtp`, `dflash`), their
card (`model_card`), the sample runs and sweeps (`samples`) and the sample race (`race`), one command each. The product
imports nothing of it."""

import sys
from collections.abc import Callable
from functools import wraps

from mars_viz.errors import MarsVizError


def command(run: Callable[[list[str] | None], None]) -> Callable[..., int]:
    """What runs on its arguments and returns an exit code; an error that has a sentence is that sentence."""

    @wraps(run)
    def main(arguments: list[str] | None = None) -> int:
        try:
            run(arguments)
        except MarsVizError as error:
            print(f"error: {error}", file=sys.stderr)
            return error.exit_code
        return 0

    return main
