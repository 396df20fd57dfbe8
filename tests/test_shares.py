"""The shares of the tests, of which continuous integration runs one, together are all tests."""

from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.shares import keep_share


def test_each_test_is_in_exactly_one_share_with_all_its_cases() -> None:
    names = [f"tests/test_{file}.py::test_{number}[{case}]" for file in "abc" for number in range(40) for case in "xy"]
    shares = []
    for number in (1, 2, 3):
        items: list[Any] = [SimpleNamespace(nodeid=name) for name in names]
        keep_share(items, f"{number}/3")
        shares.append([item.nodeid for item in items])
    assert sorted(name for share in shares for name in share) == sorted(names)
    assert all(len(share) > len(names) / 6 for share in shares)
    tests = [{name.partition("[")[0] for name in share} for share in shares]
    assert not (tests[0] & tests[1] | tests[1] & tests[2] | tests[0] & tests[2])


@pytest.mark.parametrize("share", ["0/3", "4/3", "3", "a/b", ""])
def test_a_share_that_does_not_exist_is_refused(share: str) -> None:
    with pytest.raises(pytest.UsageError, match="K from 1 to N"):
        keep_share([], share)
