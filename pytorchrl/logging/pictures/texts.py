"""Texts in figures: names from run folders and data sets are text there, never mathematics or control codes."""

from pytorchrl.terminal import printable


def in_figure(text: object) -> str:
    """Return a text for a figure, in which dollar signs begin no formula and control codes are escaped."""
    return printable(text).replace("$", r"\$")
