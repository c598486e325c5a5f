"""The report: one self-contained HTML file in which a clustering can be explored.

``data`` holds what a page shows, ``page`` encodes it and writes the page; ``js`` and ``css`` hold its parts.
``from_clusterer`` is the only file that uses a clusterer; its ``gallery`` shows a report in a notebook.
"""

from tubal.report.data import ReportData
from tubal.report.from_clusterer import Gallery, gallery, report_data
from tubal.report.page import build_report, write_report

__all__ = ["Gallery", "ReportData", "build_report", "gallery", "report_data", "write_report"]
