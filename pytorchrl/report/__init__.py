"""A report of runs as one self-contained HTML page."""

from pytorchrl.report.page import Limits, write_report

__all__ = ["Limits", "write_report"]
