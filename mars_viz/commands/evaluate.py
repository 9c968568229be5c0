"""`mars-viz eval`: the command line of lm-evaluation-harness, with MARS Viz among its models."""

from __future__ import annotations

import argparse
import io
import sys
from contextlib import redirect_stderr

from mars_viz.errors import MarsVizError, ModelError, PromptError, SettingError
from mars_viz.prompts import harness
from mars_viz.terminal import Shown, raw

MODEL = "mars-viz"  # the harness's name for this package's decoding
_HELP = "See mars-viz eval --help."
NO_PREFIX = "\0"  # an option prefix that no argument starts with, so that all are passed on, --help too


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("arguments", nargs="*")


def run(options: argparse.Namespace) -> None:
    """Pass the arguments on. Raises BadInput if the harness is not installed or refuses them."""
    if not harness.installed():
        raise ModelError(f"mars-viz eval needs lm-evaluation-harness, which is not installed. {harness.REMEDY}")
    passed_on = list(options.arguments)
    if not any(each.partition("=")[0] in ("--model", "-M", "--config", "-C") for each in passed_on):
        passed_on = ["--model", MODEL, *passed_on]
    before, sys.argv = sys.argv, ["mars-viz eval", "run", *passed_on]
    try:
        from lm_eval._cli import HarnessCLI
        from lm_eval.utils import setup_logging

        command, messages = HarnessCLI(), io.StringIO()
        try:
            with redirect_stderr(messages):
                parsed = command.parse_args()
        except SystemExit as stop:
            if not stop.code:
                raise
            raise SettingError(f"{messages.getvalue().strip().splitlines()[-1]}. {_HELP}") from stop
        import mars_viz.harness_model  # noqa: F401  (registers the model)

        with redirect_stderr(Shown(raw(sys.stderr), but="\n\t\r")):  # its progress bars return to the line's start
            setup_logging()
            command.execute(parsed)
    except MarsVizError:
        raise
    except (ValueError, KeyError, TypeError, OSError, ImportError) as error:
        raise PromptError(f"lm_eval refuses it: {harness.reason(error)} {_HELP}") from error
    finally:
        sys.argv = before
