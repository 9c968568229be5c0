"""Start here: `streamlit run app.py`. Page configuration and navigation, nothing else."""

from __future__ import annotations

import streamlit as st

st.set_page_config(
    page_title="MARS Viz",
    page_icon=":material/stacked_line_chart:",
    layout="wide",
    initial_sidebar_state="collapsed",
    menu_items={"About": "MARS Viz shows speculative decoding token by token: what a verification rule decided."},
)
st.navigation(
    [
        st.Page("pages/gallery.py", title="Gallery", default=True),
        st.Page("pages/explore.py", title="Explore"),
        st.Page("pages/live.py", title="Live"),
        st.Page("pages/compare.py", title="Compare"),
        st.Page("pages/rules.py", title="Rules"),
        st.Page("pages/tune.py", title="Tune"),
        st.Page("pages/learn.py", title="Learn"),
    ],
    position="top",
).run()
