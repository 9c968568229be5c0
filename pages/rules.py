"""Rules page: the verdicts of every rule on one run."""

from mars_viz.ui.rules_page import page

page()
