"""Reports: a run as one HTML file that opens anywhere, with the explorer and the figures of the app.

Knows runs, figures and the explorer's payload and script; knows no models, no Streamlit and no server.
"""

from mars_viz.report.citations import bibtex
from mars_viz.report.files import check_place, write_report
from mars_viz.report.page import MAX_BYTES, file_name, report_html

__all__ = ["MAX_BYTES", "bibtex", "check_place", "file_name", "report_html", "write_report"]
