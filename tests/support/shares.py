"""Shares of tests: of the cases of one test that are quick, and of all tests that one of several runs takes.

``@pytest.mark.quick_share(0.2)`` on a test keeps a fifth of its cases quick, and gives the others the ``long`` mark.
``@pytest.mark.quick_share(0.2, long=0.6)`` also leaves two fifths of the cases to full runs: long tests of the profile
``quick`` skip them. ``--share 1/3`` runs a third of all tests; the runs 1/3, 2/3 and 3/3 together run each of them
once. Loaded by ``tests/conftest.py``.
"""

import zlib
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


def keep_share(items: list[pytest.Item], share: str) -> None:
    """Keep one of several equal shares of the tests; the cases of a test are all in the same share.

    Args:
        items: the collected tests, of which the others are removed.
        share: "K/N", the K-th of N shares, from 1.

    Raises:
        pytest.UsageError: it is no such share.
    """
    number, _, count = share.partition("/")
    if not (number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count)):
        raise pytest.UsageError(f"--share is K/N with K from 1 to N, such as 1/3, got {share!r}")
    items[:] = [
        item for item in items if zlib.crc32(item.nodeid.partition("[")[0].encode()) % int(count) == int(number) - 1
    ]
