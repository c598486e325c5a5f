"""The report: one self-contained HTML file in which a clustering can be explored."""

from tubal.report.builder import build_report, write_report
from tubal.report.data import ReportData

__all__ = ["ReportData", "build_report", "write_report"]
