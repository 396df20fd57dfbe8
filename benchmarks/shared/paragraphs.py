"""Lines of the pages that benchmarks write."""

import textwrap


def paragraphs(text: str) -> list[str]:
    """Wrap a text at 120 characters, between words."""
    return textwrap.fill(text, 120, break_on_hyphens=False).split("\n")
