"""What all tests of commands need."""

import pytest

from pytorchrl.experiments.runs import user_modules


@pytest.fixture(autouse=True)
def no_modules_of_other_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget, after each test, which modules its commands have imported."""
    monkeypatch.setattr(user_modules, "_imported", dict(user_modules._imported))
