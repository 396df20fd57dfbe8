"""A fixture for all tests of commands."""

import pytest

from pytorchrl.experiments.runs import user_modules


@pytest.fixture(autouse=True)
def forget_imported_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget, after each test, which modules its commands have imported."""
    monkeypatch.setattr(user_modules, "_imported", dict(user_modules._imported))
