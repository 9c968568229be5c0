"""Parts of the Streamlit pages: jobs, the catalog of runs, links, forms, theme and uploads."""
