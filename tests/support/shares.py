"""Keep a share of the cases of a parametrized test in the quick tests, where each case resembles the others.

``@pytest.mark.quick_share(0.2)`` on a test keeps a fifth of its cases quick, and gives the others the ``long`` mark.
``@pytest.mark.quick_share(0.2, long=0.6)`` also leaves two fifths of the cases to full runs: long tests of the profile
``quick`` skip them. Loaded by ``tests/conftest.py``.
"""

from collections import Counter
from collections.abc import Sequence

import pytest

from tests.support.profiles import FULL

_GOLDEN = (5**0.5 - 1) / 2


def mark_long(items: Sequence[pytest.Item]) -> None:
    """Mark the cases that are not quick, and those that only full runs try.

    Cases with a ``long`` mark of their own are counted separately: they never are quick, and the share ``long`` of them
    is tried.
    """
    counts: Counter[tuple[str, bool]] = Counter()
    for item in items:
        mark = item.get_closest_marker("quick_share")
        if mark is None:
            continue
        test, is_long = item.nodeid.partition("[")[0], item.get_closest_marker("long") is not None
        position = counts[test, is_long]
        counts[test, is_long] += 1
        if not is_long and not is_quick(position, *mark.args):
            item.add_marker(pytest.mark.long)
        if not is_quick(position, mark.kwargs.get("long", 1.0)):
            item.add_marker(FULL)


def is_quick(position: int, share: float) -> bool:
    """Whether the case at a position among those of its test is quick; the first one always is.

    Multiples of the golden ratio are spread evenly, without the periods of the products of parameters.
    """
    return position * _GOLDEN % 1 < share
