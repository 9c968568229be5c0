"""Reports: a run as one HTML file with the explorer and the figures of the app."""

from mars_viz.report.page import bibtex, check_place, file_name, report_html, write_report

__all__ = ["bibtex", "check_place", "file_name", "report_html", "write_report"]
