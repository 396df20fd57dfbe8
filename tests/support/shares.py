"""Keep a share of the cases of a parametrized test in the quick tests, where each case resembles the others.

``@pytest.mark.quick_share(0.2)`` on a test keeps a fifth of its cases quick, and gives the others the ``long`` mark.
Loaded by ``tests/conftest.py``.
"""

from collections import Counter
from collections.abc import Sequence

import pytest

_GOLDEN = (5**0.5 - 1) / 2


def mark_long(items: Sequence[pytest.Item]) -> None:
    """Give the ``long`` mark to the cases that are not quick; those that have it already do not count."""
    counts: Counter[str] = Counter()
    for item in items:
        mark = item.get_closest_marker("quick_share")
        if mark is None or item.get_closest_marker("long") is not None:
            continue
        test = item.nodeid.partition("[")[0]
        if not is_quick(counts[test], *mark.args):
            item.add_marker(pytest.mark.long)
        counts[test] += 1


def is_quick(position: int, share: float) -> bool:
    """Whether the case at a position among those of its test is quick; the first one always is.

    Multiples of the golden ratio are spread evenly, without the periods of the products of parameters.
    """
    return position * _GOLDEN % 1 < share
