"""How many examples hypothesis tries: a quarter of what a test names, all of them, or ten times as many at night.

Long tests that go through instants, files or calls one by one try a part of them in the same way. Chosen by the
variable ``HYPOTHESIS_PROFILE``: ``quick`` (the default), ``full`` or ``nightly``.
"""

import os
from typing import TypeVar

from hypothesis import settings

T = TypeVar("T")

SHARES = {"quick": 0.25, "full": 1.0, "nightly": 10.0}
_FEWEST = 5
PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "quick")
SHARE = SHARES[PROFILE]
"""Of the examples that a test names."""


def examples(count: int) -> int:
    """The number of examples to try in this profile, where a full run tries `count`."""
    return max(_FEWEST, round(count * SHARE))


def by_profile(quick: T, full: T, nightly: T) -> T:
    """What is given for this profile: how many instants, files or calls a long test tries."""
    return {"quick": quick, "full": full, "nightly": nightly}[PROFILE]


def is_nightly() -> bool:
    """Whether there is time for what takes an hour."""
    return PROFILE == "nightly"


def load() -> None:
    """Make the profile that of tests that name no number of examples."""
    settings.register_profile(PROFILE, max_examples=examples(settings().max_examples), deadline=None)
    settings.load_profile(PROFILE)
