"""Runs as one page for a browser, which needs nothing beside itself."""

from pytorchrl.report.page import Limits, write_report

__all__ = ["Limits", "write_report"]
