"""Reports: a run as one HTML file with the explorer and the figures of the app."""

from mars_viz.report.citations import bibtex
from mars_viz.report.files import check_place, write_report
from mars_viz.report.page import MAX_BYTES, file_name, report_html

__all__ = ["MAX_BYTES", "bibtex", "check_place", "file_name", "report_html", "write_report"]
