"""Lines of the pages that benchmarks write."""

import textwrap


def paragraphs(text: str) -> list[str]:
    """A paragraph as lines of at most 120 characters, in whole words."""
    return textwrap.fill(text, 120, break_on_hyphens=False).split("\n")
