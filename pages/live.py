"""Live: decode, watch every round, and race three ways of decoding."""

from mars_viz.ui.live import page

page()
