"""Explore: the decisions of the rule, and their effects."""

from mars_viz.ui.explore import page

page()
