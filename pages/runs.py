"""Runs: the list of all runs, and the details of one."""

from mars_viz.ui.runs import page

page()
