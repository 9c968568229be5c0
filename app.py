"""Start here: `streamlit run app.py`. The server, page configuration and navigation, nothing else."""

from __future__ import annotations

from pathlib import Path

import streamlit as st
from starlette.middleware import Middleware
from streamlit import runtime

from mars_viz.terminal import shown_logs
from mars_viz.ui import models_form, navigation, startup, visitors
from mars_viz.ui.classroom import door

if not runtime.exists():  # `streamlit run` imports this file once, and serves the App that it finds here
    around = [Middleware(each) for each in (door.LetsTeachersIn, visitors.KnowsBrowsers)]
    shown_logs()
    app = st.App(__file__, lifespan=startup.lifespan, middleware=around, routes=door.routes())
else:  # each tab runs it as its script
    navigation.forget_last_page()
    st.set_page_config(
        page_title="MARS Viz",
        page_icon=Path(__file__).parent / "mars_viz/ui/icon.svg",  # a named one would be asked of another host
        layout="wide",
        initial_sidebar_state="collapsed",
        menu_items={"About": "MARS Viz shows speculative decoding token by token: what a verification rule decided."},
    )
    navigation.keep_to_the_browser()
    models_form.draw()
    st.navigation(
        [
            st.Page("pages/gallery.py", title="Gallery", default=True),
            st.Page("pages/explore.py", title="Explore"),
            st.Page("pages/live.py", title="Live"),
            st.Page("pages/runs.py", title="Runs"),
            st.Page("pages/compare.py", title="Compare"),
            st.Page("pages/rules.py", title="Rules"),
            st.Page("pages/tune.py", title="Tune"),
            st.Page("pages/learn.py", title="Learn"),
        ],
        position="top",
    ).run()
