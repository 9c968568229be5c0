"""Gallery, the start page: an introduction, and cards of everything that can be opened."""

from mars_viz.ui.gallery import page

page()
