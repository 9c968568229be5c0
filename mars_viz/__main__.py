"""`python -m mars_viz` is the command `mars-viz`."""

import sys

from mars_viz.cli import main

sys.exit(main())
