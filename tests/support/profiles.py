"""Number of examples that hypothesis tries: a quarter of the number given by a test, that number, or ten times it.

Long tests of many instants, files or calls try a part of them in the same way, and those that resemble quicker tests
are left to full runs. The variable ``HYPOTHESIS_PROFILE`` chooses ``quick`` (the default), ``full`` or
``nightly``.
"""

import os
from typing import TypeVar

import pytest
from hypothesis import settings

T = TypeVar("T")

SHARES = {"quick": 0.25, "full": 1.0, "nightly": 10.0}
_FEWEST = 5
PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "quick")
SHARE = SHARES[PROFILE]
"""Share of the number of examples given by a test."""


def examples(count: int) -> int:
    """The number of examples to try in this profile, if a full run tries `count`."""
    return max(_FEWEST, round(count * SHARE))


def by_profile(quick: T, full: T, nightly: T) -> T:
    """The value for this profile, such as the number of instants, files or calls that a long test tries."""
    return {"quick": quick, "full": full, "nightly": nightly}[PROFILE]


def is_nightly() -> bool:
    """Whether tests that take an hour may run."""
    return PROFILE == "nightly"


FULL = pytest.mark.skipif(
    PROFILE == "quick", reason="resembles tests that a quick run has; HYPOTHESIS_PROFILE=full runs it"
)
NIGHTLY = pytest.mark.skipif(not is_nightly(), reason="takes minutes; HYPOTHESIS_PROFILE=nightly runs it")


def load() -> None:
    """Use the profile for tests that give no number of examples."""
    settings.register_profile(PROFILE, max_examples=examples(settings().max_examples), deadline=None)
    settings.load_profile(PROFILE)
